"""Standings of groups: of each group what ranks it and what tells it from the others, and no more.

A leaderboard of thousands of groups ranks all of them by these, and loads whole the few that it shows.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, DateTime, Select, and_, case, select, type_coerce
from sqlalchemy.orm import Session

from orchestrator.measurements import is_better_lower, score_bounds
from orchestrator.registry.groups.group_keys import group_digest_of, group_key, group_label
from orchestrator.registry.groups.group_records import GroupRecord, GroupRun, best_run, score_of_seed
from orchestrator.registry.groups.group_settings import (
    FOLDS_PATH,
    Settings,
    load_folds,
    load_settings,
    num_folds,
    setting_value,
)
from orchestrator.registry.groups.groups import RANKED_KINDS, load_groups
from orchestrator.registry.groups.split_data import taken_path
from orchestrator.registry.tables import MetricRow, RunRow
from orchestrator.results import Split
from orchestrator.run_states import RunState
from orchestrator.significance.summary import Summary, summarize

TRIAL = "trial"
"""Kind of a standing of trials, whatever the run is that they belong to."""
_TRIALS_SPLIT: Split = "validation"
"""Split that the scores of trials are of."""
_TRIALS_DATA = taken_path(_TRIALS_SPLIT)
_NUM_GROUP_COLUMNS = 4
"""Number of the columns that tell groups of trials apart, the first ones of a trial's row."""


class TrialScore(NamedTuple):
    """A trial by what ranks its group; its fields are those of the same names of `GroupRun`."""

    id: str
    seed: int | None
    score: float | None
    """Score that ranks; None of a trial that did not complete, too."""
    model_folder: str | None
    finished_at: datetime | None
    """Time at which it ended, in UTC without saying so."""


class Standing(NamedTuple):
    """A group by what ranks it and tells it from others: but for `kind`, its fields are those of `GroupRecord`."""

    kind: str
    """`trial`, or the kind of runs that have no trials and are ranked themselves."""
    task: str
    metric: str
    split: str
    key: str
    code_version: str | None
    data: str | None
    settings: Settings
    scores: Sequence[float]
    summary: Summary | None
    best: TrialScore | GroupRun | None
    newest_at: datetime | None
    is_better_lower: bool

    @property
    def label(self) -> str:
        """Short form of the key."""
        return group_label(self.key)

    @property
    def digest(self) -> str:
        """The key without that of the code: digest of all that its runs have in common but the code."""
        return group_digest_of(self.key)

    @property
    def shows_noise(self) -> bool:
        """Whether its seeds show how much seeds matter."""
        return self.summary is not None and self.summary.interval is not None


def load_standings(session: Session, asked: ColumnElement[bool]) -> list[Standing]:
    """Load the standings of the groups of the runs that a condition selects, with these runs alone."""
    others = load_groups(session, and_(asked, RunRow.parent_id.is_(None)))
    return [*_load_of_trials(session, asked), *map(standing_of, others)]


def standing_of(group: GroupRecord) -> Standing:
    """Standing of a group that was loaded whole."""
    return Standing(
        kind=group.kind if group.kind in RANKED_KINDS else TRIAL,
        task=group.task,
        metric=group.metric,
        split=group.split,
        key=group.key,
        code_version=group.code_version,
        data=group.data,
        settings=group.settings,
        scores=group.scores,
        summary=group.summary,
        best=group.best,
        newest_at=group.newest_at,
        is_better_lower=group.is_better_lower,
    )


def _load_of_trials(session: Session, condition: ColumnElement[bool]) -> list[Standing]:
    found: dict[tuple[Any, ...], list[TrialScore]] = defaultdict(list)
    for row in session.connection().execute(_trials(condition)).all():
        found[row[:_NUM_GROUP_COLUMNS]].append(TrialScore._make(row[_NUM_GROUP_COLUMNS:]))
    settings = load_settings(session, [trials[-1].id for trials in found.values()])
    of_folds = [trial.id for trials in found.values() if FOLDS_PATH in settings[trials[-1].id] for trial in trials]
    folds = load_folds(session, of_folds) if of_folds else {}
    return [_standing(group, trials, settings[trials[-1].id], folds) for group, trials in found.items()]


def _trials(condition: ColumnElement[bool]) -> Select[Any]:
    """Statement that selects trials with their scores, those that have not ended first, then the oldest.

    It joins and decodes as little as it can: a board reads thousands of them.
    """
    is_score = and_(MetricRow.run_id == RunRow.id, MetricRow.split == _TRIALS_SPLIT, MetricRow.name == RunRow.metric)
    of_group = RunRow.task, RunRow.metric, RunRow.group_key, RunRow.code_version
    score = case((RunRow.state == RunState.COMPLETED, MetricRow.value))
    finished_at = type_coerce(RunRow.finished_at, DateTime)
    return (
        select(*of_group, RunRow.id, RunRow.seed, score, RunRow.model_folder, finished_at)
        .outerjoin(MetricRow, is_score)
        .where(RunRow.task.is_not(None), RunRow.metric.is_not(None), RunRow.parent_id.is_not(None), condition)
        .order_by(RunRow.finished_at.is_not(None), RunRow.finished_at, RunRow.id)
    )


def _standing(
    group: tuple[Any, ...], trials: Sequence[TrialScore], settings: Settings, folds: Mapping[str, int]
) -> Standing:
    """Standing of a group of trials, by the columns that tell it apart and the trials' folds."""
    task, metric, digest, code = group
    falls, data, newest_at = is_better_lower(metric), settings.get(_TRIALS_DATA), trials[-1].finished_at
    scored = [trial for trial in trials if trial.score is not None and isfinite(trial.score)]
    by_seed: dict[int | None, list[tuple[int | None, float]]] = defaultdict(list)
    for trial in scored:
        by_seed[trial.seed].append((folds.get(trial.id), trial.score or 0.0))
    of_seeds = (score_of_seed(own, num_folds(settings)) for own in by_seed.values())
    scores = [score for score in of_seeds if score is not None]
    return Standing(
        TRIAL,
        task,
        metric,
        _TRIALS_SPLIT,
        group_key(digest, code),
        code,
        data and setting_value(data),
        settings,
        scores,
        summarize(scores, bounds=score_bounds(metric)) if scores else None,
        best_run(scored, is_better_lower=falls) if scored else None,
        newest_at and newest_at.replace(tzinfo=UTC),
        falls,
    )
