"""Groups of runs, read in a session: trials of sweeps and probes, students, and evaluations of models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Row, Select, and_, cast, func, literal, not_, or_, select, true
from sqlalchemy.orm import Session, aliased

from orchestrator.registry.collection_pause import paused_collection
from orchestrator.registry.engines.dialects import select_items
from orchestrator.registry.groups.group_keys import group_key
from orchestrator.registry.groups.group_records import GroupRecord, GroupRun
from orchestrator.registry.groups.group_settings import FOLDS_PATH, SEED_PATH, load_folds, load_settings, setting_values
from orchestrator.registry.groups.model_origins import ORIGIN_PATHS, load_origins
from orchestrator.registry.groups.refused_scores import TEST_DIGEST, load_test_refusals
from orchestrator.registry.groups.split_data import SplitData
from orchestrator.registry.run_flags import is_flagged
from orchestrator.registry.tables import MetricRow, ParameterRow, RunRow

_EVALUATION = "evaluate"
RANKED_KINDS = ("distill", _EVALUATION)
"""Kinds of runs without trials whose own scores are ranked."""
_ON_TEST = (_EVALUATION, "test")
"""Kind and split of evaluations whose score may be refused."""
_NUM_GROUP_COLUMNS = 6
"""Number of the columns that tell groups apart, the first ones of a run's row."""


def of_task(task: str | None, *, archived: bool) -> ColumnElement[bool]:
    """Condition for the runs of a task, of all tasks where it is None.

    Args:
        archived: whether archived runs and their trials are among them.
    """
    asked = true() if task is None else RunRow.task == task
    return asked if archived else and_(asked, not_(is_flagged("archived")))


def count_archived(session: Session, task: str | None) -> int:
    """Number of the archived runs that would belong to the groups of a task, of all tasks where it is None."""
    asked = of_task(task, archived=True)
    counted = select(func.count()).select_from(RunRow).where(is_ranked(), asked, is_flagged("archived"))
    return session.scalar(counted) or 0


def load_tasks(session: Session) -> list[str]:
    """Names of the tasks that have groups, of archived runs too, in their order."""
    return sorted(filter(None, session.scalars(select(RunRow.task).where(is_ranked()).distinct())))


def load_groups_of(session: Session, run_ids: Collection[str]) -> list[GroupRecord]:
    """Load the groups that some runs belong to, each with all of its runs."""
    are_own = RunRow.id.in_(select_items(session, run_ids)), is_ranked()
    keys = session.scalars(select(RunRow.group_key).where(*are_own).distinct()).all()
    return load_groups(session, RunRow.group_key.in_(select_items(session, keys)))


@paused_collection()
def load_groups(session: Session, condition: ColumnElement[bool]) -> list[GroupRecord]:
    """Load the groups of the runs that a condition selects, with these runs alone.

    A group's runs come from any number of sweeps. Runs of a task without a score that ranks are in no group. Scores on
    other test data are other groups, also those of registries that recorded one key for all of them.
    """
    found: dict[tuple[Any, ...], list[Row[Any]]] = defaultdict(list)
    for row in session.connection().execute(_ranked_runs(condition)):  # a session's rows cost twice as much
        found[row[:_NUM_GROUP_COLUMNS]].append(row)
    settings = load_settings(session, [rows[-1].id for rows in found.values()])
    data_parameters = {run_id: setting_values(shared, ORIGIN_PATHS) for run_id, shared in settings.items()}
    origins = load_origins(session, data_parameters)
    rows_of_all = chain.from_iterable(found.values())
    tested = [row.id for row in rows_of_all if row.test is not None or (row.kind, row.scored_split) == _ON_TEST]
    refusals = load_test_refusals(session, tested) if tested else {}
    groups = []
    for (task, metric, digest, code, split, _), rows in found.items():
        newest = rows[-1]
        data = SplitData.of(data_parameters[newest.id], split)
        is_evaluated = newest.of_kind == _EVALUATION
        reasons = [refusals.get(row.id) for row in rows]
        folds = load_folds(session, [row.id for row in rows]) if FOLDS_PATH in settings[newest.id] else {}
        origin = origins[newest.id].use_of(data) or (None if is_evaluated else "chosen")
        groups.append(
            GroupRecord(
                key=group_key(digest, code),
                kind=newest.of_kind,
                task=task,
                metric=metric,
                split=split,
                runs=[
                    GroupRun._make(
                        (*row[_NUM_GROUP_COLUMNS + 2 :], None if is_evaluated else reason, folds.get(row.id))
                    )
                    for row, reason in zip(rows, reasons, strict=True)
                ],
                data=data.taken,
                settings=settings[newest.id],
                code_version=code,
                origin=origin,
                refusal=next(filter(None, reasons), None) if is_evaluated else None,
            )
        )
    return groups


def is_ranked() -> ColumnElement[bool]:
    """Condition for runs that belong to a group."""
    has_score = and_(RunRow.task.is_not(None), RunRow.metric.is_not(None))
    return and_(has_score, or_(RunRow.parent_id.is_not(None), RunRow.kind.in_(RANKED_KINDS)))


def _ranked_runs(condition: ColumnElement[bool]) -> Select[Any]:
    """Statement that selects the runs of groups with their scores: unfinished ones first, then the oldest."""
    score, baseline, test, collapsed = (aliased(MetricRow) for _ in range(4))
    parent = aliased(RunRow)
    split, seed, tested_on = (aliased(ParameterRow) for _ in range(3))
    is_alone = RunRow.parent_id.is_(None)
    scored_split = func.coalesce(split.text, "validation")

    def is_of(metric: Any, of_split: Any, name: Any) -> ColumnElement[bool]:
        return and_(metric.run_id == RunRow.id, metric.split == of_split, metric.name == name)

    def is_parameter(parameter: Any, path: str) -> ColumnElement[bool]:
        return and_(is_alone, parameter.run_id == RunRow.id, parameter.path == path)

    of_group: Sequence[Any] = (
        RunRow.task,
        RunRow.metric,
        RunRow.group_key,
        RunRow.code_version,
        scored_split.label("scored_split"),
        tested_on.text,
    )
    of_run: Sequence[Any] = (  # in the order of `GroupRun`
        RunRow.id,
        func.coalesce(RunRow.seed, cast(seed.number, BigInteger)),
        RunRow.state,
        score.value,
        baseline.value,
        test.value.label("test"),
        func.coalesce(collapsed.value, 0.0) != 0.0,
        RunRow.model_folder,
        RunRow.finished_at,
        RunRow.parent_id,
    )
    return (
        select(*of_group, RunRow.kind, func.coalesce(parent.kind, RunRow.kind).label("of_kind"), *of_run)
        .outerjoin(parent, parent.id == RunRow.parent_id)
        .outerjoin(split, and_(is_parameter(split, "split"), RunRow.kind == _EVALUATION))
        .outerjoin(seed, is_parameter(seed, SEED_PATH))
        .outerjoin(tested_on, and_(is_parameter(tested_on, TEST_DIGEST), RunRow.kind == _EVALUATION))
        .outerjoin(score, is_of(score, scored_split, RunRow.metric))
        .outerjoin(baseline, is_of(baseline, "validation", literal("baseline.") + RunRow.metric))
        .outerjoin(test, and_(is_of(test, "test", RunRow.metric), RunRow.kind != _EVALUATION))
        .outerjoin(collapsed, is_of(collapsed, "validation", "collapsed"))
        .where(is_ranked(), condition)
        .order_by(RunRow.finished_at.is_not(None), RunRow.finished_at, RunRow.id)
    )
