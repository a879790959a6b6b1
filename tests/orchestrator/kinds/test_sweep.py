"""Sweeps as a kind of run: what they refuse, plan, take of the cluster and record.

pytest tests/orchestrator/kinds/test_sweep.py
"""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from bert_core.checkpoints.sentence_transformers import DenseConfig, SentenceEmbeddingConfig, write_sentence_embedding
from bert_core.config import BertConfig
from orchestrator.base.errors import InputError, SpecError
from orchestrator.base.results import MetricEvent, SweepResult, TrialEvents, TrialStart
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.finetuning import sweep as sweep_module
from orchestrator.kinds import resolved_inputs
from orchestrator.kinds.estimates import FEW_STEPS, short_training_advice
from orchestrator.kinds.sweep import SweepKind
from orchestrator.kinds.sweep_estimates import first_recipe
from orchestrator.registry.recorder import Recorder
from orchestrator.specs import SweepSpec
from orchestrator.training.batch_order import Schedule
from tests.orchestrator.kinds.contexts import Notebook, context_of
from tests.orchestrator.kinds.samples import SWEEP_RESULT, TRIALS, complete
from tests.orchestrator.small_specs import SWEEP, check, plan


def test_a_range_that_its_field_refuses(settings: Settings) -> None:
    space = {"batch_size": {"uniform": [8, 32]}}
    with pytest.raises(SpecError, match=r"space\.batch_size"):
        check(settings, task={**SWEEP, "space": space, "search": "random", "trials": 2})


def test_an_embedding_has_the_numbers_and_mentions_the_prompts_of_its_start(settings: Settings) -> None:
    Path("pairs.csv").write_text("a,b\nanna,sat\n")
    files = {"train": "pairs.csv", "validation": "pairs.csv"}
    pairs = {"id": "own", "head": "embedding", "objective": "in_batch_negatives", "files": files}
    task = {**SWEEP, "task": {**pairs, "text_columns": ["a", "b"]}}
    with pytest.raises(SpecError, match=r"recipe\.matryoshka_dims 500: .* tiny"):
        check(settings, task={**task, "recipe": {"tokenizer": "words", "matryoshka_dims": [500, 64]}})
    width = BertConfig.from_pretrained("short").hidden_size
    prompted = SentenceEmbeddingConfig(prompts={"document": "text: "}, dense=(DenseConfig(width, 8),))
    write_sentence_embedding(Path("short"), prompted, width)
    with pytest.raises(SpecError, match=r"recipe\.document_prompt"):
        check(settings, task={**task, "recipe": {"init_from": "short", "max_seq_length": 16}})
    check(settings, task={**task, "recipe": {"init_from": "short", "max_seq_length": 16, "document_prompt": ""}})
    short = {"init_from": "short", "max_seq_length": 16, "document_prompt": "", "matryoshka_dims": [9, 8]}
    with pytest.raises(SpecError, match=r"recipe\.matryoshka_dims 9: a vector of init_from short has 8 numbers"):
        check(settings, task={**task, "recipe": short})


LABELS: dict[str, tuple[str, str, str, str]] = {
    "regression": ("text,label\na,1.5\nb,0.5\n", "text,label\na b,1.5\nb a,1.5\n", "dev.csv", "1.5"),
    "ner": ("anna B-PER\n\nsat O\n", "sat O\n\nthe O\n", "dev.conll", "every tag is O"),
}
"""The training file, the validation file with labels that measure nothing, its name, and what is said."""


@pytest.mark.parametrize("head", LABELS)
def test_labels_that_measure_nothing_are_told_before_anything_starts(
    settings: Settings, caplog: pytest.LogCaptureFixture, head: str
) -> None:
    *texts, blamed, words = LABELS[head]
    files = {split: f"{name}{Path(blamed).suffix}" for split, name in (("train", "train"), ("validation", "dev"))}
    for file, text in zip(files.values(), texts, strict=True):
        Path(file).write_text(text)
    columns = {} if head == "ner" else {"text_columns": ["text"]}
    check(settings, task={**SWEEP, "task": {"id": "own", "head": head, "files": files, **columns}})
    (told,) = [message for message in caplog.messages if words in message]
    assert blamed in told


def test_a_sweep_carries_its_best_trials_scores(recorder: Recorder) -> None:
    run = recorder.start({**SWEEP, "name": "sst2 sweep", "task": {"id": "sst2"}}, "f")
    trial = recorder.registry.trials.record(run.id, [TrialStart("k1", 1, {"learning_rate": 2e-5}, seed=0)])[0]
    recorder.record_events(trial, [MetricEvent(step, "validation", {"accuracy": step / 100}) for step in (20, 99)])
    assert recorder.registry.trials.record(run.id, [TRIALS[1]]) == [trial]
    complete(recorder, run.id, "sweep")
    registry = recorder.registry
    scores = {"accuracy": 0.9, "baseline.accuracy": 0.5, "test.accuracy": 0.85}
    assert registry.metrics.latest(run.id) == registry.metrics.latest(trial) == scores
    sweep = registry.run(run.id)
    assert (sweep.state, sweep.metric) == ("COMPLETED", "accuracy")
    assert (sweep.model_folder, sweep.predictions_path) == ("storage/digest1", "predictions/1")
    assert registry.models.get("sst2 sweep").run_id == run.id
    assert registry.trials.table(run.id).values("id")[1] == trial
    assert list(registry.leaderboard("sst2").frame()["test"].dropna()) == [0.85]
    assert registry.datasets.table(run.id).values("name") == ["wiki"]


def test_a_plan_of_a_sweep(settings: Settings) -> None:
    space = {"batch_size": [1, 2], "learning_rate": [1e-4, 2e-4, 3e-4]}
    execution = {"cpus_per_trial": 0.5, "gpus_per_trial": 0.25, "max_concurrent_trials": 2}
    recipe = {"tokenizer": "words", "epochs": 1, "precision": "fp32"}
    rows = plan(settings, {**SWEEP, "space": space, "seeds": [0, 1], "recipe": recipe, "execution": execution})
    parameters = rows.pop("parameters")
    assert parameters.endswith(", and a small head")
    assert "[UNK]" in rows.pop("not read")
    assert rows == {
        "kind": "sweep",
        "task": "own (classification), ranked by accuracy",
        "positive class": "b: f1 is its score, as it is the second label (task.labels says their order)",
        "data": "2 training examples; splits: train, validation",
        "trials": "12 (6 points × 2 seeds)",
        "steps of a trial": "1 to 2",
        "note": "the shortest trials have 1 step only, with recipe.batch_size 2 and 2 training examples; lower it, or "
        "raise recipe.epochs",
        "memory of a trial": "7.7 MB and activations",
        "trials at a time": "at most 2",
        "disk": "30.8 MB of checkpoints, 5.8 MB of models",
        "resources": "0.5 CPU, 0.25 GPU",
    }


@pytest.mark.parametrize("starts", [["short"], ["random", "short"], ["short | short"]])
def test_random_weights_are_not_varied_where_trials_start_from_a_model(settings: Settings, starts: list[str]) -> None:
    space = {"size": ["tiny", "mini"]}
    recipe = {"tokenizer": "words", "max_seq_length": 40}
    check(settings, fine={**SWEEP, "recipe": recipe, "space": space})
    with pytest.raises(SpecError, match=r"space\.size .* short"):
        check(settings, fine={**SWEEP, "recipe": recipe, "space": {**space, "init_from": starts}, "seeds": [0, 1]})


def test_a_plan_tells_fields_of_random_weights_that_a_model_does_not_use(settings: Settings) -> None:
    recipe = {"tokenizer": "words", "initializer_range": 0.06, "max_seq_length": 40}
    asked = {**SWEEP, "recipe": recipe, "space": {"init_from": ["short", "random"]}}
    assert "network" not in plan(settings, asked)
    told = plan(settings, {**asked, "space": {"init_from": ["short"]}})["network"]
    assert told == "that of init_from; not used: recipe.tokenizer, recipe.initializer_range"


SPEC = SweepSpec.model_validate({**SWEEP, "seeds": [0, 1]})


def run_until_interrupted(settings: Settings, monkeypatch: pytest.MonkeyPatch, book: Notebook) -> None:
    """Run a sweep of which two trials end before somebody interrupts it."""

    def run_sweep(spec: SweepSpec, **arguments: Any) -> SweepResult:
        for trial in TRIALS:
            arguments["listener"].on_trial_result(trial)
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep_module, "run_sweep", run_sweep)
    with pytest.raises(KeyboardInterrupt):
        SweepKind().run(SPEC, resolved_inputs(SPEC, settings), context_of(settings, book))


def finished_of_next_attempt(settings: Settings, monkeypatch: pytest.MonkeyPatch, book: Notebook, **given: Any) -> Any:
    """Run the sweep once more; returns the results of trials that need not run again."""
    asked: dict[str, Any] = {}

    def run_sweep(spec: SweepSpec, **arguments: Any) -> SweepResult:
        asked.update(arguments)
        return SWEEP_RESULT

    monkeypatch.setattr(sweep_module, "run_sweep", run_sweep)
    SweepKind().run(SPEC, resolved_inputs(SPEC, settings), context_of(settings, book, **given))
    return [trial.result for trial in asked["finished"]]


def test_a_sweep_goes_on_with_the_trials_that_have_ended(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    run_until_interrupted(settings, monkeypatch, Notebook())
    book = Notebook()
    finished = finished_of_next_attempt(settings, monkeypatch, book)
    assert finished == TRIALS
    (recorded,) = [changes for name, (_, changes) in book.recorded if name == "trials.record"]
    assert [change for change in recorded if not isinstance(change, TrialEvents)] == TRIALS, "it may have been away"

    book = Notebook(known={TRIALS[0].key: TRIALS[0].state, TRIALS[1].key: RunState.STOPPED})
    finished_of_next_attempt(settings, monkeypatch, book)
    (recorded,) = [changes for name, (_, changes) in book.recorded if name == "trials.record"]
    assert recorded == [TRIALS[1], TrialEvents(TRIALS[1].key, ())], "what the registry knows is not written again"


def test_a_sweep_does_not_go_on_with_other_data(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run_until_interrupted(settings, monkeypatch, Notebook())
    before = Path("task.csv").read_text()
    Path("task.csv").write_text(before + "a cow,b\n")
    with pytest.raises(InputError, match=r"r1 cannot go on") as refused:
        finished_of_next_attempt(settings, monkeypatch, Notebook())
    lines = re.findall(r"(?m)^  task\.files\.(\w+): 2 examples, \w{12}… → 3 examples, \w{12}…$", str(refused.value))
    assert lines == ["train", "validation"]
    assert str(refused.value).count("→") == 2

    book = Notebook()
    left = Path(context_of(settings, book).run_folder, "trials/k0/predictions.jsonl")
    left.parent.mkdir(parents=True)
    left.touch()
    assert finished_of_next_attempt(settings, monkeypatch, book, allow_drift=True) == []
    assert [name for name, _ in book.recorded] == ["annotations.tag", "trials.drop", "trials.set_data"]
    assert not left.exists()
    assert any("2 examples" in text and "3 examples" in text for text in caplog.messages)

    Path("task.csv").write_text(before)
    with pytest.raises(InputError, match=r"3 examples, .* → 2 examples"):
        finished_of_next_attempt(settings, monkeypatch, Notebook())


def test_a_scheduler_refuses_fields_that_it_does_not_read() -> None:
    for name in ("reduction_factor", "grace_evaluations"):
        with pytest.raises(ValidationError, match=name):
            SweepSpec.model_validate({**SWEEP, name: 4})
        assert SweepSpec.model_validate({**SWEEP, "scheduler": "asha", name: 4}).fingerprint() != SPEC.fingerprint()


def test_trials_take_a_gpu_where_there_is_one() -> None:
    kind = SweepKind()
    asked = kind.resources(SPEC)
    assert asked.on({"CPU": 4.0}).total == {"CPU": 1.0}
    assert asked.on({"CPU": 4.0, "GPU": 1.0}).total == {"CPU": 1.0, "GPU": 1.0}
    on_cpus = SweepSpec.model_validate({**SWEEP, "execution": {"gpus_per_trial": 0}})
    assert kind.resources(on_cpus).on({"CPU": 4.0, "GPU": 1.0}).total == {"CPU": 1.0}


def test_a_plan_says_whose_f1_two_classes_have_by_the_order_of_labels_and_of_three_none(settings: Settings) -> None:
    for labels in (["a", "b"], ["b", "a"]):
        lines = plan(settings, {**SWEEP, "task": {**SWEEP["task"], "labels": labels}})
        assert lines["positive class"].startswith(f"{labels[1]}: f1 is its score")
    assert "positive class" not in plan(settings, {**SWEEP, "task": {**SWEEP["task"], "labels": ["a", "b", "c"]}})


@pytest.mark.parametrize(
    ("num_examples", "batch_size", "blamed"),
    [(220, 1000, "recipe.batch_size 1,000"), (220, 32, "recipe.epochs"), (FEW_STEPS - 1, 1, "recipe.epochs")],
)
def test_a_training_of_few_steps_names_the_field_to_change(num_examples: int, batch_size: int, blamed: str) -> None:
    advice = short_training_advice(Schedule(num_examples, batch_size, epochs=1.0, evaluations_per_epoch=1))
    assert blamed in str(advice)
    assert short_training_advice(Schedule(FEW_STEPS, 1, epochs=1.0, evaluations_per_epoch=1)) is None


def test_a_plan_times_the_trial_with_the_first_value_of_a_list_and_the_smallest_of_a_range() -> None:
    space = {"dropout": {"uniform": [0.0, 0.3]}, "learning_rate": [1e-3, 1e-4]}
    spec = SweepSpec.model_validate({**SWEEP, "space": space, "search": "random", "trials": 4})
    recipe = first_recipe(spec)
    assert (recipe.dropout, recipe.learning_rate) == (0.0, 1e-3)
