"""Frozen encoders, layers at a pace of their own. Alone: pytest tests/orchestrator/finetuning/test_strategies.py"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from orchestrator.finetuning.building import build_model
from orchestrator.finetuning.evaluation import evaluate_model
from orchestrator.finetuning.logits import compute_logits, compute_states
from orchestrator.finetuning.model_folder import load_fine_tuned
from orchestrator.specs import RecipeSpec, TaskSpec
from orchestrator.specs.task import Head
from orchestrator.tasks.loading import load_task
from tests.orchestrator.finetuning import tiny_tasks
from tests.orchestrator.finetuning.bench import Bench
from tests.orchestrator.tasks.definitions import features_of

pytestmark = pytest.mark.training

TASKS: dict[str, Callable[[Path], TaskSpec]] = {
    name: getattr(tiny_tasks, name) for name in ("classification", "ner", "qa", "sentence_selection")
}
LENGTHS: dict[Head, dict[str, int]] = {"qa": {"doc_stride": 4, "max_query_length": 6}}
INPUTS = ("last", "concat_last_four", "scalar_mix")


MEANS = {"family": "modernbert", "classifier_pooling": "mean", "local_window": 4}


def save_encoder(folder: Path, **config: Any) -> Any:
    """A random encoder of four layers, so that the last four can be read."""
    return tiny_tasks.save_pretrained(folder, num_hidden_layers=4, **config)


@pytest.mark.parametrize("layer_pooling", INPUTS)
@pytest.mark.parametrize("head", TASKS)
@pytest.mark.parametrize("config", [{}, MEANS], ids=["bert", "means"])
def test_kept_outputs_give_the_logits_of_the_whole_model(
    head: Head, layer_pooling: str, config: dict[str, Any], tmp_path: Path
) -> None:
    task = load_task(TASKS[head](tmp_path))
    tokenizer = tiny_tasks.load_tokenizer(tmp_path)
    save_encoder(tmp_path / "encoder", **config)
    recipe = RecipeSpec.model_validate({"layer_pooling": layer_pooling, "max_seq_length": 16})
    model = build_model(task, recipe, str(tmp_path / "encoder"), tokenizer).eval()
    features = features_of(
        head, task.labels, task.examples("train")[:40], tokenizer, max_seq_length=16, **LENGTHS.get(head, {})
    )
    kept = compute_states(features, model)
    logits, from_kept = compute_logits(model, features), compute_logits(model, kept)
    if head == "ner":
        assert len(kept.input_ids) < len(features.input_ids)
        logits, from_kept = logits[features.head_arrays.word_starts], from_kept[kept.head_arrays.word_starts]
    if head == "sentence_selection":
        assert len(kept.input_ids) < len(features.input_ids)
        places, of_kept = (split.head_arrays.is_sentence_start for split in (features, kept))
        logits, from_kept = logits[places], from_kept[of_kept]
    np.testing.assert_allclose(from_kept, logits, atol=1e-5)


@pytest.mark.parametrize("head", ["classification", "ner"])
def test_a_model_from_left_to_right_stays_causal_in_fine_tuning(head: Head, tmp_path: Path) -> None:
    tiny_tasks.save_pretrained(tmp_path / "encoder", causal_attention=True)
    bench = Bench(TASKS[head](tmp_path), tmp_path, {"encoder": str(tmp_path / "encoder")})
    result = bench.run(init_from="encoder", tokenizer=None)
    assert result.state == "COMPLETED", result.error
    assert result.metrics[bench.task.metric] > 0.9
    assert load_fine_tuned(Path(bench.model_folder)).model.config.causal_attention
    again, *_ = evaluate_model(bench.model_folder, bench.task, "validation", 32, bench.job.cache)
    assert again[bench.task.metric] == result.metrics[bench.task.metric]


def test_lstm_layers_learn_over_a_frozen_encoder_and_share_what_it_gave(tmp_path: Path) -> None:
    save_encoder(tmp_path / "encoder")
    bench = Bench(tiny_tasks.ner(tmp_path), tmp_path, {"encoder": str(tmp_path / "encoder")})
    changes = {"init_from": "encoder", "tokenizer": None, "freeze_encoder": True, "layer_pooling": "concat_last_four"}
    result = bench.run(**changes, epochs=16.0, learning_rate=1e-2, num_lstm_layers=2, lstm_hidden_size=32)
    assert result.state == "COMPLETED", result.error
    assert result.metrics["f1"] > 0.95
    again, *_ = evaluate_model(bench.model_folder, bench.task, "validation", 32, bench.job.cache)
    assert again["f1"] == result.metrics["f1"]
    assert load_fine_tuned(Path(bench.model_folder)).model.config.token_input_size == 32
    num_kept = len(list(Path(bench.job.cache).rglob("states.npy")))
    bench.run(**changes, epochs=0.1, num_lstm_layers=1, token_decoder="crf")
    assert len(list(Path(bench.job.cache).rglob("states.npy"))) == num_kept


@pytest.mark.parametrize("name", [*TASKS, "columns", "multiple_choice"])
def test_a_frozen_encoder_stays_bit_for_bit_while_its_head_learns(name: str, tmp_path: Path) -> None:
    task = getattr(tiny_tasks, name)(tmp_path)
    source = save_encoder(tmp_path / "encoder")
    bench = Bench(task, tmp_path, {"encoder": str(tmp_path / "encoder")})
    changes = {"init_from": "encoder", "tokenizer": None, "freeze_encoder": True, "layer_pooling": "scalar_mix"}
    result = bench.run(epochs=4.0, learning_rate=1e-2, **changes)
    assert result.state == "COMPLETED", result.error
    model = load_fine_tuned(Path(bench.model_folder)).model
    assert model.config.model_type == "bert_core"
    for name, tensor in source.bert.state_dict().items():
        if name.startswith(("embeddings.", "layers.")):
            assert torch.equal(model.bert.state_dict()[name], tensor), name
    assert not torch.equal(model.bert.layer_pooling.weights, torch.ones(5))


def test_gradual_unfreezing_begins_with_the_head(tmp_path: Path) -> None:
    bench = Bench(tiny_tasks.classification(tmp_path), tmp_path)
    recipe = {"unfreeze_every_epochs": 1.0, "learning_rate": 1e-2}

    def moved(epochs: float) -> set[str]:
        assert bench.run(epochs=epochs, **recipe).state == "COMPLETED"
        trained = load_fine_tuned(Path(bench.model_folder)).model.state_dict()
        start = build_model(
            bench.task,
            tiny_tasks.RECIPE.model_copy(update=recipe),
            None,
            tiny_tasks.load_tokenizer(tmp_path),
        ).state_dict()
        parts = ("embeddings.word", "layers.0.qkv", "layers.1.qkv", "pooler")
        names = {part: f"bert.{part}.weight" for part in parts}
        return {part for part, name in names.items() if not torch.equal(trained[name], start[name])}

    assert moved(1.0) == {"pooler"}
    assert moved(2.0) == {"pooler", "layers.1.qkv"}


@pytest.mark.parametrize(("family", "is_drawn"), [("bert", False), ("roberta", True), ("modernbert", False)])
def test_a_layer_that_the_encoder_s_folder_lacks_is_drawn_from_the_recipe_s_seed(
    family: str, is_drawn: bool, tmp_path: Path
) -> None:
    source = save_encoder(tmp_path / "encoder", family=family)
    task, tokenizer = load_task(tiny_tasks.classification(tmp_path)), tiny_tasks.load_tokenizer(tmp_path)
    first, second = (
        build_model(task, tiny_tasks.RECIPE.model_copy(update={"seed": seed}), str(tmp_path / "encoder"), tokenizer)
        for seed in (0, 1)
    )
    assert torch.equal(first.bert.pooler.weight, second.bert.pooler.weight) != is_drawn
    if family == "modernbert":
        assert torch.equal(first.bert.pooler.weight, source.prediction.transform.weight), "as transformers starts it"
        assert torch.equal(first.bert.pooler_norm.weight, source.prediction.norm.weight)


def test_a_trial_that_never_leaves_the_majority_is_called_collapsed(tmp_path: Path) -> None:
    bench = Bench(tiny_tasks.classification(tmp_path), tmp_path)
    assert bench.run(epochs=0.1, learning_rate=1e-9, warmup_ratio=0.0).metrics["collapsed"] == 1.0
    assert bench.run(epochs=6.0).metrics["collapsed"] == 0.0
