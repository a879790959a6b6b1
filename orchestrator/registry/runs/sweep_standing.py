"""Standing of a sweep while it goes on: few rows, however many trials there are, to be read every second."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import and_, case, func, or_, select, true
from sqlalchemy.orm import Session, aliased

from orchestrator.measurements import is_better_lower
from orchestrator.registry.tables import MetricPointRow, MetricRow, RunRow
from orchestrator.results import MetricEvent
from orchestrator.run_states import RunState

_STAY = (RunState.COMPLETED, RunState.PRUNED)
"""States of trials that never run again."""
_SPEED = "examples_per_s"


@dataclass(frozen=True)
class Evaluation:
    """A score of a trial."""

    epoch: float | None
    score: float


@dataclass(frozen=True)
class RunningTrialRecord:
    """A trial that runs."""

    number: int
    parameters: Mapping[str, Any]
    """Values that set it apart, without the seed."""
    seed: int | None
    started_at: datetime | None
    evaluations: Sequence[Evaluation]
    """Its scores since it last began, by step."""
    speed: MetricEvent | None = None
    """Its newest measurement of `examples_per_s` since it last began."""


@dataclass(frozen=True)
class SweepStanding:
    """Trials of a sweep, as they stand now."""

    num_in: Mapping[RunState, int]
    """Number of trials in each state that any of them is in."""
    num_ended: int
    """Number of trials that have ended and do not run again in the present attempt."""
    typical_s: float | None
    """Mean seconds of the trials that have ended; None before the first."""
    running: Sequence[RunningTrialRecord]
    best: tuple[int, float] | None
    """Number and score of the best completed trial; None before the first."""


def load_standing(session: Session, sweep_id: str, metric: str, since: datetime | None = None) -> SweepStanding:
    """Read how a sweep stands by the score that ranks its trials.

    Args:
        since: beginning of the present attempt: what failed before it runs again. What was stopped always does.
    """
    is_of_now = true() if since is None else RunRow.finished_at >= since
    stays = or_(RunRow.state.in_(_STAY), and_(RunRow.state == RunState.FAILED, is_of_now))
    states = session.execute(
        select(RunRow.state, func.count(), func.avg(RunRow.seconds), func.sum(case((stays, 1), else_=0)))
        .where(RunRow.parent_id == sweep_id)
        .group_by(RunRow.state)
    ).all()
    timed = [(number, mean_s) for state, number, mean_s, _ in states if state.is_final and mean_s is not None]
    num_timed = sum(number for number, _ in timed)
    typical_s = sum(number * float(mean_s) for number, mean_s in timed) / num_timed if num_timed else None
    best = session.execute(
        select(RunRow.number, MetricRow.value)
        .join(MetricRow, MetricRow.run_id == RunRow.id)
        .where(RunRow.parent_id == sweep_id, RunRow.state == RunState.COMPLETED)
        .where(MetricRow.split == "validation", MetricRow.name == metric, MetricRow.value.is_not(None))
        .order_by(MetricRow.value if is_better_lower(metric) else MetricRow.value.desc(), RunRow.number)
        .limit(1)
    ).first()
    return SweepStanding(
        {state: number for state, number, *_ in states},
        sum(num_staying for *_, num_staying in states),
        typical_s,
        _load_running(session, sweep_id, metric),
        None if best is None else (best.number, best.value),
    )


def _load_running(session: Session, sweep_id: str, metric: str) -> list[RunningTrialRecord]:
    trials = session.execute(
        select(RunRow.id, RunRow.number, RunRow.spec, RunRow.seed, RunRow.started_at)
        .where(RunRow.parent_id == sweep_id, RunRow.state == RunState.RUNNING)
        .order_by(RunRow.number)
    ).all()
    point, any_point = MetricPointRow, aliased(MetricPointRow)
    is_newest = point.step == (  # else all that a trial has measured would be read, again and again
        select(func.max(any_point.step))
        .where(any_point.run_id == point.run_id, any_point.split == "train", any_point.name == _SPEED)
        .where(any_point.recorded_at >= RunRow.started_at)
        .correlate(point, RunRow)
        .scalar_subquery()
    )
    evaluations: dict[str, list[Evaluation]] = defaultdict(list)
    rows = session.execute(
        select(point.run_id, point.split, point.name, point.step, point.epoch, point.value)
        .join(RunRow, RunRow.id == point.run_id)
        .where(RunRow.parent_id == sweep_id, RunRow.state == RunState.RUNNING)
        .where(
            or_(
                and_(point.split == "validation", point.name == metric),
                and_(point.split == "train", point.name == _SPEED, is_newest),
            )
        )
        .where(point.recorded_at >= RunRow.started_at)  # a trial that begins again has those of its first try
        .order_by(point.step)
    )
    speeds: dict[str, MetricEvent] = {}
    for run_id, split, name, step, epoch, value in rows:
        if value is None:  # one that is not a number
            continue
        if split == "train":
            speeds[run_id] = MetricEvent(step, "train", {name: value}, epoch)
        else:
            evaluations[run_id].append(Evaluation(epoch, value))
    return [
        RunningTrialRecord(
            trial.number, trial.spec, trial.seed, trial.started_at, evaluations[trial.id], speeds.get(trial.id)
        )
        for trial in trials
    ]
