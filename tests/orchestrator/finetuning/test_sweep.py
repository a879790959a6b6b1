"""A sweep from spec to result: a grid with failing trials on a real Ray, resumed; what is refused beforehand.

Run alone: pytest tests/orchestrator/finetuning/test_sweep.py
"""

import os
import pickle
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import RunFailedError, SpecError, TaskDataError
from orchestrator.base.results import MetricEvent, SweepResult, TrialResult, TrialStart
from orchestrator.base.run_states import RunState
from orchestrator.finetuning import sweep as sweep_module
from orchestrator.finetuning.building import build_model
from orchestrator.finetuning.model_folder import save_model_folder
from orchestrator.finetuning.model_record import FineTuningRecord
from orchestrator.finetuning.search_space import TrialPlan, plan_trials
from orchestrator.finetuning.sweep import run_sweep
from orchestrator.finetuning.sweep_progress import SweepListener
from orchestrator.finetuning.trial import trial_folder
from orchestrator.finetuning.trial_journal import EndedTrial
from orchestrator.specs import SweepSpec
from orchestrator.storage import exists, join, names_in
from orchestrator.storage.attempts import refuse_without_mark
from orchestrator.tasks.loading import load_task
from tests.orchestrator.finetuning import tiny_tasks
from tests.orchestrator.finetuning.bench import Killed


@dataclass
class Notebook:
    """Writes down what a sweep tells its driver."""

    started: list[TrialStart] = field(default_factory=list)
    events: list[tuple[str, MetricEvent]] = field(default_factory=list)
    results: list[TrialResult] = field(default_factory=list)

    def states(self) -> list[str]:
        return [result.state for result in sorted(self.results, key=lambda result: result.number)]


class Laboratory:
    """One generated task with its tokenizer; runs sweeps over it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.task = tiny_tasks.classification(folder / "task")
        self.tokenizer = tiny_tasks.save_tokenizer(folder)

    def spec(self, **fields: object) -> SweepSpec:
        recipe = {**tiny_tasks.RECIPE.model_dump(), "tokenizer": self.tokenizer, "epochs": 2.0}
        recipe |= fields.pop("recipe", {})  # type: ignore[operator,arg-type]
        execution = {"cpus_per_trial": 1.0, "gpus_per_trial": 0, "max_concurrent_trials": 2}
        execution |= {"checkpoint_every_minutes": 0.0}
        return SweepSpec.model_validate({"task": self.task, "recipe": recipe, "execution": execution, **fields})

    def run(
        self,
        spec: SweepSpec,
        finished: Sequence[TrialResult] = (),
        run_folder: str | None = None,
        on_event: Callable[[], object] = lambda: None,
        kept_models: Sequence[str] = (),
    ) -> tuple[SweepResult, Notebook]:
        def note_events(key: str, events: Sequence[MetricEvent]) -> None:
            book.events.extend((key, event) for event in events)
            on_event()

        self.notebook = book = Notebook()

        result = run_sweep(
            spec,
            task=load_task(spec.task),
            run_folder=run_folder or str(self.run_folder()),
            storage=str(self.folder / "storage"),
            resolve_name=lambda field, name: str(self.folder / name),
            listener=SweepListener(
                on_trial_started=book.started.append,
                on_trial_events=note_events,
                on_trial_result=book.results.append,
            ),
            finished=[EndedTrial(result) for result in finished],
            kept_models=kept_models,
        )
        return result, book

    def run_folder(self) -> Path:
        return self.folder / "storage/runs/run-1"


@pytest.fixture
def laboratory(tmp_path: Path) -> Laboratory:
    return Laboratory(tmp_path)


def save_broken_model(folder: Path) -> None:
    """A pretrained model that passes every check before training: its weights are cut short."""
    tiny_tasks.save_pretrained(folder / "broken")
    weights = folder / "broken/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])


@pytest.mark.ray
@pytest.mark.core
def test_grid_sweep_survives_failing_trials_and_resumes(
    laboratory: Laboratory,
    ray_cluster: None,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "orchestrator")
    save_broken_model(laboratory.folder)
    spec = laboratory.spec(space={"init_from": ["random", "broken"], "learning_rate": [1e-3, 2e-3]})
    result, book = laboratory.run(spec)

    assert book.states() == ["COMPLETED", "COMPLETED", "FAILED", "FAILED"]
    assert [trial.number for trial in result.trials] == [0, 1, 2, 3]
    assert "model.safetensors has" in str(result.trials[2].error)
    completed = [trial for trial in result.trials if trial.state == "COMPLETED"]
    assert result.best.key == max(completed, key=lambda t: (t.metrics["accuracy"], -t.number)).key
    assert result.best.metrics["accuracy"] > 0.9 > result.best.metrics["baseline.accuracy"]
    assert result.test_metrics["accuracy"] > 0.8 > result.test_metrics["baseline.accuracy"]
    assert {start.key for start in book.started} == {trial.key for trial in result.trials}
    assert {key for key, _ in book.events} == {trial.key for trial in completed}
    assert any(line.startswith("4 of 4 trials ended: ") for line in caplog.messages)
    assert result.datasets[0].counts["num_train_examples"] == 320

    folder = laboratory.run_folder()
    assert result.best.model is not None
    assert result.best.model.num_parameters > 100_000
    assert [str(kept) for kept in folder.glob("trials/*/model")] == [result.best.model.folder], "the best weights stay"
    assert len(list(folder.glob("trials/*/predictions.jsonl"))) == 2
    assert not list(folder.glob("trials/*/checkpoints*")), "trials that have ended need none"
    assert len((folder / "predictions/test.jsonl").read_text().splitlines()) == 50
    assert not list(folder.glob("ray")), "nothing of Tune's is left behind"
    assert not list((laboratory.folder / "storage").glob("tmp"))
    printed = capfd.readouterr()
    assert printed.out + printed.err == "", "Tune says nothing on the terminal"

    again, book = laboratory.run(spec, result.trials[1:])
    assert [start.number for start in book.started] == [0], "only what is missing runs"
    assert again.best.metrics == result.best.metrics
    assert [trial.key for trial in again.trials] == [trial.key for trial in result.trials]
    assert again.datasets[0].reused

    last, book = laboratory.run(spec, again.trials)
    assert book.started == []
    assert last.best == again.best
    assert last.test_metrics == again.test_metrics


@pytest.mark.ray
@pytest.mark.core
def test_a_sweep_interrupted_while_trials_run_ends_as_in_one_piece(laboratory: Laboratory, ray_cluster: None) -> None:
    spec = laboratory.spec(recipe={"evaluations_per_epoch": 2}, space={"learning_rate": [1e-4, 2e-3, 1e-3]})
    whole, _ = laboratory.run(spec, run_folder=str(laboratory.folder / "whole"))

    def interrupt() -> None:
        if laboratory.notebook.results:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        laboratory.run(spec, on_event=interrupt)
    ended = laboratory.notebook.results
    result, book = laboratory.run(spec, ended)
    left = {trial.key for trial in whole.trials} - {trial.key for trial in ended}
    assert {start.key for start in book.started} == left
    elsewhere = {"seconds": 0.0, "predictions_path": None, "model": None}
    assert [replace(trial, **elsewhere) for trial in result.trials] == [
        replace(trial, **elsewhere) for trial in whole.trials
    ]
    assert result.best.model is not None
    assert whole.best.model is not None
    assert result.best.model.digest == whole.best.model.digest
    assert not list(laboratory.run_folder().glob("trials/*/checkpoints*"))


def test_sweep_without_a_completed_trial_fails_with_the_first_reason(laboratory: Laboratory) -> None:
    spec = laboratory.spec(seeds=[0, 1])
    reasons = ["DivergedError: the loss became nan", "another"]
    failed = [
        TrialResult(plan.key, plan.number, plan.parameters, "FAILED", plan.seed, error=reason)
        for plan, reason in zip(plan_trials(spec, {}, 0), reasons, strict=True)
    ]
    with pytest.raises(RunFailedError, match="DivergedError"):
        laboratory.run(spec, failed)


def test_broken_test_split_is_refused_before_any_trial(laboratory: Laboratory) -> None:
    path = laboratory.folder / "broken.tsv"
    path.write_text("text\tlabel\nno such label\tperhaps\n", encoding="utf-8")
    files = {**laboratory.task.files, "test": str(path)}
    spec = laboratory.spec().model_copy(update={"task": laboratory.task.model_copy(update={"files": files})})
    (plan,) = plan_trials(spec, {}, 0)
    completed = TrialResult(plan.key, 0, plan.parameters, "COMPLETED", plan.seed, metrics={"accuracy": 0.9})
    with pytest.raises(TaskDataError, match=r"broken\.tsv"):
        laboratory.run(spec, [completed])


def test_finished_sweep_whose_weights_are_gone_says_so(laboratory: Laboratory) -> None:
    spec = laboratory.spec()
    (plan,) = plan_trials(spec, {}, 0)
    completed = TrialResult(plan.key, 0, plan.parameters, "COMPLETED", plan.seed, metrics={"accuracy": 0.9})
    with pytest.raises(RunFailedError, match="trial, number 0"):
        laboratory.run(spec, [completed])


def test_the_best_model_is_scored_with_a_trials_resources(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = laboratory.spec()
    (plan,) = plan_trials(here, {}, 0)
    finished = [save_trial(laboratory, str(laboratory.run_folder()), plan, 0.7)]
    expected, _ = laboratory.run(here, finished)
    asked: list[float] = []

    def call_elsewhere(work: Any, num_cpus: float, num_gpus: float, problem: str) -> Any:
        asked.extend((num_cpus, num_gpus))
        return pickle.loads(pickle.dumps(work))("cpu")

    monkeypatch.setattr(sweep_module, "call_on_device", call_elsewhere)
    on_gpus = laboratory.spec(execution={"cpus_per_trial": 2.0, "gpus_per_trial": 0.5})
    found, _ = laboratory.run(on_gpus, finished)
    assert asked == [2.0, 0.5]
    assert found.test_metrics == expected.test_metrics


def test_trials_get_a_mark_that_is_on_the_storage_while_they_run(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks: list[str] = []

    def end_at_once(spec: SweepSpec, run_trial: Any, *arguments: object) -> None:
        marks.append(run_trial.args[0].mark)
        refuse_without_mark(marks[0])
        raise Killed

    monkeypatch.setattr(sweep_module, "run_with_tune", end_at_once)
    with pytest.raises(Killed):
        laboratory.run(laboratory.spec())
    assert not exists(marks[0])


def end_at_change(monkeypatch: pytest.MonkeyPatch, last: int) -> None:
    """Raise Killed in place of the `last` copy or deletion of an object in memory, and of every later one."""
    counted = count(1)
    for name in ("rm_file", "cp_file"):
        change = getattr(MemoryFileSystem, name)

        def counting(*arguments: Any, _change: Any = change, **options: Any) -> Any:
            if next(counted) >= last:
                raise Killed
            return _change(*arguments, **options)

        monkeypatch.setattr(MemoryFileSystem, name, counting)


def save_trial(laboratory: Laboratory, run_folder: str, plan: TrialPlan, score: float) -> TrialResult:
    """A trial that has completed, with its weights where it has left them."""
    task = load_task(laboratory.task)
    tokenizer = Tokenizer.load(laboratory.folder / "tokenizer")
    model = build_model(task, plan.recipe, None, tokenizer)
    record = FineTuningRecord(task, task.type.options_type.of_recipe(plan.recipe))
    save_model_folder(model, tokenizer, record, join(trial_folder(run_folder, plan.key), "model"))
    metrics = {"accuracy": score}
    return TrialResult(plan.key, plan.number, plan.parameters, RunState.COMPLETED, plan.seed, metrics=metrics)


@pytest.mark.heavy
@pytest.mark.core
def test_a_kill_at_any_change_of_an_object_store_leaves_the_best_model_whole(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = laboratory.spec(seeds=[0, 1])
    plans = plan_trials(spec, {}, 0)
    for last in count(1):
        run_folder = f"memory://{uuid4().hex}/run"
        saved = [save_trial(laboratory, run_folder, plan, 0.7 + plan.number / 10) for plan in plans]
        whole = names_in(join(trial_folder(run_folder, plans[1].key), "model"))
        was_killed = False
        with monkeypatch.context() as patch:
            end_at_change(patch, last)
            try:
                laboratory.run(spec, saved, run_folder=run_folder)
            except Killed:
                was_killed = True
        result, _ = laboratory.run(spec, saved, run_folder=run_folder)
        assert result.best.model is not None
        assert names_in(result.best.model.folder) == whole
        assert not exists(join(trial_folder(run_folder, plans[0].key), "model")), "the other trial's weights are gone"
        if not was_killed:
            break
    assert last > 3, "the other trial's weights were deleted file by file"


def test_a_registered_model_stays_whichever_trial_is_the_best_now(laboratory: Laboratory) -> None:
    spec, folder = laboratory.spec(seeds=[0, 1]), str(laboratory.run_folder())
    plans = plan_trials(spec, {}, 0)
    saved = [save_trial(laboratory, folder, plan, 0.7 + plan.number / 10) for plan in plans]
    registered = join(trial_folder(folder, plans[0].key), "model")
    result, _ = laboratory.run(spec, saved, kept_models=[registered])
    assert result.best.key == plans[1].key
    assert exists(registered)


def test_model_that_reads_too_little_is_refused(laboratory: Laboratory) -> None:
    tiny_tasks.save_pretrained(laboratory.folder / "short", max_position_embeddings=16)
    with pytest.raises(SpecError, match=r"max_seq_length 32.*short"):
        laboratory.run(laboratory.spec(space={"init_from": ["random", "short"]}))


def test_task_without_training_data_is_refused(laboratory: Laboratory) -> None:
    files = {"validation": laboratory.task.files["validation"]}
    task = laboratory.task.model_copy(update={"files": files, "labels": ("no", "yes")})
    with pytest.raises(TaskDataError, match=r"task\.files\.train"):
        laboratory.run(laboratory.spec().model_copy(update={"task": task}))
