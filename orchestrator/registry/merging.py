"""Merging: what another registry has, joined to this one. No value that is here is ever replaced by another.

    run            new here: copied with its trials · the same: stays · another one of that id: a conflict, named with
                   the tables that differ, and left as it is · in the trash here: named, and left there
    mark           what people added to a run that is new or the same: joined; of two equal ones the older counts
    model          of such a run, or of none: recorded under its name, with a new version where theirs is taken, or was;
                   numbers that removed models had there are given to none here
    alias          new here: recorded · on other weights: a conflict
    other rows     new ones are copied, since their keys are digests; an edge of the lineage that names no run here, as
                   its run was deleted, names theirs

Each run is one transaction, and those that are the same in both take none. So a merge that breaks off is done again,
and one that is done again changes nothing. What is in the other's trash stays there. The ranking's own tables follow
from runs (`roll_up`), and are not merged.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Select, Table, bindparam, func, insert, select, union_all

from orchestrator.base.errors import InputError
from orchestrator.base.run_states import LOST_AFTER_S, RunState
from orchestrator.registry import tables
from orchestrator.registry.connections import WriteTransaction
from orchestrator.registry.database import Database
from orchestrator.registry.dialects import change_row, find_row, lock_until_commit, select_list, upsert_rows
from orchestrator.registry.parameters import name_keys
from orchestrator.registry.records import state_as_read
from orchestrator.registry.registered_models import IS_ITS_ALIAS, free_version
from orchestrator.registry.roll_up import roll_up, roll_up_tests
from orchestrator.registry.tables import ALIASES, ALL_MODELS, ALL_RUNS, LINEAGE, MODELS, OWN_MARKS, POINTS, RUNS, SERIES

_ROWS_AT_ONCE = 5_000
_RUNS_AT_ONCE = 500
RUN_TABLES = (ALL_RUNS, tables.ATTEMPTS, tables.CHECKPOINTS, tables.OWN_DATASETS, tables.PARAMETERS, SERIES, POINTS)
"""Tables whose rows belong to one run, without marks; each after those that its rows refer to."""
DIGEST_TABLES = (tables.CODE_DIFFS, tables.DATASETS)
"""Tables whose rows runs refer to by digests."""
_WHOLE = func.coalesce(ALL_RUNS.c.parent_id, ALL_RUNS.c.key)
_ITS_SERIES = SERIES.c.run_id == bindparam("run_id"), SERIES.c.name == bindparam("name")
_INSERT_POINTS = insert(POINTS).values(series=select(SERIES.c.key).where(*_ITS_SERIES).scalar_subquery())


@dataclass(frozen=True)
class Merged:
    """Outcome, or expected outcome, of bringing one thing that the other registry has."""

    what: str
    """`run`, `model` or `alias`."""
    id: str
    name: str
    change: str
    """One of new, joined, unchanged, conflict, unfinished and removed."""
    remark: str = ""


def merge_registry(
    target: Database, location: str, *, unfinished: bool = False, dry_run: bool = False
) -> Iterator[Merged]:
    """Join what another registry has to `target`; yields what became of each thing as soon as it is there.

    Runs that are `unfinished` there would differ from what becomes of them.

    Raises: RegistryError where there is no other registry; InputError where it is the target itself.
    """
    with closing(Database(location, read_only=True)) as source:
        ours, theirs = Path(str(target)), Path(str(source))  # of servers their addresses, at which no file is
        if ours == theirs or (ours.exists() and theirs.exists() and ours.samefile(theirs)):
            raise InputError(f"{target} is the registry itself; name another one")
        source.refuse_missing()
        with source.connection(writing=False) as there:
            yield from _merge(there, target, unfinished, dry_run)


def _merge(there: Connection, target: Database, unfinished: bool, dry_run: bool) -> Iterator[Merged]:
    are_here: set[str] = set()
    with target.connection(writing=not dry_run) as here:
        if not dry_run:
            name_keys(WriteTransaction.within(here), there.scalars(select(tables.NAMES.c.text)))
            for table in DIGEST_TABLES:
                _copy_rows(there, here, table)
    whole = select(RUNS.c.id, RUNS.c.name, state_as_read(LOST_AFTER_S).label("state")).where(RUNS.c.parent_id.is_(None))
    runs = there.execute(whole.order_by(RUNS.c.created_at, RUNS.c.id)).all()
    for start in range(0, len(runs), _RUNS_AT_ONCE):
        some = runs[start : start + _RUNS_AT_ONCE]
        with target.connection(writing=False) as here:
            ours = _digests(here, [run.id for run in some])
        theirs = _digests(there, ours)
        for run in some:
            change, remark = "unchanged", ""
            if run.id not in ours or ours[run.id] != theirs[run.id]:
                with target.connection(writing=not dry_run) as here:
                    change, remark = _merge_run(there, here, run, unfinished=unfinished)
            yield Merged("run", run.id, run.name, change, remark)  # it is there for good
            if change in ("new", "joined", "unchanged"):
                are_here.add(run.id)
    with target.connection(writing=not dry_run) as here:
        models = list(_merge_models(there, here, are_here))
        if not dry_run:
            own = LINEAGE.c.run_id
            _copy_rows(there, here, LINEAGE, also=lambda new: {"run_id": func.coalesce(own, new.run_id)})
            roll_up_tests(here)
    yield from models


def _merge_run(there: Connection, here: Connection, run: Any, *, unfinished: bool) -> tuple[str, str]:
    """Bring a run that is not the same here; returns what has changed, and a remark."""
    known, is_writing = find_row(here, ALL_RUNS, id=run.id), here.get_execution_options()["writing"]
    if known is not None and known.removed_at is not None:
        return "removed", f"it is in the trash here; to bring it back: orchestrator runs restore {run.id}"
    if known is not None:
        ours, theirs = (_digests(connection, [run.id])[run.id] for connection in (here, there))
        names = [table.name for table in RUN_TABLES if ours[table.name] != theirs[table.name]]
        if names:
            differing = ", ".join(names).replace(ALL_RUNS.name, RUNS.name)
            return "conflict", f"both have a run of this id, and differ in {differing}"
    elif not run.state.is_final and not unfinished:
        remedy = "resume it there, or give --unfinished" if run.state == RunState.LOST else "merge again after its end"
        return "unfinished", f"it is {run.state} there; {remedy}"
    elif is_writing:
        for table in RUN_TABLES:
            for rows in _rows(there, table, run.id):
                here.execute(_INSERT_POINTS if table is POINTS else insert(table), rows)
        here.execute(insert(tables.OPEN_RUNS), [{"run_id": run.id}])
        roll_up(here)
    keys = tuple(column.name for column in OWN_MARKS.primary_key)
    marks, others = (
        {tuple(row[name] for name in keys): row for rows in _rows(connection, OWN_MARKS, run.id) for row in rows}
        for connection in (here, there)
    )
    missing = [row for key, row in others.items() if key not in marks or row["at"] < marks[key]["at"]]
    if is_writing:
        upsert_rows(here, OWN_MARKS, missing, ("text", "author", "at"))
    return "new" if known is None else "joined" if missing else "unchanged", ""


def _digests(connection: Connection, run_ids: Iterable[str]) -> defaultdict[str, Counter[str]]:
    """Digest of what each table has of a run and its trials, by the run's id: equal where two registries have the same.

    It is the sum of the rows' hashes, whatever their order. Points are told by their number: each series has its latest
    one besides.
    """
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    dialect = connection.dialect.name
    given = {"runs": [*run_ids]}
    for table in (*RUN_TABLES, OWN_MARKS):
        statement: Any = _select_rows(table, dialect).add_columns(_WHOLE)
        if table is POINTS:
            statement = statement.with_only_columns(func.count(), _WHOLE).group_by(ALL_RUNS.c.key)
        for *row, run_id in connection.execute(statement.execution_options(yield_per=_ROWS_AT_ONCE), given):
            found[run_id][table.name] += hash(repr(row))
    return found


def _rows(connection: Connection, table: Table, run_id: str) -> Iterator[list[dict[str, Any]]]:
    """Rows of a table that belong to a run or its trials, some thousands at a time, a run before its trials."""
    ordered = _select_rows(table, connection.dialect.name).order_by(ALL_RUNS.c.key)
    rows = connection.execute(ordered.execution_options(yield_per=_ROWS_AT_ONCE), {"runs": [run_id]})
    return ([dict(row) for row in part] for part in rows.mappings().partitions())


@cache
def _select_rows(table: Table, dialect: str) -> Select[Any]:
    """Statement for the rows of a table that belong to some runs or their trials.

    Without keys, which each registry counts by itself: points have the run and the name of their series.
    """
    run, trial = ALL_RUNS.alias(), ALL_RUNS.alias()
    wanted = select(run.c.key).where(run.c.id.in_(select_list("runs")))
    family = union_all(wanted, select(trial.c.key).where(trial.c.parent_id.in_(wanted)))
    columns, owner = [column for column in table.columns if column.name not in ("key", "series")], table
    rows = select(*columns).select_from(table)
    if table is POINTS:
        rows, owner = rows.add_columns(SERIES.c.run_id, SERIES.c.name).join(SERIES), SERIES
    if table is not ALL_RUNS:
        rows = rows.join(ALL_RUNS, ALL_RUNS.c.key == owner.c.run_id)
    return rows.where(ALL_RUNS.c.key.in_(family))


def _merge_models(there: Connection, here: Connection, runs: Collection[str]) -> Iterator[Merged]:
    """Join the models of these runs, of their trials and of no run, then the aliases of models that are here now."""
    of_run = select(_WHOLE.label("whole"), ALL_MODELS).outerjoin(ALL_RUNS, ALL_RUNS.c.key == ALL_MODELS.c.run_id)
    by_version = of_run.order_by(ALL_MODELS.c.removed_at.is_not(None), ALL_MODELS.c.name, ALL_MODELS.c.version)
    coming = [dict(row) for row in there.execute(by_version).mappings()]
    is_writing = here.get_execution_options()["writing"]
    if is_writing:
        for name in sorted({model["name"] for model in coming}):
            lock_until_commit(here, f"models/{name}")
    ours = {(model.name, model.digest): model for model in here.execute(select(ALL_MODELS))}
    versions = {key: model.version for key, model in ours.items() if model.removed_at is None}
    new_versions: defaultdict[str, set[int]] = defaultdict(set)
    for model in coming:
        run, key = model.pop("whole"), (model["name"], model["digest"])
        known = ours.get(key)
        if model["removed_at"] is not None:  # specs that come from there mean those weights by that number
            if is_writing:
                upsert_rows(here, ALL_MODELS, [model | {"run_id": None}])
        elif run is None or run in runs:
            if known is None:
                handed_out = new_versions[model["name"]]  # a dry run has not recorded them
                versions[key] = free_version(here, model["name"], model["version"], handed_out)
                handed_out.add(versions[key])
                if is_writing:
                    here.execute(insert(ALL_MODELS), model | {"version": versions[key]})
            elif known.removed_at is not None or known.run_id is None:
                versions[key] = known.version
                changed = ("run_id",) if known.removed_at is None else ("created_at", "folder", "run_id", "removed_at")
                if is_writing:
                    changes = {name: model[name] for name in changed}
                    change_row(here, ALL_MODELS, changes, name=known.name, version=known.version)
            label, here_called = f"{model['name']}@{model['version']}", f"{model['name']}@{versions[key]}"
            is_new = known is None or known.removed_at is not None
            if is_new and (run is None or label != here_called):  # that of a run comes with it
                remark = "" if label == here_called else f"model {label} is {here_called} here"
                yield Merged("model", here_called, model["name"], "new", remark)
    with_weights = select(ALIASES, MODELS.c.digest).join(MODELS, IS_ITS_ALIAS).order_by(ALIASES.c.name, ALIASES.c.alias)
    for alias in there.execute(with_weights).all():
        version = versions.get((alias.name, alias.digest))
        own = find_row(here, ALIASES, name=alias.name, alias=alias.alias)
        merged = ("alias", f"{alias.name}@{alias.alias}", alias.name)
        if own is not None and own.version != version:
            remark = f"here it is {own.name}@{own.version}, there other weights, {alias.name}@{alias.version}"
            yield Merged(*merged, "conflict", f"{remark}; to move it: orchestrator models alias")
        elif version is None:
            yield Merged(*merged, "conflict", f"its model, {alias.name}@{alias.version}, does not come")
        elif own is None:
            row = {"name": alias.name, "alias": alias.alias, "set_at": alias.set_at, "version": version}
            if is_writing:
                here.execute(insert(ALIASES), row)
            yield Merged(*merged, "new", f"it is {alias.name}@{version}")


def _copy_rows(there: Connection, here: Connection, table: Table, **options: Any) -> None:
    """Copy the rows of a table that are not here; a run that is not here is not named."""
    upsert_rows(here, table, [dict(row) for row in there.execute(select(table)).mappings()], **options)
