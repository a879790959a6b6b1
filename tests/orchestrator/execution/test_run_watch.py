"""Watching a run of another process: the view that is made of what the registry has, of each kind of run.

Alone: .venv/bin/pytest tests/orchestrator/execution/test_run_watch.py
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from sqlalchemy import delete, update

from orchestrator.errors import RegistryUnavailableError
from orchestrator.execution import recorded_views
from orchestrator.execution.run_watch import RunWatch
from orchestrator.progress import Progress
from orchestrator.progress.run_views import RunView, StageView, SweepView, TrainingView, TrialView
from orchestrator.registry.attempt_tables import AttemptRow
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.registry.records import RunRecord
from orchestrator.registry.tables import MetricPointRow, RunRow
from orchestrator.results import MetricEvent, TrialEvents, TrialResult, TrialStart
from orchestrator.run_states import RunState
from orchestrator.specs import DistillSpec, PretrainSpec, Spec, SweepSpec
from orchestrator.specs.loading import spec_values
from orchestrator.specs.probe import ProbeSpec

CORPUS = {"files": ["text.txt"]}
TASK = {"id": "own", "head": "classification"}
PRETRAIN = PretrainSpec.model_validate({"corpus": CORPUS, "tokenizer": "words", "steps": 1000})
SWEEP = SweepSpec.model_validate(
    {
        "task": TASK,
        "recipe": {"tokenizer": "words", "epochs": 4.0},
        "space": {"learning_rate": [1e-3, 1e-4], "dropout": [0.1]},
        "seeds": [3],
    }
)


@dataclass
class Screen:
    """What a terminal was told to show, in order."""

    shown: list[RunView | str | StageView | None] = field(default_factory=list)
    began_at: float | None = None
    """Monotonic time at which what is shown began, as it was last told."""

    def status(self, line: str) -> None:
        self.shown.append(line)

    def show(self, view: RunView, began_at: float | None = None) -> None:
        self.shown.append(view)
        self.began_at = began_at

    def at_stage(self, stage: StageView | None) -> None:
        self.shown.append(stage)

    def clear(self) -> None:
        """Do nothing: this screen keeps everything."""


def start(recorder: Recorder, spec: Spec, tags: tuple[str, ...] = (), **values: Any) -> RunRecord:
    return recorder.start(spec_values(spec) | {"tags": [*tags]} | values, "f" * 64, metric="accuracy")


def look(recorder: Recorder, run: RunRecord, screen: Screen, watch: RunWatch | None = None) -> RunView | str | None:
    watch = watch or RunWatch(recorder.registry, cast(Progress, screen))
    watch.look(recorder.registry.run(run.id), recorder.registry.stages(run.id))
    return screen.shown[-1]  # type: ignore[return-value]


def record_training(recorder: Recorder, run: RunRecord, step: int, **values: float) -> None:
    measured: Mapping[str, float] = {"mlm_loss": 6.43, "tokens_per_s": 1500.0, **values}
    recorder.record_events(run.id, [MetricEvent(step, "train", measured)])


def test_a_pretraining_has_its_step_losses_speed_and_held_out_scores(recorder: Recorder) -> None:
    run, screen = start(recorder, PRETRAIN, name="small"), Screen()
    watch = RunWatch(recorder.registry, cast(Progress, screen))
    assert look(recorder, run, screen, watch) == "small  RUNNING"
    record_training(recorder, run, 40)
    recorder.record_events(run.id, [MetricEvent(30, "validation", {"mlm_loss": 6.5, "mlm_accuracy": 0.15})])
    record_training(recorder, run, 50, mlm_loss=6.4)
    held_out = "held out 30: mlm 6.500 (15.0 %)"
    assert look(recorder, run, screen, watch) == TrainingView(50, 1000, ["mlm 6.400", "1,500 tokens/s"], None, held_out)


def test_the_time_left_is_there_from_the_first_look_on(recorder: Recorder) -> None:
    """By the times at which measurements were recorded: 100 steps in 20 s, 800 are left."""
    run = start(recorder, PRETRAIN)
    record_training(recorder, run, 100)
    record_training(recorder, run, 200)
    later = (
        update(MetricPointRow)
        .where(MetricPointRow.step == 200)
        .values(recorded_at=datetime.now(UTC) + timedelta(seconds=20))
    )
    with recorder.registry._database.session(writing=True) as session:
        session.execute(later)
    view = look(recorder, run, Screen())
    assert isinstance(view, TrainingView)
    assert view.left_s == pytest.approx(160, abs=5)


def test_a_student_has_its_steps_and_scores(recorder: Recorder) -> None:
    spec = DistillSpec.model_validate({"teacher": "big", "task": TASK, "recipe": {"epochs": 2.0, "batch_size": 10}})
    run = start(recorder, spec)
    recorder.record_events(run.id, [MetricEvent(50, "train", {"loss": 0.5, "examples_per_s": 100.0}, epoch=1.0)])
    recorder.record_events(run.id, [MetricEvent(50, "validation", {"accuracy": 0.8}, epoch=1.0)])
    expected = TrainingView(50, 100, ("loss 0.500", "100 examples/s"), 5.0, "held out 50: accuracy 0.8000")
    assert look(recorder, run, Screen()) == expected


def test_a_sweep_has_a_row_for_each_running_trial_and_its_best_one(recorder: Recorder) -> None:
    run = start(recorder, SWEEP)
    assert look(recorder, run, Screen()) == "sweep  RUNNING"
    done = TrialResult("a", 0, {"learning_rate": 1e-3}, RunState.COMPLETED, 3, metrics={"accuracy": 0.65}, seconds=60.0)
    scores = [
        MetricEvent(step, "validation", {"accuracy": score}, epoch=step / 10) for step, score in ((10, 0.7), (20, 0.6))
    ]
    begun = TrialStart("b", 1, SWEEP.recipe.model_dump(mode="json") | {"learning_rate": 1e-4, "dropout": 0.1}, 3)
    recorder.record_trials(run.id, [done, begun, TrialEvents("b", scores)])
    view = look(recorder, run, Screen())
    assert isinstance(view, SweepView)
    assert view.running == [TrialView(1, {"learning_rate": "0.0001"}, 2.0, 4.0, last=0.6, best=0.7)]
    assert (view.num_ended, view.num_trials, view.best) == (1, 2, "best accuracy 0.6500 (trial 0)")
    assert view.left_s == pytest.approx(60, abs=5)


def test_before_a_trial_has_ended_the_time_left_is_by_the_speed_of_those_that_run(recorder: Recorder) -> None:
    """An epoch of 10 steps of 4 examples, 4 epochs, 1 example a second: 160 s each of two trials."""
    run = start(recorder, SWEEP)
    begun = TrialStart("a", 0, {"learning_rate": 1e-4, "batch_size": 4}, 3)
    speed = MetricEvent(10, "train", {"examples_per_s": 1.0}, epoch=1.0)
    recorder.record_trials(run.id, [begun, TrialEvents("a", [speed])])
    view = look(recorder, run, Screen())
    assert isinstance(view, SweepView)
    assert view.left_s == pytest.approx(280, abs=5), "40 s of the first one are done"


def test_of_a_spec_that_this_version_cannot_read_there_is_a_line(recorder: Recorder) -> None:
    run = start(recorder, PRETRAIN, name="newer", field_of_tomorrow=1)
    record_training(recorder, run, 40)
    assert look(recorder, run, Screen()) == "newer  RUNNING  step 40 of 1,000  train.mlm_loss 6.4300"


def test_of_a_pipeline_the_stage_at_work_is_shown(recorder: Recorder) -> None:
    spec = {"kind": "pipeline", "name": "all", "stages": {"first": {}, "second": {}}}
    pipeline = recorder.start(spec, "f" * 64)
    tags = (f"pipeline:{pipeline.id}",)
    screen = Screen()
    watch = RunWatch(recorder.registry, cast(Progress, screen))
    first = recorder.start({"kind": "tokenizer", "name": "all/first", "tags": tags}, "f" * 64)
    assert look(recorder, pipeline, screen, watch) == "all/first  RUNNING"
    recorder.complete(first.id, RunOutcome())
    second = start(recorder, PRETRAIN, tags, name="all/second")
    record_training(recorder, second, 40)
    assert isinstance(look(recorder, pipeline, screen, watch), TrainingView)
    assert [shown for shown in screen.shown if isinstance(shown, StageView)] == [
        StageView(1, 2, "first"),
        StageView(2, 2, "second"),
    ]


def test_a_run_that_has_only_been_recorded_has_a_line(recorder: Recorder) -> None:
    run = start(recorder, PRETRAIN, name="new")
    with recorder.registry._database.session(writing=True) as session:
        session.execute(delete(AttemptRow).where(AttemptRow.run_id == run.id))
        session.execute(update(RunRow).where(RunRow.id == run.id).values(attempt=0, state=RunState.PENDING))
    assert str(look(recorder, run, Screen())).startswith("new  PENDING")


def test_the_time_is_that_of_the_newest_attempt(recorder: Recorder) -> None:
    run, screen = start(recorder, PRETRAIN), Screen()
    days_ago = update(RunRow).where(RunRow.id == run.id).values(started_at=datetime.now(UTC) - timedelta(days=4))
    with recorder.registry._database.session(writing=True) as session:
        session.execute(days_ago)
    record_training(recorder, run, 40)
    look(recorder, run, screen)
    assert screen.began_at is not None
    assert time.monotonic() - screen.began_at < 3600


def test_a_look_that_the_registry_did_not_answer_is_made_again(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, screen = start(recorder, PRETRAIN), Screen()
    record_training(recorder, run, 40)
    watch = RunWatch(recorder.registry, cast(Progress, screen))

    def is_away(*args: object) -> None:
        raise RegistryUnavailableError("it is away")

    with monkeypatch.context() as away:
        away.setattr(recorded_views, "recorded_view", is_away)
        with pytest.raises(RegistryUnavailableError):
            look(recorder, run, screen, watch)
    assert isinstance(look(recorder, run, screen, watch), TrainingView)


def test_a_probe_tells_neither_how_many_trials_there_will_be_nor_how_long(recorder: Recorder) -> None:
    probe = ProbeSpec.model_validate({"run": "small", "task": TASK, "recipe": {"tokenizer": "words", "epochs": 4.0}})
    run = start(recorder, probe)
    done = TrialResult("a", 0, {"init_from": "s0"}, RunState.COMPLETED, 3, metrics={"accuracy": 0.65}, seconds=60.0)
    recorder.record_trials(run.id, [done, TrialStart("b", 1, {"init_from": "s1"}, 3)])
    view = look(recorder, run, Screen())
    assert isinstance(view, SweepView)
    assert (view.num_ended, view.num_trials, view.num_waiting, view.left_s) == (1, None, None, None)


def test_a_probes_trials_are_told_apart_by_their_snapshots(recorder: Recorder) -> None:
    run = start(recorder, ProbeSpec.model_validate({"run": "7f3a", "task": TASK}))
    recorder.record_trials(run.id, [TrialStart("a", 0, {"init_from": "steps/10", "learning_rate": 1e-3}, 3)])
    view = look(recorder, run, Screen())
    assert isinstance(view, SweepView)
    assert view.running[0].varied == {"init_from": "steps/10", "seed": "3"}
