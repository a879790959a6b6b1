"""Groups of runs that differ only in their seed: trials of sweeps and probes, students, and evaluations of models.

They are found by a condition on runs, or by what a person calls one: the beginning of its digest, a trial, or a run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    cast,
    func,
    literal,
    not_,
    or_,
    select,
    true,
)

from orchestrator.errors import InputError, NotFoundError, SeveralRunsError
from orchestrator.registry.column_types import key_of_name
from orchestrator.registry.group_records import (
    FOLD_PATH,
    FOLDS_PATH,
    LABEL_DIGITS,
    SEED_PATH,
    GroupRecord,
    GroupRun,
    group_code,
    group_key,
    group_label,
    listed,
)
from orchestrator.registry.model_origins import SplitData, load_origins, load_test_refusals, use_of
from orchestrator.registry.records import (
    MAX_CANDIDATES,
    MIN_ID_DIGITS,
    find_run,
    is_flagged,
    load_parameters_of,
    newest_called,
    paused_collection,
)
from orchestrator.registry.tables import PARAMETERS, RUNS, SERIES
from orchestrator.run_states import RunState

_EVALUATION = "evaluate"
RANKED_KINDS = ("distill", _EVALUATION)
"""Kinds of runs without trials whose own scores are ranked."""
_NUM_GROUP_COLUMNS = 5
"""Number of the columns that tell groups apart, the first ones of a run's row; the last one is the code's version."""


def of_task(task: str | None, *, archived: bool) -> ColumnElement[bool]:
    """Condition for the runs of a task, of all tasks where it is None.

    Args:
        archived: whether archived runs and their trials are among them.
    """
    asked = true() if task is None else RUNS.c.task == task
    return asked if archived else and_(asked, not_(is_flagged("archived")))


@paused_collection()
def load_groups(
    connection: Connection, condition: ColumnElement[bool], *, across_code: bool = False
) -> list[GroupRecord]:
    """Load the groups of the runs that a condition selects, with these runs alone, across their code if asked.

    A group's runs come from any number of sweeps. Runs of a task without a score that ranks are in no group.
    """
    found: dict[tuple[Any, ...], list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(_ranked_runs().where(condition)).all():
        found[row[: _NUM_GROUP_COLUMNS - across_code]].append(row)
    parameters = load_parameters_of(connection, [rows[-1].id for rows in found.values()])
    origins = load_origins(connection, parameters)
    of_all = chain.from_iterable(found.values())
    tested = [row.id for row in of_all if row.test is not None or (row.kind, row.split) == (_EVALUATION, "test")]
    refusals = load_test_refusals(connection, tested) if tested else {}
    in_folds = [row.id for rows in found.values() if FOLDS_PATH in parameters[rows[-1].id] for row in rows]
    folds = load_parameters_of(connection, in_folds, (FOLD_PATH,))
    groups = []
    for rows in found.values():
        last = rows[-1]
        own = {path: value for path, value in parameters[last.id].items() if path not in (SEED_PATH, FOLD_PATH)}
        data = SplitData.of(own, last.split)
        versions = tuple(dict.fromkeys(row.code_version for row in rows))
        code = last.code_version if len(versions) == 1 else None
        is_evaluated = last.of_kind == _EVALUATION
        shown = {} if is_evaluated else refusals
        groups.append(
            GroupRecord(
                key=group_key(last.group_key, code),
                kind=last.of_kind,
                task=last.task,
                metric=last.metric,
                split=last.split,
                runs=[
                    GroupRun._make((*row[_NUM_GROUP_COLUMNS + 2 :], shown.get(row.id), fold))
                    for row in rows
                    for fold in [folds.get(row.id, {}).get(FOLD_PATH)]
                ],
                data=data.taken,
                parameters=own,
                code_version=code,
                pooled_versions=versions if len(versions) > 1 else (),
                origin=use_of(origins[last.id], data) or (None if is_evaluated else "chosen"),
                refusal=next((refusals[row.id] for row in rows if is_evaluated and row.id in refusals), None),
            )
        )
    return groups


def is_ranked() -> ColumnElement[bool]:
    """Condition for runs that belong to a group."""
    has_score = and_(RUNS.c.task.is_not(None), RUNS.c.metric.is_not(None))
    return and_(has_score, or_(RUNS.c.parent_id.is_not(None), RUNS.c.kind.in_(RANKED_KINDS)))


@cache
def _ranked_runs() -> Select[Any]:
    """Statement that selects the runs of groups with their scores: unfinished ones first, then the oldest."""
    score, baseline, test, collapsed = (SERIES.alias().c for _ in range(4))
    parent = RUNS.alias().c
    split, seed = (PARAMETERS.alias().c for _ in range(2))
    is_alone = RUNS.c.parent_id.is_(None)
    scored_split = func.coalesce(split.text, "validation")

    def is_of(metric: Any, of_split: Any, name: Any) -> ColumnElement[bool]:
        return and_(metric.run_id == RUNS.c.key, metric.name == key_of_name(of_split + "." + name))

    def is_parameter(parameter: Any, path: str) -> ColumnElement[bool]:
        return and_(is_alone, parameter.run_id == RUNS.c.key, parameter.path == path)

    of_group: Sequence[Any] = (
        RUNS.c.task,
        RUNS.c.metric,
        RUNS.c.group_key,
        scored_split.label("split"),
        RUNS.c.code_version,
    )
    of_run: Sequence[Any] = (  # in the order of `GroupRun`
        RUNS.c.id,
        func.coalesce(RUNS.c.seed, cast(seed.number, BigInteger)),
        RUNS.c.state,
        score.value,
        baseline.value,
        test.value.label("test"),
        func.coalesce(collapsed.value, 0.0) != 0.0,
        RUNS.c.model_folder,
        RUNS.c.finished_at,
        RUNS.c.parent_id,
    )
    return (
        select(*of_group, RUNS.c.kind, func.coalesce(parent.kind, RUNS.c.kind).label("of_kind"), *of_run)
        .outerjoin(parent.id.table, parent.key == RUNS.c.parent_id)
        .outerjoin(split.path.table, and_(is_parameter(split, "split"), RUNS.c.kind == _EVALUATION))
        .outerjoin(seed.path.table, is_parameter(seed, SEED_PATH))
        .outerjoin(score.name.table, is_of(score, scored_split, RUNS.c.metric))
        .outerjoin(baseline.name.table, is_of(baseline, literal("validation"), literal("baseline.") + RUNS.c.metric))
        .outerjoin(test.name.table, and_(is_of(test, literal("test"), RUNS.c.metric), RUNS.c.kind != _EVALUATION))
        .outerjoin(collapsed.name.table, and_(collapsed.run_id == RUNS.c.key, collapsed.name == "validation.collapsed"))
        .where(is_ranked())
        .order_by(RUNS.c.finished_at.is_not(None), RUNS.c.finished_at, RUNS.c.id)
    )


def find_group(connection: Connection, name: str, state: ColumnElement[RunState]) -> GroupRecord:
    """Find the group that a name means, as `Registry.group` describes it.

    A whole digest, or one as lists show it, means that group, although longer ones begin with it, or a run is called
    so. A trial, a student or an evaluation stands for itself alone; a sweep for its own trials, where they are one
    group, without those of other sweeps that the group has.
    """
    digest, _, code = name.lower().partition(".")
    is_called = RUNS.c.group_key.between(digest, f"{digest}g")  # by the index; no digit comes after f
    ranked = select(RUNS.c.group_key, RUNS.c.code_version).where(is_called, is_ranked()).distinct()
    pairs = connection.execute(ranked.order_by(*ranked.selected_columns)).all() if len(digest) >= MIN_ID_DIGITS else []
    keys = {group_key(*pair): pair for pair in pairs if group_code(group_key(*pair)).startswith(code)}
    shown = [key for key in keys if len(digest) >= LABEL_DIGITS and name.lower() == group_label(key, len(digest))]
    if len(shown) == 1:  # a group whose code is unknown has no more to its name than others begin with
        keys = {shown[0]: keys[shown[0]]}
    named = newest_called(connection, name, state) if keys and not shown else None
    if named is not None:
        raise SeveralRunsError(f"{name!r} is the name of run {named[0].id}, and begins a group's digest; give that id.")
    if len(keys) > 1:
        begun = listed([*keys], MAX_CANDIDATES)
        raise SeveralRunsError(f"{name!r} begins the digests of several groups; give more of it: {begun}.")
    if keys:
        ((own_digest, version),) = keys.values()
        is_own = and_(RUNS.c.group_key == own_digest, RUNS.c.code_version.is_not_distinct_from(version))
        return _only(load_groups(connection, is_own), name)
    try:
        run = find_run(connection, name, state)
    except NotFoundError as error:
        raise NotFoundError(f"No group's digest begins with {name!r}. {error}") from None
    own = load_groups(connection, RUNS.c.parent_id == run.id)
    groups = own or [
        replace(group, runs=[one for one in group.runs if one.id == run.id])
        for group in load_groups(connection, RUNS.c.id == run.id)
    ]
    if not groups:
        raise InputError(f"run {run.id} ({run.kind}) has no score that ranks; name a sweep, a trial or an evaluation")
    return _only(groups, name)


def _only(groups: Sequence[GroupRecord], name: str) -> GroupRecord:
    if len(groups) == 1:
        return groups[0]
    told = [f"{one.label} ({one.metric}, run {one.runs[-1].id})" for one in groups]
    raise InputError(
        f"{name} stands for {len(groups)} groups; name one by its id, as `orchestrator leaderboard --all` shows it, "
        f"or by a run of it: {listed(told, MAX_CANDIDATES)}"
    )
