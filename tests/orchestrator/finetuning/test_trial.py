"""A trial below Ray: it learns, repeats, fails clearly. Alone: pytest tests/orchestrator/finetuning/test_trial.py"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import transformers

from orchestrator.base.errors import ClusterError
from orchestrator.finetuning.building import build_model
from orchestrator.finetuning.evaluation import evaluate_model, predict_examples
from orchestrator.finetuning.heads.tokens import decode_tags
from orchestrator.finetuning.model_folder import load_fine_tuned
from orchestrator.finetuning.search_space import plan_trials
from orchestrator.finetuning.trial import run_trial
from orchestrator.inference import predict
from orchestrator.registry.group_comparison import read_predictions
from orchestrator.specs import RecipeSpec, SweepSpec, TaskSpec
from orchestrator.storage import digest_file, join
from orchestrator.tasks.loading import load_task
from orchestrator.tasks.types.conll import NerExample
from tests.orchestrator.finetuning import tiny_tasks
from tests.orchestrator.finetuning.bench import Bench
from tests.orchestrator.tasks.definitions import features_of

pytestmark = pytest.mark.training

HEADS: dict[str, tuple[Callable[[Path], TaskSpec], str, float]] = {
    "classification": (tiny_tasks.classification, "accuracy", 0.95),
    "columns": (tiny_tasks.columns, "accuracy", 0.95),
    "multi_label": (tiny_tasks.multi_label, "micro_f1", 0.95),
    "multiple_choice": (tiny_tasks.multiple_choice, "accuracy", 0.95),
    "regression": (tiny_tasks.regression, "pearson", 0.9),
    "ner": (tiny_tasks.ner, "f1", 0.95),
    "token_classification": (tiny_tasks.token_classification, "word_accuracy", 0.95),
    "qa": (tiny_tasks.qa, "f1", 0.8),
    "sentence_selection": (tiny_tasks.sentence_selection, "f1", 0.9),
    "cosine": (lambda folder: tiny_tasks.pairs(folder, "cosine"), "spearman", 0.8),
    "classes of pairs": (lambda folder: tiny_tasks.pairs(folder, "classification"), "accuracy", 0.95),
    "in-batch negatives": (lambda folder: tiny_tasks.pairs(folder, "in_batch_negatives"), "ndcg_at_10", 0.5),
}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.core
def test_each_head_learns_its_task(head: str, tmp_path: Path) -> None:
    make, metric, least = HEADS[head]
    bench = Bench(make(tmp_path), tmp_path)
    assert bench.task.metric == metric
    result = bench.run(epochs=8.0 if bench.task.head == "embedding" else 6.0)
    assert result.state == "COMPLETED", result.error
    assert result.metrics[metric] >= least > result.metrics[f"baseline.{metric}"] + 0.2
    again, predictions, *_ = evaluate_model(bench.model_folder, bench.task, "validation", 32, bench.job.cache)
    assert again[metric] == pytest.approx(result.metrics[metric], abs=1e-5)
    rows = [json.loads(line) for line in Path(str(result.predictions_path)).read_text().splitlines()]
    assert len(rows) == len(predictions) == len(bench.task.examples("validation"))


def test_a_model_with_own_columns_predicts_new_rows_by_what_it_has_learnt(tmp_path: Path) -> None:
    bench = Bench(tiny_tasks.columns(tmp_path), tmp_path)
    bench.run(epochs=6.0)
    rows = [("good", 9.0, "blue"), ("good", 1.0, "blue"), ("bad", 9.0, "green"), ("bad", None, "red"), ("bad", 1, "x")]
    lines = [json.dumps({"text": f"the {word} road", "size": size, "color": color}) for word, size, color in rows]
    assert [row["label"] for row in predict(bench.model_folder, lines)] == ["yes", "no", "no", "yes", "no"]
    with pytest.raises(ValueError, match="bert_core"):
        transformers.AutoConfig.from_pretrained(bench.model_folder)


def test_a_document_longer_than_a_window_is_selected_from_window_by_window(tmp_path: Path) -> None:
    bench = Bench(tiny_tasks.sentence_selection(tmp_path), tmp_path)
    bench.run(epochs=0.5)
    sentences = [
        f"the old {word} road" for word in ["bad", "good", "bad", "bad", "good"]
    ]  # four and the query: 29 of 32
    parts = [{"sentences": some, "query": "what is it"} for some in (sentences, sentences[:4], sentences[4:])]
    rows = predict(bench.model_folder, list(map(json.dumps, parts)), precision="fp32")
    whole, first, last = (row["scores"] for row in rows)
    assert whole == pytest.approx(first + last, abs=1e-5)
    assert len(set(whole)) == 5


def test_a_crf_learns_and_is_loaded_and_decoded_with_the_model(tmp_path: Path) -> None:
    bench = Bench(tiny_tasks.ner(tmp_path), tmp_path)
    result = bench.run(epochs=6.0, token_decoder="crf", context="document")
    assert result.state == "COMPLETED", result.error
    assert result.metrics["f1"] >= 0.95
    again, predictions, *_ = evaluate_model(bench.model_folder, bench.task, "validation", 32, bench.job.cache)
    assert again["f1"] == pytest.approx(result.metrics["f1"], abs=1e-5)
    fine_tuned = load_fine_tuned(Path(bench.model_folder))
    assert fine_tuned.record.options.context == "document"
    assert "crf.transitions" in fine_tuned.model.state_dict()
    assert predict_examples(fine_tuned, bench.task.examples("validation")) == predictions


def test_a_sentence_in_several_windows_is_one_path(tmp_path: Path) -> None:
    task = load_task(tiny_tasks.ner(tmp_path))
    tokenizer = tiny_tasks.load_tokenizer(tmp_path)
    model = build_model(task, RecipeSpec(token_decoder="crf"), None, tokenizer)
    examples = [NerExample("0", ("mr", *tiny_tasks.NAMES)), NerExample("1", ("the",))]
    features = features_of("ner", task.labels, examples, tokenizer, max_seq_length=5)
    assert features.num_windows == 4
    logits = np.zeros((len(features.input_ids), 3), np.float32)  # O, B-PER, I-PER
    logits[features.head_arrays.word_starts] = [[1, 0, 0], [0, 3, 0], *[[0, 0, 2]] * 5, [0, 0, 2]]
    tags = decode_tags(model, features, logits)
    assert tags[features.head_arrays.word_starts].tolist() == [0, 1, 2, 2, 2, 2, 2, 0]
    assert set(np.delete(tags, features.head_arrays.word_starts).tolist()) == {-100}


def test_unanswerable_questions_get_a_threshold_that_is_kept_with_the_model(tmp_path: Path) -> None:
    bench = Bench(tiny_tasks.qa(tmp_path, unanswerable=True), tmp_path)
    result = bench.run(epochs=6.0)
    assert result.metrics["f1"] >= 0.8 > result.metrics["baseline.f1"]
    fine_tuned = load_fine_tuned(Path(bench.model_folder))
    assert fine_tuned.task.unanswerable
    assert fine_tuned.record.options.null_threshold != 0.0
    again, *_ = evaluate_model(bench.model_folder, bench.task, "validation", 32, bench.job.cache)
    assert again["f1"] == pytest.approx(result.metrics["f1"], abs=1e-9)


@pytest.mark.parametrize("head", ["classification", "multi_label"])
def test_temperature_and_thresholds_are_those_of_validation_and_go_with_the_model(head: str, tmp_path: Path) -> None:
    bench = Bench(HEADS[head][0](tmp_path), tmp_path)
    asked = {"calibrate": True} | ({"tune_thresholds": True} if head == "multi_label" else {})
    found = []
    for changes in ({}, asked):
        result = bench.run(epochs=0.5, **changes)
        again, *_ = evaluate_model(bench.model_folder, bench.task, "validation", 32, bench.job.cache)
        assert again[bench.task.metric] == pytest.approx(result.metrics[bench.task.metric], abs=1e-6)
        (answer,) = predict(bench.model_folder, ["good bad plus the road"])
        probabilities = np.array(list(answer["probabilities"].values()))
        found.append((result, load_fine_tuned(Path(bench.model_folder)).record.options, answer, probabilities))
    (plain, before, _, raw), (tuned, after, answer, fitted) = found
    assert (before.logit_temperature, before.calibrate) == (1.0, False)
    odds = np.log(raw / (1 - raw)) / np.log(fitted / (1 - fitted))
    np.testing.assert_allclose(odds, after.logit_temperature, rtol=1e-3)
    assert after.logit_temperature != 1.0
    if head == "multi_label":
        assert tuned.metrics["macro_f1"] >= plain.metrics["macro_f1"]
        above = zip(answer["probabilities"].items(), after.thresholds, strict=True)
        assert answer["labels"] == [label for (label, probability), least in above if probability > least]


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_what_a_long_document_says_at_its_end_is_learned_by_windows_alone(pooling: str, tmp_path: Path) -> None:
    def at_the_end(path: str) -> None:
        lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
        texts = ["the old road " * (n % 9) + line["text"] for n, line in enumerate(lines)]
        rows = [json.dumps({**line, "text": text}) for line, text in zip(lines, texts, strict=True)]
        Path(path).write_text("".join(f"{row}\n" for row in rows))

    task = tiny_tasks.classification(tmp_path)
    for path in task.files.values():
        at_the_end(path)
    bench = Bench(task, tmp_path)
    lengths = {"max_seq_length": 12, "epochs": 8.0, "batch_size": 16}
    cut = bench.run(**lengths)
    result = bench.run(**lengths, long_documents=pooling, micro_batch_size=5)
    assert result.metrics["accuracy"] > 0.95 > cut.metrics["accuracy"]
    again, predictions, *_ = evaluate_model(bench.model_folder, bench.task, "validation", 7, bench.job.cache)
    assert again["accuracy"] == result.metrics["accuracy"]
    examples = bench.task.examples("validation")
    answers = list(predict(bench.model_folder, [example.text for example in examples]))
    assert [answer["label"] for answer in answers] == [prediction.label for prediction in predictions]


@pytest.mark.core
def test_same_recipe_gives_bitwise_the_same_weights(tmp_path: Path) -> None:
    digests = []
    for attempt in ("first", "second", "other seed"):
        bench = Bench(tiny_tasks.classification(tmp_path / attempt), tmp_path / attempt)
        torch.rand(3)  # the global generator's state must not matter
        bench.run(epochs=1.0, dropout=0.1, seed=int(attempt == "other seed"))
        digests.append(digest_file(join(bench.model_folder, "model.safetensors")))
    assert digests[0] == digests[1] != digests[2]


def test_what_a_process_keeps_belongs_to_one_job(tmp_path: Path) -> None:
    first = Bench(tiny_tasks.classification(tmp_path), tmp_path)
    second = Bench(tiny_tasks.regression(tmp_path / "second"), tmp_path)
    assert "accuracy" in first.run(epochs=0.1).metrics
    assert "pearson" in second.run(epochs=0.1).metrics


def test_a_trial_learns_from_its_share_of_the_examples(tmp_path: Path) -> None:
    bench = Bench(tiny_tasks.classification(tmp_path), tmp_path)
    for fraction, most in ((1.0, 320), (0.25, 96), (0.05, 32)):
        assert bench.run(epochs=1.0, train_fraction=fraction).state == "COMPLETED"
        num_taken = len(replace(bench.job.task, train_fraction=fraction).examples("train"))
        assert num_taken <= most, "copies of a text are taken together"
        assert bench.num_trained_steps == -(-num_taken // 16)


def test_events_tell_epoch_loss_speed_and_scores(tmp_path: Path) -> None:
    bench = Bench(tiny_tasks.classification(tmp_path), tmp_path)
    bench.run(epochs=1.5, evaluations_per_epoch=2)
    assert [(event.split, event.step, event.epoch) for event in bench.events] == [
        ("train", 10, 0.5), ("validation", 10, 0.5),
        ("train", 20, 1.0), ("validation", 20, 1.0),
        ("train", 30, 1.5), ("validation", 30, 1.5),
    ]  # fmt: skip
    assert set(bench.events[0].values) == {"loss", "learning_rate", "examples_per_s"}
    assert bench.events[-1].values["accuracy"] > 0.5
    assert bench.scores[-1] is None, "the scheduler has nothing to decide at the end"


def test_a_trial_without_the_drivers_storage_is_refused_before_it_does_anything(tmp_path: Path) -> None:
    bench = Bench(tiny_tasks.classification(tmp_path), tmp_path)
    bench.job = replace(bench.job, mark=str(tmp_path / "not-mounted/.attempt-1"))
    with pytest.raises(ClusterError, match="not-mounted, which the driver has written"):
        bench.run(epochs=0.1)
    assert not Path(bench.job.run_folder).exists()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError("no space left on device\nand more"), "OSError: no space left on device"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."), "recipe.batch_size"),
    ],
)
def test_an_error_fails_the_trial_with_its_kind_or_what_to_lower(
    error: Exception, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.finetuning.trial.build_model", Mock(side_effect=error))
    result = Bench(tiny_tasks.classification(tmp_path), tmp_path).run(epochs=0.1)
    assert result.state == "FAILED"
    assert told in str(result.error)
    assert "and more" not in str(result.error)


def test_bf16_learns_as_well(tmp_path: Path) -> None:
    result = Bench(tiny_tasks.classification(tmp_path), tmp_path).run(precision="bf16", epochs=3.0)
    assert result.metrics["accuracy"] > 0.9


def test_trial_starts_from_a_pretrained_encoder(tmp_path: Path) -> None:
    before = tiny_tasks.save_pretrained(tmp_path / "pretrained").state_dict()
    bench = Bench(tiny_tasks.classification(tmp_path), tmp_path, {"pretrained": str(tmp_path / "pretrained")})
    result = bench.run(init_from="pretrained", learning_rate=1e-9, epochs=0.1)
    assert result.state == "COMPLETED", result.error
    after = load_fine_tuned(Path(bench.model_folder)).model.state_dict()
    encoder = [name for name in after if name.startswith("bert.")]
    assert len(encoder) > 20
    for name in encoder:
        torch.testing.assert_close(after[name], before[name], atol=1e-6, rtol=0)


def test_tokenizer_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    tiny_tasks.save_pretrained(tmp_path / "small", vocab_size=20)
    bench = Bench(tiny_tasks.classification(tmp_path), tmp_path, {"small": str(tmp_path / "small")})
    result = bench.run(init_from="small")
    assert result.state == "FAILED"
    assert "the model's vocab_size is 20" in str(result.error)


def test_folds_validate_each_training_example_once(tmp_path: Path) -> None:
    train = {"train": tiny_tasks.classification(tmp_path).files["train"]}
    task = tiny_tasks.classification(tmp_path).model_dump() | {"files": train, "split": {"folds": 3}}
    recipe = {**tiny_tasks.RECIPE.model_dump(), "tokenizer": "own", "epochs": 1.0}
    spec = SweepSpec.model_validate({"task": task, "recipe": recipe})
    bench = Bench(spec.task, tmp_path)
    results = [run_trial(bench.job, plan, lambda *told: None) for plan in plan_trials(spec, {}, 0)]
    assert [trial.state for trial in results] == ["COMPLETED"] * 3
    rows = [read_predictions(str(trial.predictions_path)) for trial in results]
    examples = load_task(tiny_tasks.classification(tmp_path)).examples("train")
    assert sorted(str(row["id"]) for fold in rows for row in fold) == sorted(str(example.id) for example in examples)
    for trial, fold in zip(results, rows, strict=True):
        counts = Counter(row["gold"] for row in fold)
        right = sum(row["correct"] for row in fold)
        assert trial.metrics["accuracy"] == pytest.approx(right / counts.total())
        assert trial.metrics["baseline.accuracy"] == pytest.approx(max(counts.values()) / counts.total())
