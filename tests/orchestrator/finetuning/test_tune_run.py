"""Ray Tune around pretended trials: pruning, death. Alone: pytest tests/orchestrator/finetuning/test_tune_run.py"""

import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import Mock

import pytest
import ray
from ray import tune
from ray.tune.experiment import Trial

from orchestrator.base.errors import ClusterError, RunFailedError
from orchestrator.base.results import MetricEvent, TrialResult, TrialStart
from orchestrator.base.run_states import RunState
from orchestrator.cli.entry import Interrupted
from orchestrator.finetuning import tune_run
from orchestrator.finetuning.search_space import TrialPlan, TrialQueue
from orchestrator.finetuning.sweep_progress import SweepListener, SweepProgress
from orchestrator.finetuning.training_checkpoints import Report
from orchestrator.finetuning.trial_journal import EndedTrial
from orchestrator.finetuning.trial_slots import watch_trials
from orchestrator.finetuning.tune_run import PLAN, RunTrial, build_scheduler, run_with_tune
from orchestrator.specs import SweepSpec
from orchestrator.training.event_queue import EventQueue
from tests.waiting import wait_until

pytestmark = pytest.mark.ray


def sweep(num_trials: int, **fields: object) -> SweepSpec:
    values = {
        "task": {"id": "own", "head": "classification"},
        "recipe": {"tokenizer": "own"},
        "space": {"batch_size": list(range(num_trials, 0, -1))},
        "execution": {"max_concurrent_trials": 1, "gpus_per_trial": 0},
    }
    return SweepSpec.model_validate(values | fields)


def score_of(plan: TrialPlan) -> float:
    return plan.recipe.batch_size / 100


def pretend(plan: TrialPlan, report: Report) -> TrialResult:
    """Three evaluations, each a little better; the larger the batch, the better."""
    for number in (1, 2, 3):
        score = score_of(plan) + number / 1000
        report([MetricEvent(number * 10, "validation", {"f1": score})], None if number == 3 else score, number)
    return plan.result(RunState.COMPLETED, best_step=30, metrics={"f1": score})


class Run:
    """One run of a sweep with pretended trials."""

    def __init__(self, spec: SweepSpec, on_event: Callable[[str], None] = lambda key: None) -> None:
        self.spec = spec
        self.started: list[TrialStart] = []
        self.events: list[tuple[str, int]] = []

        def note_events(key: str, events: Sequence[MetricEvent]) -> None:
            self.events += [(key, event.step) for event in events]
            on_event(key)

        self.progress = SweepProgress(
            queue=TrialQueue(spec, "f1", {}),
            metric="f1",
            baseline={"f1": 0.01},
            listener=SweepListener(self.started.append, note_events, lambda result: None),
            on_leading=lambda result: None,
            on_ended=lambda result: None,
            on_superseded=lambda result: None,
            results={},
        )

    def __call__(self, trial: RunTrial, folder: Path, finished: Sequence[EndedTrial] = ()) -> list[TrialResult]:
        watch = watch_trials(self.spec.execution, "id-1")
        run_with_tune(self.spec, trial, self.progress, watch, str(folder), 3, finished)
        return sorted(self.progress.results.values(), key=lambda result: result.number)


def test_asha_has_the_specs_factor_and_its_grace_as_far_as_trials_are_that_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tune_run.tune_schedulers, "ASHAScheduler", dict)
    for grace, expected in ((2, 2), (9, 4)):
        spec = sweep(1, scheduler="asha", reduction_factor=4, grace_evaluations=grace)
        options: Any = build_scheduler(spec, max_evaluations=3, metric="f1")
        assert (options["grace_period"], options["reduction_factor"], options["max_t"]) == (expected, 4, 4)


@pytest.mark.core
def test_asha_prunes_weak_trials_and_keeps_their_scores(ray_cluster: None, tmp_path: Path) -> None:
    run = Run(sweep(4, scheduler="asha", name="жалобы"))
    results = run(pretend, tmp_path)
    assert [result.state for result in results] == ["COMPLETED", "PRUNED", "PRUNED", "PRUNED"]
    assert run.progress.best == results[0]
    assert [step for key, step in run.events if key == results[0].key] == [10, 20, 30]
    assert (results[1].best_step, results[1].metrics) == (10, {"f1": 0.031, "baseline.f1": 0.01})

    events = tuple(MetricEvent(step, "validation", {"f1": 0.04 + step / 10_000}) for step in (10, 20, 30))
    best = EndedTrial(results[0], events)
    weaker = Run(sweep(2, scheduler="asha"))(pretend, tmp_path / "resumed", [best])
    assert [result.state for result in weaker] == ["PRUNED", "PRUNED"], "an earlier attempt's trial counts"


@pytest.mark.core
def test_trial_whose_process_dies_is_tried_again_and_then_fails(
    ray_cluster: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def die(plan: TrialPlan, report: Report) -> TrialResult:
        """The first trial's process dies once, the second's always."""
        before = tmp_path / f"died-{plan.number}"
        if plan.number == 1 or (plan.number == 0 and not before.exists()):
            before.touch()
            os._exit(7)
        return pretend(plan, report)

    run = Run(sweep(3, execution={"max_concurrent_trials": 1, "gpus_per_trial": 0, "max_failures": 1}))
    results = run(die, tmp_path / "run")
    assert [result.state for result in results] == ["COMPLETED", "FAILED", "COMPLETED"]
    assert "the trial's process died" in str(results[1].error)
    told = [line for line in caplog.messages if line.endswith("; it is tried again")]
    assert [line.partition(": the trial's process died: ")[0] for line in told] == ["trial 0", "trial 1"]
    assert [start.number for start in run.started] == [0, 0, 1, 1, 2]


def test_trials_without_a_place_end_the_sweep_with_what_is_missing(ray_cluster: None, tmp_path: Path) -> None:
    holder = ray.remote(num_cpus=5.5)(EventQueue).remote()
    ray.get(holder.num_put.remote())
    try:
        run = Run(sweep(2, execution={"gpus_per_trial": 0, "max_wait_minutes": 0.05}))
        with pytest.raises(ClusterError, match=r"needs 1 × \{CPU: 1\}; free now: 0\.5 of 6 CPU"):
            run(pretend, tmp_path)
        assert not run.started
    finally:
        ray.kill(holder)


def test_processes_are_asked_for_at_once_for_as_many_trials_as_fit_and_one_more(
    ray_cluster: None, tmp_path: Path
) -> None:
    """Asked for one by one, a process is given up as soon as another trial ends: short trials never got a second."""
    holder = ray.remote(num_cpus=6)(EventQueue).remote()
    ray.get(holder.num_put.remote())
    found: list[int] = []

    def let_them_start_when_all_wait() -> None:
        wait_until(lambda: found.append(num_pending_groups()) or found[-1] >= 4, "no other trial waits")
        ray.kill(holder)

    waiting = threading.Thread(target=let_them_start_when_all_wait, daemon=True)
    waiting.start()
    run = Run(sweep(8, execution={"gpus_per_trial": 0, "cpus_per_trial": 2, "max_wait_minutes": 3}))
    assert [result.state for result in run(pretend, tmp_path)] == ["COMPLETED"] * 8
    waiting.join()
    assert max(found) == 4, "three have room on six CPUs"


def num_pending_groups() -> int:
    """Placement groups of Tune's trials that have no place yet."""
    return sum(group["state"] == "PENDING" for group in ray.util.placement_group_table().values())


def test_a_host_that_refuses_trials_ends_the_sweep_with_its_reason(ray_cluster: None, tmp_path: Path) -> None:
    def refuse(plan: TrialPlan, report: Report) -> TrialResult:
        raise ClusterError("host north does not see the storage")

    run = Run(sweep(50))
    with pytest.raises(ClusterError, match="host north does not see the storage"):
        run(refuse, tmp_path)
    assert len(run.started) < 50
    assert not run.progress.results, "the refusal is no result of a trial"


@pytest.mark.core
def test_interrupt_ends_the_sweep_and_leaves_nothing_behind(
    ray_cluster: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    caplog.set_level(logging.INFO, "orchestrator")
    before = signal.signal(signal.SIGTERM, interrupt)
    run = Run(sweep(50), on_event=lambda key: os.kill(os.getpid(), signal.SIGTERM))
    try:
        with pytest.raises(Interrupted, match="interrupted by SIGTERM"):
            run(pretend, tmp_path)
        assert signal.getsignal(signal.SIGTERM) is interrupt
    finally:
        signal.signal(signal.SIGTERM, before)
    assert len(run.progress.results) < 50
    num_ended = len(run.progress.results)
    (said,) = (line for line in caplog.messages if line.startswith("stopping"))
    assert said.startswith(f"stopping; {num_ended} of 50 trials are finished and kept; resuming runs the others")
    assert list(tmp_path.iterdir()) == []


def test_error_of_the_listener_ends_the_sweep_as_it_is(ray_cluster: None, tmp_path: Path) -> None:
    def refuse(key: str) -> None:
        raise OSError("the record cannot be written")

    run = Run(sweep(50), on_event=refuse)
    with pytest.raises(OSError, match="the record cannot be written"):
        run(pretend, tmp_path)
    assert len(run.started) < 50


def replace_tune(monkeypatch: pytest.MonkeyPatch, fit: Callable[[tune.RunConfig], None]) -> None:
    """Let `fit` stand for Ray Tune: it is called in place of the tuner's method, with what the tuner is given."""

    def build(*arguments: Any) -> Mock:
        return Mock(fit=lambda: fit(arguments[-1]))

    monkeypatch.setattr(tune_run, "_build_tuner", build)


def test_scratch_of_an_attempt_that_was_killed_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / "ray/tune-before/trial"
    left.mkdir(parents=True)

    def fit(config: tune.RunConfig) -> None:
        assert not left.exists()
        (Path(config.storage_path) / config.name).mkdir(parents=True)
        raise OSError("the head is gone")

    replace_tune(monkeypatch, fit)
    with pytest.raises(OSError, match="the head is gone"):
        Run(sweep(1))(pretend, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_scratch_of_an_attempt_that_was_killed_after_its_last_trial_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ray/tune-before/trial").mkdir(parents=True)
    replace_tune(monkeypatch, Mock(side_effect=AssertionError("there is nothing left to do")))
    run = Run(sweep(1))
    monkeypatch.setattr(run.progress.queue, "is_done", lambda: True)
    assert run(pretend, tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_scratch_that_cannot_be_deleted_hides_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(config: tune.RunConfig) -> None:
        monkeypatch.setattr(tune_run, "delete", Mock(side_effect=OSError("Directory not empty")))
        raise RuntimeError("what really happened")

    replace_tune(monkeypatch, fit)
    with pytest.raises(RuntimeError, match="what really happened"):
        Run(sweep(1))(pretend, tmp_path)


def test_error_that_comes_up_when_tune_ends_ends_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial whose process could not be used again is recorded at the end, where Tune takes no further step."""
    run = Run(sweep(1))
    listener = run.progress.listener
    run.progress.listener = replace(listener, on_trial_result=Mock(side_effect=OSError("the record cannot be written")))
    error_file = tmp_path / "error.txt"
    error_file.write_text("it died\n")

    def fit(config: tune.RunConfig) -> None:
        died = Mock(status=Trial.ERROR, config={PLAN: run.progress.queue.next()}, error_file=str(error_file))
        for callback in config.callbacks:
            callback.on_experiment_end([died])

    replace_tune(monkeypatch, fit)
    with pytest.raises(OSError, match="the record cannot be written"):
        run(pretend, tmp_path / "run")


def test_tune_that_ends_while_trials_are_left_is_no_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_tune(monkeypatch, lambda config: None)
    with pytest.raises(RunFailedError, match="0 of 2 trials"):
        Run(sweep(2))(pretend, tmp_path)
