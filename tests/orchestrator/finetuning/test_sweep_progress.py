"""What a running sweep knows: the best trial, pruned trials' scores, what is said and deleted, and in which order.

Run alone: pytest tests/orchestrator/finetuning/test_sweep_progress.py
"""

from dataclasses import replace

import pytest

from orchestrator.base.console.run_views import SweepView, TrialView
from orchestrator.base.results import MessageEvent, MetricEvent, TrialResult
from orchestrator.finetuning.search_space import TrialPlan, TrialQueue
from orchestrator.finetuning.sweep_progress import SweepListener, SweepProgress
from orchestrator.specs import SweepSpec


class Sweep:
    """Three trials, and what their progress tells, in order."""

    def __init__(self, **fields: object) -> None:
        task = {"id": "own", "head": "classification"}
        recipe = {"tokenizer": "words", "epochs": 4.0}
        self.spec = spec = SweepSpec.model_validate({"task": task, "recipe": recipe, "seeds": [0, 1, 2], **fields})
        self.told: list[tuple[str, int]] = []
        self.views: list[SweepView] = []
        self.progress = SweepProgress(
            queue=TrialQueue(spec, "f1", {}),
            metric="f1",
            baseline={"f1": 0.5},
            listener=SweepListener(
                on_trial_started=lambda start: self.told.append(("started", start.number)),
                on_trial_events=lambda key, events: self.told.extend(("event", event.step) for event in events),
                on_trial_result=lambda result: self.told.append(("recorded", result.number)),
                on_view=self.views.append,
            ),
            on_leading=lambda result: self.told.append(("leads", result.number)),
            on_superseded=lambda result: self.told.append(("deleted", result.number)),
            on_ended=lambda result: self.told.append(("tidied", result.number)),
            results={},
        )

    def start(self) -> TrialPlan:
        plan = self.progress.queue.next()
        assert plan is not None
        self.progress.started(plan)
        return plan

    def complete(self, score: float) -> None:
        plan = self.start()
        result = TrialResult(plan.key, plan.number, plan.parameters, "COMPLETED", plan.seed, metrics={"f1": score})
        self.progress.ended(plan, result)


def test_weights_are_deleted_only_after_the_better_result_is_recorded() -> None:
    sweep = Sweep()
    for score in (0.6, 0.8, 0.7):
        sweep.complete(score)
    assert [told for told in sweep.told if told[0] != "started"] == [
        *[("recorded", 0), ("leads", 0), ("tidied", 0)],
        *[("recorded", 1), ("leads", 1), ("deleted", 0), ("tidied", 1)],
        *[("recorded", 2), ("deleted", 2), ("tidied", 2)],
    ]


def test_pruned_trial_has_its_best_scores_beside_the_majoritys() -> None:
    sweep = Sweep()
    plan = sweep.start()
    for step, score in ((10, 0.55), (20, 0.65), (30, 0.6)):
        sweep.progress.reported(plan, [MetricEvent(step, "validation", {"f1": score})])
    result = sweep.progress.pruned(plan)
    assert (result.state, result.best_step, result.metrics) == ("PRUNED", 20, {"f1": 0.65, "baseline.f1": 0.5})


def test_a_resumed_sweep_names_its_leader_and_deletes_what_the_last_trial_left() -> None:
    first = Sweep()
    for score in (0.8, 0.6, 0.7):
        first.complete(score)
    told: list[tuple[str, int]] = []
    progress = replace(
        first.progress,
        results=dict(first.progress.results),
        best=None,
        on_leading=lambda result: told.append(("leads", result.number)),
        on_superseded=lambda result: told.append(("deleted", result.number)),
    )
    assert progress.best == first.progress.best
    assert told == [("leads", 0), ("deleted", 2)], "losers of before were deleted when they lost"


def test_a_trial_that_failed_keeps_its_checkpoints_for_the_next_attempt() -> None:
    sweep = Sweep()
    plan = sweep.start()
    sweep.progress.ended(plan, sweep.progress.died(plan, "its node is gone"))
    assert ("tidied", 0) not in sweep.told
    assert sweep.progress.standing().startswith("0 of 3 trials")


def test_a_trial_that_was_ended_for_it_is_of_the_host_that_it_last_reported_from() -> None:
    sweep = Sweep()
    plan = sweep.start()
    assert sweep.progress.died(plan, "its node is gone").host is None
    for host in ("first", "second"):
        sweep.progress.reported(plan, [], host)
    assert sweep.progress.pruned(plan).host == sweep.progress.died(plan, "its node is gone").host == "second"


def test_a_terminal_is_shown_running_trials_and_the_best_of_those_that_ended() -> None:
    sweep = Sweep()
    sweep.complete(0.6)
    plan = sweep.start()
    sweep.progress.reported(plan, [MetricEvent(10, "validation", {"f1": 0.7}, epoch=1.0)])
    sweep.progress.reported(plan, [MetricEvent(20, "validation", {"f1": 0.65}, epoch=2.0)])
    view = sweep.views[-1]
    assert view.running == (TrialView(1, {"seed": "1"}, 4.0, epoch=2.0, last=0.65, best=0.7),)
    assert (view.num_ended, view.num_waiting, view.best) == (1, 1, "best f1 0.6000 (trial 0)")


def test_a_line_tells_evaluations_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "orchestrator")
    now = 100.0
    monkeypatch.setattr("orchestrator.base.console.log_lines.time.monotonic", lambda: now)
    sweep = Sweep()
    plan = sweep.start()
    for step in range(1, 5):
        sweep.progress.reported(plan, [MetricEvent(step, "validation", {"f1": step / 10}, epoch=float(step))])
        now += 40
    assert [line.partition(": epoch ")[2][:3] for line in caplog.messages] == ["1.0", "3.0"]


@pytest.mark.parametrize(("num_at_a_time", "minutes"), [(1, 7), (2, 3)])
def test_time_left_counts_what_runs_at_a_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, num_at_a_time: int, minutes: int
) -> None:
    """Trials of a minute: one of eight has ended for each that runs at a time, the next ones begin at once."""
    caplog.set_level("INFO", "orchestrator")
    now = 100.0
    monkeypatch.setattr("orchestrator.finetuning.sweep_progress.time.monotonic", lambda: now)
    sweep = Sweep(seeds=list(range(8)))
    running = [sweep.start() for _ in range(num_at_a_time)]
    assert sweep.views[-1].left_s is None, "nothing has been measured"
    now += 60
    for plan in running:
        done = TrialResult(plan.key, plan.number, plan.parameters, "COMPLETED", 0, metrics={"f1": 0.5}, seconds=60.0)
        sweep.progress.ended(plan, done)
        sweep.start()
    assert sweep.views[-1].left_s == 60.0 * minutes
    assert caplog.messages[-1].endswith(f"about {minutes}:00 min left")


def test_before_a_trial_has_ended_the_time_left_is_by_the_epochs_of_those_that_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An epoch of four in 20 s: 80 s a trial, three one after another."""
    now = 100.0
    monkeypatch.setattr("orchestrator.finetuning.sweep_progress.time.monotonic", lambda: now)
    sweep = Sweep(seeds=[0, 1, 2])
    plan = sweep.start()
    now += 20
    sweep.progress.reported(plan, [MetricEvent(10, "validation", {"f1": 0.5}, epoch=1.0)])
    assert sweep.views[-1].left_s == 220.0


def test_the_time_of_an_earlier_attempt_is_not_this_ones() -> None:
    sweep = Sweep()
    sweep.complete(0.5)
    again = replace(sweep.progress, results=dict(sweep.progress.results))
    plan = again.queue.next()
    assert plan is not None
    again.started(plan)
    assert sweep.views[-1].left_s is None


def test_a_trials_warnings_are_told_with_its_number(caplog: pytest.LogCaptureFixture) -> None:
    sweep = Sweep()
    plan = sweep.start()
    measured = MetricEvent(4, "validation", {"f1": 0.7}, 1.0)
    sweep.progress.reported(plan, [MessageEvent("memory ran out", "warning"), measured])
    assert caplog.messages == ["trial 0: memory ran out"]
    assert sweep.told == [("started", 0), ("event", 4)]


def test_values_that_all_trials_share_are_not_shown() -> None:
    space = {"learning_rate": [1e-3, 1e-4], "dropout": [0.1], "weight_decay": {"uniform": [0.0, 0.1]}}
    sweep = Sweep(seeds=[3], space=space, search="random", trials=4)
    sweep.start()
    assert set(sweep.views[-1].running[0].varied) == {"learning_rate", "weight_decay"}
