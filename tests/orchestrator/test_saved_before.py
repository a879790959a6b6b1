"""Files of an earlier version: a registry of revision 0001 and model folders still open, and say what they said.

The files, and how they were made: tests/saved_before/README.md

pytest tests/orchestrator/test_saved_before.py
"""

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

from bert_core import (
    BertConfig,
    BertForMultipleChoice,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSentenceEmbedding,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from bert_core.heads.pretraining import PretrainingLabels
from orchestrator import Registry
from orchestrator.cli.entry import cli
from orchestrator.inference import embed, predict
from orchestrator.inference.pretraining_heads import fill_mask, next_sentence

SAVED = Path(__file__).parents[1] / "saved_before"
MODELS = SAVED / "models"
OUTPUTS: dict[str, Any] = json.loads((SAVED / "outputs.json").read_text(encoding="utf-8"))
TOLERANCE = 1e-5
"""Ten times what the rounding of one processor's instructions and another's differs by."""

PIPELINE, TOKENIZER, CORPUS, PRETRAINING, SWEEP = (
    "0a1000000001",
    "1b2000000002",
    "2c3000000003",
    "3d4000000004",
    "4e5000000005",
)
EVALUATION, DISTILLATION, FAILED, STOPPED, SILENT = (
    "5f6000000006",
    "6a7000000007",
    "7b8000000008",
    "8c9000000009",
    "9da00000000a",
)
NEWEST_FIRST = [
    SILENT, STOPPED, FAILED, DISTILLATION, EVALUATION, SWEEP, PRETRAINING, CORPUS, TOKENIZER, PIPELINE
]  # fmt: skip
BEST_TRIAL = "e7a32389cf16"

HEADS: dict[str, type[Any]] = {
    "pretrained": BertForPreTraining,
    "classification": BertForSequenceClassification,
    "multi_label": BertForSequenceClassification,
    "regression": BertForSequenceClassification,
    "multiple_choice": BertForMultipleChoice,
    "ner": BertForTokenClassification,
    "qa": BertForQuestionAnswering,
    "embedding": BertForSentenceEmbedding,
}
"""The class of a folder by the beginning of its name."""


@pytest.fixture
def location(tmp_path: Path) -> str:
    """A copy of the registry: opening one may write."""
    return str(shutil.copy(SAVED / "registry_0001.sqlite", tmp_path))


@pytest.fixture
def registry(location: str) -> Iterator[Registry]:
    """The copy, at the newest revision."""
    with Registry(location) as opened:
        opened.upgrade()
        yield opened


def test_runs_of_a_saved_registry_are_listed_with_their_states(registry: Registry) -> None:
    frame = registry.runs(trials=False)
    assert list(frame.id) == NEWEST_FIRST
    states = frame.set_index("id").state
    assert states[[SILENT, STOPPED, FAILED, SWEEP]].tolist() == ["LOST", "STOPPED", "FAILED", "COMPLETED"]
    assert len(registry.runs()) == len(NEWEST_FIRST) + 8


def test_a_saved_run_has_its_attempts_checkpoints_and_errors(registry: Registry) -> None:
    run = registry.run("3d4")
    assert (run.id, run.name, run.kind, run.seed, run.attempt) == (PRETRAINING, "life/pretraining", "pretrain", 3, 2)
    assert (run.host, run.model_folder) == ("node-1", f"/laboratory/storage/runs/{PRETRAINING}/model")
    assert [attempt.state for attempt in registry.attempts(PRETRAINING)] == ["LOST", "COMPLETED"]
    assert [attempt.job_id for attempt in registry.attempts(PRETRAINING)] == [None, None]
    assert [attempt.code for attempt in registry.attempts(PRETRAINING)] == [None, None]
    assert run.code_version is None
    checkpoints = registry.checkpoints.of_run(PRETRAINING)
    assert [(some.step, some.num_bytes) for some in checkpoints] == [
        (50, 1_000_050),
        (100, 1_000_100),
        (200, 1_000_200),
    ]
    assert registry.run(FAILED).error == "data/text.txt: line 3 is not text"
    assert registry.run(STOPPED).error == "stopped on request"


def test_saved_measurements_are_read_with_their_history(registry: Registry) -> None:
    latest = registry.metrics.latest(PRETRAINING)
    assert math.isnan(latest.pop("nsp_accuracy"))
    assert latest == {"mlm_loss": 3.5, "perplexity": 33.1, "train.mlm_loss": 3.25, "train.tokens_per_s": 51_000.0}
    history = registry.metrics.history(PRETRAINING, "train.mlm_loss")
    assert list(zip(history.step, history.epoch, history.value, strict=True)) == [
        (25, 0.25, 7.5),
        (50, 0.5, 6.25),
        (75, 0.75, 5.5),
        (100, 1.0, 4.5),
        (200, 2.0, 3.25),
    ]
    assert registry.metrics.latest(DISTILLATION) == {
        "accuracy": 0.79,
        "agreement": 0.9,
        "baseline.accuracy": 0.5,
        "teacher.accuracy": 0.86,
        "test.accuracy": 0.78,
    }
    assert registry.metrics.latest(EVALUATION) == {"accuracy": 0.86, "num_examples": 872.0}


def test_saved_data_is_found_through_the_runs_that_used_it(registry: Registry) -> None:
    (corpus,) = registry.datasets.frame(PRETRAINING).to_dict("records")
    assert (corpus["name"], corpus["kind"], corpus["path"]) == ("text.txt", "corpus", "/laboratory/storage/corpora/c")
    assert corpus["counts"]["num_tokens"] == 56_789
    assert corpus["files"] == [
        {"path": "data/text.txt", "num_bytes": 2_000_000, "num_documents": 1200, "num_bad_records": 1}
    ]
    assert list(registry.datasets.frame(CORPUS).fingerprint) == list(registry.datasets.frame(PRETRAINING).fingerprint)
    assert list(registry.datasets.frame(TOKENIZER).kind) == ["tokenizer"]
    assert list(registry.datasets.frame(SWEEP).name) == list(registry.datasets.frame(DISTILLATION).name) == ["sst2"]


def test_saved_models_are_found_by_name_and_version(registry: Registry) -> None:
    assert (registry.models.get("chosen").version, registry.models.get("chosen").run_id) == (2, DISTILLATION)
    first = registry.models.get("chosen@1")
    assert (first.run_id, first.head, first.num_parameters) == (SWEEP, "classification", 4_386_178)
    assert first.digest == registry.models.get("life/sst2").digest == "8" * 64
    assert {model.label for model in registry.models.of_run(DISTILLATION)} == {"small sst2@1", "chosen@2"}
    assert len(registry.models.frame()) == 5


def test_saved_trials_have_their_recipes_and_ends(registry: Registry) -> None:
    trials = registry.trials.frame(SWEEP)
    assert list(trials.number) == list(range(8))
    assert list(trials.state) == ["COMPLETED"] * 6 + ["FAILED", "PRUNED"]
    assert list(trials["metrics.accuracy"].dropna()) == [0.80, 0.82, 0.84, 0.86, 0.61, 0.63, 0.55]
    assert trials["params.init_from"].unique().tolist() == ["life/pretraining@1", "random"]
    assert "lower learning_rate" in trials.error[6]
    assert trials.id[3] == BEST_TRIAL
    assert registry.parameters(BEST_TRIAL)["recipe.learning_rate"] == 3e-4


def test_saved_trials_have_the_host_the_tags_and_the_data_of_their_sweep(registry: Registry) -> None:
    sweep = registry.run(SWEEP)
    assert registry.run(BEST_TRIAL).host == sweep.host
    assert registry.tags(BEST_TRIAL) == [tag for tag in registry.tags(SWEEP) if ":" not in tag]
    assert registry.datasets.table(BEST_TRIAL).records == registry.datasets.table(SWEEP).records


def test_a_query_filters_and_sorts_saved_runs(registry: Registry) -> None:
    query = "metrics.accuracy >= 0.82 and params.learning_rate > 2e-4 and kind = 'trial'"
    assert list(registry.runs(query, sort="-metrics.accuracy")["metrics.accuracy"]) == [0.86, 0.84]
    assert list(registry.runs("metrics.test.accuracy > 0.8", sort="id")["id"]) == [SWEEP, BEST_TRIAL]
    assert list(registry.runs(f"tag = 'pipeline:{PIPELINE}'", sort="created_at").id) == [
        TOKENIZER, CORPUS, PRETRAINING, SWEEP, EVALUATION
    ]  # fmt: skip
    assert list(registry.runs("tag = 'für später' or state = 'lost'").id) == [SILENT, DISTILLATION]


def test_the_leaderboard_ranks_saved_trials(registry: Registry) -> None:
    board = registry.leaderboard("sst2")
    assert list(board["mean"].dropna()) == pytest.approx([0.85, 0.81, 0.62, 0.86, 0.79])
    assert list(board.n) == [2, 2, 2, 1, 1, 0]
    assert list(board.kind) == ["sweep", "sweep", "sweep", "evaluate", "distill", "sweep"]
    assert list(board.recipe[3:5]) == ["model=life/sst2@1", "num_hidden_layers=1 teacher=life/sst2"]
    assert board.notes[5] == "no run completed with a score; of 2 runs 1 failed, 1 pruned"
    best = board.iloc[0]
    assert (best.run, best.model, best.init_from) == (BEST_TRIAL, "chosen@1", "life/pretraining@1")
    assert (best.best, best.baseline, best.test) == (0.86, 0.5, 0.85)


def test_specs_of_saved_runs_are_whole(registry: Registry) -> None:
    specs = {run_id: registry.run(run_id).spec for run_id in NEWEST_FIRST}
    assert all(spec["kind"] == registry.run(run_id).kind for run_id, spec in specs.items())
    assert set(specs[PIPELINE]["stages"]) == {"tokenizer", "corpus", "pretraining", "sst2", "scores"}


def test_a_saved_registry_is_written_on(registry: Registry) -> None:
    registry.tag(DISTILLATION, "again")
    assert registry.tags(DISTILLATION) == ["again", "für später", "keep"]
    assert registry.lifecycle.start_attempt(STOPPED) == 2
    assert registry.run(STOPPED).state == "RUNNING"


def test_the_command_line_lists_the_runs_of_a_saved_registry(registry: Registry, location: str, tmp_path: Path) -> None:
    arguments = ["--home", str(tmp_path), "--registry", location]
    listed = CliRunner().invoke(cli, [*arguments, "runs", "list", "-f", "json"], catch_exceptions=False)
    assert [row["id"] for row in json.loads(listed.stdout)] == NEWEST_FIRST
    shown = CliRunner().invoke(cli, [*arguments, "models", "list", "-f", "json"], catch_exceptions=False)
    assert {row["model"] for row in json.loads(shown.stdout)} >= {"chosen@1", "chosen@2", "life/pretraining@1"}


NEW_NAMES = {
    "answer_dropout": "qa_dropout",
    "choices_by_labels": "choice_projection",
    "drops_before_summary": "dropout_before_pooler",
    "extra_features": "num_tabular_features",
    "head_input": "layer_pooling",
    "num_recurrent_layers": "num_lstm_layers",
    "recurrent_size": "lstm_hidden_size",
    "tokens_drop_as_hidden": "token_dropout_from_hidden",
    "zeroes_padding": "zero_padding",
}
"""Fields of config.json that are called otherwise by now."""
NEW_VALUES = {("head_input", "mixture"): "scalar_mix"}


def folders_with(key: str) -> list[str]:
    """The model folders that have outputs of this sort."""
    return [name for name, outputs in OUTPUTS.items() if key in outputs]


def tensors(inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value) for name, value in inputs.items()}


def assert_close(found: Any, saved: Any) -> None:
    """Values of the same shape and kind, numbers but for rounding."""
    if isinstance(saved, dict):
        assert found.keys() == saved.keys()
        for key, value in saved.items():
            assert_close(found[key], value)
    elif isinstance(saved, list):
        assert len(found) == len(saved)
        for one, other in zip(found, saved, strict=True):
            assert_close(one, other)
    elif isinstance(saved, float):
        assert found == pytest.approx(saved, rel=TOLERANCE, abs=TOLERANCE)
    else:
        assert found == saved


def test_every_saved_folder_has_outputs() -> None:
    assert {path.name for path in MODELS.iterdir()} == OUTPUTS.keys()


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_saved_folder_is_read_whole_and_saved_as_it_was(name: str, tmp_path: Path) -> None:
    folder = MODELS / name
    values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    head = next(head for beginning, head in HEADS.items() if name.removeprefix("own_").startswith(beginning))
    model = head.from_pretrained(folder)
    assert not model.load_report.dropped
    assert not model.load_report.initialized
    assert BertConfig.from_pretrained(folder).model_type == values["model_type"]
    model.save_pretrained(tmp_path)
    again = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    expected = {NEW_NAMES.get(key, key): NEW_VALUES.get((key, str(value)), value) for key, value in values.items()}
    assert {key: again.get(key) for key in expected} == expected  # a later version may know more choices
    before, after = load_file(folder / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize("name", folders_with("predict"))
def test_a_saved_model_predicts_what_it_did(name: str) -> None:
    saved = OUTPUTS[name]["predict"]
    assert_close(list(predict(str(MODELS / name), saved["lines"])), saved["answers"])


@pytest.mark.parametrize("name", folders_with("embed"))
def test_a_saved_model_embeds_as_it_did(name: str) -> None:
    saved = OUTPUTS[name]["embed"]
    found = [[values, vector.tolist()] for values, vector in embed(str(MODELS / name), saved["lines"])]
    assert_close(found, saved["rows"])


@pytest.mark.parametrize("name", folders_with("token_logits"))
def test_a_saved_tagger_has_the_logits_that_it_had(name: str) -> None:
    saved = OUTPUTS[name]["token_logits"]
    with torch.inference_mode():
        output = BertForTokenClassification.from_pretrained(MODELS / name)(**tensors(saved["inputs"]))
    assert_close(output.logits.tolist(), saved["logits"])


@pytest.mark.parametrize("name", folders_with("prediction_logits"))
def test_a_saved_pretrained_model_has_the_logits_that_it_had(name: str) -> None:
    saved = OUTPUTS[name]
    with torch.inference_mode():
        output = BertForPreTraining.from_pretrained(MODELS / name)(**tensors(saved["inputs"]))
    assert_close(output.prediction_logits.tolist(), saved["prediction_logits"])
    relationship = output.seq_relationship_logits
    assert_close(None if relationship is None else relationship.tolist(), saved["seq_relationship_logits"])


@pytest.mark.parametrize("name", folders_with("fill_mask"))
def test_a_saved_pretrained_model_guesses_what_it_did(name: str) -> None:
    saved = OUTPUTS[name]["fill_mask"]
    guesses = fill_mask(str(MODELS / name), saved["text"])
    assert_close([[guess.token, guess.probability, guess.text] for guess in guesses], saved["guesses"])


@pytest.mark.parametrize("name", folders_with("next_sentence"))
def test_a_saved_pretrained_model_judges_pairs_as_it_did(name: str) -> None:
    saved = OUTPUTS[name]["next_sentence"]
    assert_close(next_sentence(str(MODELS / name), *saved["texts"]).probability, saved["probability"])


def test_a_saved_span_boundary_head_has_the_loss_that_it_had() -> None:
    saved = OUTPUTS["pretrained_roberta_spans"]
    model = BertForPreTraining.from_pretrained(MODELS / "pretrained_roberta_spans")
    inputs = tensors(saved["inputs"])
    packed = model.bert.pack(inputs["input_ids"], inputs["attention_mask"])
    with torch.inference_mode():
        labels = PretrainingLabels(torch.tensor([1, 2, 7]), torch.tensor([7, 9, 12]), torch.zeros(0))
        sums = model.packed_loss_sums(packed, labels, ["span_boundary"])["span_boundary"]
    assert_close(float(sums.loss), saved["span_boundary_loss"])
