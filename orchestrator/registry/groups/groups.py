"""Groups of runs, read in a session: trials of sweeps and probes, students, and evaluations of models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, and_, func, literal, not_, or_, select, true
from sqlalchemy.orm import Session, aliased

from orchestrator.registry.groups.group_records import GroupRecord, GroupRun, group_key
from orchestrator.registry.groups.model_origins import ModelOrigin, load_origins
from orchestrator.registry.groups.refused_scores import TEST_DIGEST, load_test_refusals, refusal_of
from orchestrator.registry.parameter_values import decode_parameter, without_as_before
from orchestrator.registry.run_flags import is_flagged
from orchestrator.registry.tables import MetricRow, ParameterRow, RunRow

RANKED_KINDS = ("distill", "evaluate")
"""Kinds of runs without trials whose own scores are ranked."""
SEED_PATH = "recipe.seed"
_IDS_PER_STATEMENT = 5_000


def load_task_groups(session: Session, task: str | None, *, archived: bool) -> list[GroupRecord]:
    """Load the groups of a task, of all tasks where it is None.

    Args:
        archived: whether archived runs and their trials belong to their groups.
    """
    of_task = true() if task is None else RunRow.task == task
    return load_groups(session, of_task if archived else and_(of_task, not_(is_flagged("archived"))))


def count_archived(session: Session, task: str | None) -> int:
    """Number of the archived runs that would belong to the groups of a task, of all tasks where it is None."""
    of_task = true() if task is None else RunRow.task == task
    counted = select(func.count()).select_from(RunRow).where(_is_ranked(), of_task, is_flagged("archived"))
    return session.scalar(counted) or 0


def load_groups_of(session: Session, run_ids: Collection[str]) -> list[GroupRecord]:
    """Load the groups that some runs belong to, each with all of its runs."""
    own = sorted(set(run_ids))
    keys = {
        key
        for some in _parts(own)
        for key in session.scalars(select(RunRow.group_key).where(RunRow.id.in_(some), _is_ranked()).distinct())
    }
    return [group for some in _parts(sorted(keys)) for group in load_groups(session, RunRow.group_key.in_(some))]


def load_groups(session: Session, condition: ColumnElement[bool]) -> list[GroupRecord]:
    """Load the groups of the runs that a condition selects, with these runs alone.

    A group's runs come from any number of sweeps. Runs of a task without a score that ranks are in no group. Scores on
    other test data are other groups, also those of registries that recorded one key for all of them.
    """
    found: dict[tuple[str, str, str, str | None, str, str | None], list[Row[Any]]] = defaultdict(list)
    for row in session.connection().execute(_ranked_runs(condition)).all():  # a session's rows cost twice as much
        found[row.task, row.metric, row.group_key, row.code_version, row.split, row.tested_on].append(row)
    parameters = _load_parameters(session, [rows[-1].id for rows in found.values()])
    origins = load_origins(session, [rows[-1].id for rows in found.values() if rows[-1].kind == "evaluate"])
    tested = [row.id for rows in found.values() for row in rows if row.test is not None]
    refusals = load_test_refusals(session, tested) if tested else {}
    groups = []
    for (task, metric, digest, code, split, _), rows in found.items():
        newest = rows[-1]
        shared = parameters[newest.id]
        group = GroupRecord(
            key=group_key(digest, code),
            kind=newest.kind if newest.parent_id is None else newest.parent_kind,
            task=task,
            metric=metric,
            split=split,
            runs=[_run(row, refusals.get(row.id)) for row in rows],
            code_version=code,
            data=shared.get(f"data.{split}_digest"),
            parameters={path: value for path, value in shared.items() if path != SEED_PATH},
        )
        is_evaluation = group.kind == "evaluate"
        groups.append(
            _with_origin(group, origins.get(newest.id, ModelOrigin()) if is_evaluation else ModelOrigin.of(shared))
        )
    return groups


def _with_origin(group: GroupRecord, origin: ModelOrigin) -> GroupRecord:
    """The group with what is known of the data that its model was trained and chosen on."""
    if group.kind == "evaluate":
        refused = refusal_of(group.data, origin) if group.split == "test" else None
        return replace(group, origin=origin.use_of(group.data), refusal=refused)
    return replace(group, origin=origin.use_of(group.data) or "chosen")


def _is_ranked() -> ColumnElement[bool]:
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

    columns: list[Any] = [
        RunRow.task,
        RunRow.metric,
        RunRow.group_key,
        RunRow.code_version,
        scored_split.label("split"),
        RunRow.kind,
        parent.kind.label("parent_kind"),
        RunRow.id,
        func.coalesce(RunRow.seed, seed.number).label("seed"),
        RunRow.state,
        score.value.label("score"),
        baseline.value.label("baseline"),
        test.value.label("test"),
        collapsed.value.label("collapsed"),
        RunRow.model_folder,
        RunRow.finished_at,
        RunRow.parent_id,
        tested_on.text.label("tested_on"),
    ]
    return (
        select(*columns)
        .outerjoin(parent, parent.id == RunRow.parent_id)
        .outerjoin(split, and_(is_parameter(split, "split"), RunRow.kind == "evaluate"))
        .outerjoin(seed, is_parameter(seed, SEED_PATH))
        .outerjoin(tested_on, and_(is_parameter(tested_on, TEST_DIGEST), RunRow.kind == "evaluate"))
        .outerjoin(score, is_of(score, scored_split, RunRow.metric))
        .outerjoin(baseline, is_of(baseline, "validation", literal("baseline.") + RunRow.metric))
        .outerjoin(test, and_(is_of(test, "test", RunRow.metric), RunRow.kind != "evaluate"))
        .outerjoin(collapsed, is_of(collapsed, "validation", "collapsed"))
        .where(_is_ranked(), condition)
        .order_by(RunRow.finished_at.is_not(None), RunRow.finished_at, RunRow.id)
    )


def _run(row: Row[Any], test_refusal: str | None) -> GroupRun:
    seed = None if row.seed is None else int(row.seed)
    return GroupRun(
        row.id,
        seed,
        row.state,
        row.score,
        row.baseline,
        row.test,
        bool(row.collapsed),
        row.model_folder,
        row.finished_at,
        row.parent_id,
        test_refusal,
    )


def _load_parameters(session: Session, run_ids: Sequence[str]) -> Mapping[str, dict[str, Any]]:
    """Parameters of each run, without fields that a later version added, at the value of before."""
    parameters: dict[str, dict[str, Any]] = {run_id: {} for run_id in run_ids}
    columns = select(ParameterRow.run_id, ParameterRow.path, ParameterRow.kind, ParameterRow.text)
    decoded: dict[tuple[str, str, str], dict[str, Any]] = {}  # a few values stand in most of the recipes
    for some in _parts(run_ids):
        for run_id, path, kind, text in (
            session.connection().execute(columns.where(ParameterRow.run_id.in_(some))).all()
        ):
            value = decoded.get((path, kind, text))
            if value is None:
                value = decoded[path, kind, text] = without_as_before({path: decode_parameter(kind, text)})
            parameters[run_id].update(value)
    return parameters


def _parts(run_ids: Sequence[str]) -> Iterable[Sequence[str]]:
    for begin in range(0, len(run_ids), _IDS_PER_STATEMENT):
        yield run_ids[begin : begin + _IDS_PER_STATEMENT]
