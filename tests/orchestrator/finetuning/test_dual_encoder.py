"""Sentence embeddings learned from pairs: their folder embeds texts; prompts, classifiers, what is refused.

Alone: .venv/bin/pytest tests/orchestrator/finetuning/test_dual_encoder.py
"""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bert_core.checkpoints.sentence_transformers import DenseConfig, SentenceEmbeddingConfig
from bert_core.errors import CheckpointError
from bert_core.heads import BertForSentenceEmbedding
from bert_core.text_embedding import TextEmbedder
from orchestrator.base.errors import InputError, SpecError, TaskDataError
from orchestrator.finetuning.batches import make_batch
from orchestrator.finetuning.evaluation import evaluate_model
from orchestrator.finetuning.heads.embedding import CLASSIFIER_FILE
from orchestrator.inference import predict
from orchestrator.storage.model_folder import weights_digest
from orchestrator.tasks.loading import load_task
from orchestrator.tasks.types.embedding import MatchExample
from tests.orchestrator.finetuning import tiny_tasks
from tests.orchestrator.finetuning.bench import Bench, Killed
from tests.orchestrator.tasks.definitions import features_of

pytestmark = pytest.mark.training


def test_the_folder_embeds_texts_as_in_training(tmp_path: Path) -> None:
    bench = Bench(tiny_tasks.pairs(tmp_path, "cosine"), tmp_path)
    result = bench.run(epochs=1.0, pooling="max", max_seq_length=16)
    assert result.state == "COMPLETED", result.error
    assert not Path(bench.model_folder, CLASSIFIER_FILE).exists()
    embedder = TextEmbedder.load(bench.model_folder)
    assert (embedder.model.embedding.pooling, embedder.max_seq_length) == ("max", 16)
    vectors = torch.from_numpy(embedder.embed(["the road anna", "a tree bruno"]))
    expected = F.cosine_similarity(vectors[0], vectors[1], dim=0)
    (row,) = predict(bench.model_folder, ["the road anna\ta tree bruno"], precision="fp32")
    assert row["value"] == pytest.approx(float(expected), abs=1e-5)
    with pytest.raises(InputError, match="line 1: this model compares two texts"):
        list(predict(bench.model_folder, ["one text"]))


def test_prompts_are_learned_with_and_kept_with_the_model(tmp_path: Path) -> None:
    bench = Bench(tiny_tasks.pairs(tmp_path, "in_batch_negatives", negative_columns=["negatives"]), tmp_path)
    result = bench.run(epochs=1.0, query_prompt="clara ", document_prompt="dario ", matryoshka_dims=(64, 16))
    assert result.state == "COMPLETED", result.error
    embedder = TextEmbedder.load(bench.model_folder)
    assert (embedder.model.embedding.query_prompt, embedder.model.embedding.document_prompt) == ("clara ", "dario ")
    np.testing.assert_allclose(embedder.embed(["anna"], "clara "), embedder.embed(["clara anna"]))
    again, *_ = evaluate_model(bench.model_folder, bench.task, "validation", 32, bench.job.cache)
    assert again["ndcg_at_10"] == pytest.approx(result.metrics["ndcg_at_10"], abs=1e-5)


def test_dense_layers_of_the_start_are_learned_and_a_killed_trial_ends_with_the_same_bits(tmp_path: Path) -> None:
    embedding = SentenceEmbeddingConfig(
        prompts={"STS": "dario "}, default_prompt_name="STS", dense=(DenseConfig(128, 24),)
    )
    config = tiny_tasks.save_pretrained(tmp_path / "start").config
    start = BertForSentenceEmbedding(config, 7, embedding)
    start.save_pretrained(tmp_path / "start")
    recipe = {"epochs": 0.5, "init_from": "start", "tokenizer": None, "evaluations_per_epoch": 4, "dropout": 0.1}
    folders = []
    for name, killed_at in (("whole", None), ("killed", 1)):
        task = tiny_tasks.pairs(tmp_path / name, "classification")
        bench = Bench(task, tmp_path / name, {"start": str(tmp_path / "start")})
        if killed_at is not None:
            with pytest.raises(Killed):
                bench.run(killed_at=killed_at, **recipe)
        assert bench.run(**recipe).state == "COMPLETED"
        folders.append(bench.model_folder)
    assert weights_digest(folders[0]) == weights_digest(folders[1])
    model = BertForSentenceEmbedding.from_pretrained(folders[0])
    assert not torch.equal(model.dense[0].linear.weight, start.dense[0].linear.weight)
    assert (model.embedding.prompt(), model.embedding.prompt("STS"), model.vector_size) == ("", "dario ", 24)
    Path(folders[0], "2_Dense/model.safetensors").write_bytes(
        Path(tmp_path, "start/2_Dense/model.safetensors").read_bytes()
    )
    assert weights_digest(folders[0]) != weights_digest(folders[1]), "they are weights of the model"


def test_a_model_that_finds_partners_is_asked_otherwise(tmp_path: Path) -> None:
    bench = Bench(tiny_tasks.pairs(tmp_path, "in_batch_negatives"), tmp_path)
    bench.run(epochs=0.1)
    with pytest.raises(InputError, match="with `embed` or `search`"):
        list(predict(bench.model_folder, ["a\tb"]))


def test_texts_of_equal_tokens_have_one_number(tmp_path: Path) -> None:
    texts = [("anna", "bruno"), ("clara", "Bruno"), ("anna", "dario"), ("bruno", "anna anna anna"), ("x", "anna anna")]
    examples = [MatchExample(str(number), *pair) for number, pair in enumerate(texts)]
    features = features_of(
        "embedding", (), examples, tiny_tasks.load_tokenizer(tmp_path), max_seq_length=4, objective="in_batch_negatives"
    )
    assert features.head_arrays.text_numbers.tolist() == [0, 1, 2, 1, 0, 3, 1, 4, 5, 4]
    batch = make_batch(features, features.windows_of(np.array([2, 0])), torch.device("cpu"))
    assert batch.targets.tolist() == [[0, 3], [0, 1]]


def test_a_task_for_embeddings_names_its_objective(tmp_path: Path) -> None:
    spec = tiny_tasks.pairs(tmp_path, "cosine").model_copy(update={"objective": None, "score_range": None})
    with pytest.raises(SpecError, match="in_batch"):
        load_task(spec)


def test_a_score_outside_its_range_and_a_missing_text_are_named(tmp_path: Path) -> None:
    with pytest.raises(TaskDataError, match=r"line \d+: score 5"):
        load_task(tiny_tasks.pairs(tmp_path, "cosine", score_range=(0.0, 4.0))).examples("train")
    task = load_task(tiny_tasks.pairs(tmp_path, "in_batch_negatives"))
    Path(task.file("train")).write_text('{"a": "x", "b": "y"}\n{"a": "x", "b": " "}\n')
    with pytest.raises(TaskDataError, match="line 2"):
        task.examples("train")


def test_a_broken_classifier_of_pairs_is_refused(tmp_path: Path) -> None:
    bench = Bench(tiny_tasks.pairs(tmp_path, "classification"), tmp_path)
    bench.run(epochs=0.1)
    file = Path(bench.model_folder, CLASSIFIER_FILE)
    assert file.exists()
    file.write_bytes(b"no weights")
    with pytest.raises(CheckpointError, match="pair_classifier"):
        evaluate_model(bench.model_folder, bench.task, "validation", 32, bench.job.cache)
