"""What a running sweep knows: the best trial, pruned trials' scores, what is said and deleted, and in which order.

Run alone: pytest tests/orchestrator/finetuning/test_sweep_progress.py
"""

from dataclasses import replace

from orchestrator.finetuning.search_space import TrialPlan
from orchestrator.finetuning.sweep_progress import SweepListener, SweepProgress
from orchestrator.finetuning.trial_queue import TrialQueue
from orchestrator.results import MetricEvent, TrialResult
from orchestrator.specs import SweepSpec


class Sweep:
    """Three trials, and what their progress tells, in order."""

    def __init__(self) -> None:
        task = {"id": "own", "head": "classification"}
        spec = SweepSpec.model_validate({"task": task, "recipe": {"tokenizer": "words"}, "seeds": [0, 1, 2]})
        self.told: list[tuple[str, int]] = []
        self.progress = SweepProgress(
            queue=TrialQueue(spec, "f1", {}),
            metric="f1",
            baseline={"f1": 0.5},
            listener=SweepListener(
                on_trial_started=lambda start: self.told.append(("started", start.number)),
                on_trial_events=lambda key, events: self.told.extend(("event", event.step) for event in events),
                on_trial_result=lambda result: self.told.append(("recorded", result.number)),
                on_progress=lambda line: None,
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
    assert sweep.progress.standing() == "0 of 3 trials have ended and stand; resuming goes on with the others"
