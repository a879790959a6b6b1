"""Merging: what another registry has, joined to this one. No value that is here is ever replaced by another.

    run            new here: copied with its trials · the same: stays · another one of that id: a conflict, named with
                   the tables that differ, and left as it is · in the trash here: named, and left there
    mark           what people added to a run that is new or the same: joined; of two equal ones the older counts
    model          weights that are new under their name: recorded, with a new version where theirs is taken, or was;
                   numbers that removed models had there are given to none here
    alias          new here: recorded · on other weights: a conflict
    other rows     by their primary key: new ones are copied, different ones are a conflict; a row whose run was removed
                   here, and is here again, names it again

Names, data and changes of code come first, as runs rest on them, and are told only where they differ. Each run is one
transaction. So a merge that breaks off is done again, and one that is done again changes nothing. What is in the
other's trash stays there.

Which tables belong to runs follows from the tables themselves. A run, its trials and their rows are the same in two
registries where a digest of each table's rows is.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Connection,
    Integer,
    Result,
    Row,
    Select,
    String,
    Table,
    Text,
    bindparam,
    collate,
    insert,
    or_,
    select,
    type_coerce,
    update,
)

from orchestrator.errors import InputError, RegistryError
from orchestrator.registry.column_types import ReferenceKey, key_of_run
from orchestrator.registry.database import Database
from orchestrator.registry.dialects import change_row, find_row, lock_until_commit, upsert
from orchestrator.registry.parameters import record_names
from orchestrator.registry.registered_models import free_version
from orchestrator.registry.roll_up import roll_up, roll_up_tests
from orchestrator.registry.tables import (
    ALIASES,
    ALL_MODELS,
    ALL_RUNS,
    METADATA,
    MODELS,
    NAMES,
    OPEN_RUNS,
    OWN_MARKS,
    POINTS,
    RUNS,
    SERIES,
)

_ROWS_AT_ONCE = 5_000
_KEY = key_of_run(bindparam("run", type_=Text))
_FAMILY = select(ALL_RUNS.c.key).where(or_(ALL_RUNS.c.key == _KEY, type_coerce(ALL_RUNS.c.parent_id, Integer) == _KEY))
"""Select the keys of a run, whose id is a parameter, and of its trials."""
_WITH_RULES = (OWN_MARKS, ALL_MODELS, ALIASES, NAMES)
_OF_THIS_PLACE = (
    *("path", "files", "recorded_at", "created_at", "name", "child_name", "parent_name", "run_id"),
    "tokenizer_digest",  # the fingerprint follows from it
)
"""Columns that say where something lies and when it was seen, which two machines may tell differently of the same."""


@dataclass(frozen=True)
class Merged:
    """Outcome, or expected outcome, of bringing one thing that the other registry has."""

    what: str
    """`run`, `model`, `alias`, or the name of a table."""
    id: str
    name: str
    change: str
    """One of new, joined, unchanged, conflict, unfinished and removed."""
    remark: str = ""


def merge_registry(
    target: Database,
    source: Database,
    *,
    unfinished: bool = False,
    dry_run: bool = False,
) -> Iterator[Merged]:
    """Join what `source` has to `target`; yields what became of each thing as soon as it is there.

    Args:
        unfinished: whether runs come along that have not ended there; they would differ from what becomes of them.
        dry_run: only tell what would become of each.
    """
    coming: set[tuple[str, str]] = set()
    with source.connection(writing=False) as there:
        with target.connection(writing=not dry_run) as here:
            if not dry_run:
                record_names(here, there.scalars(select(NAMES.c.text)).all())
            needed = [one for table in other_tables(True) for one in _merge_rows(there, here, table, dry_run=dry_run)]
        oldest_first = select(RUNS.c.id).where(RUNS.c.parent_id.is_(None)).order_by(RUNS.c.created_at, RUNS.c.id)
        for run_id in list(there.scalars(oldest_first)):
            with target.connection(writing=not dry_run) as here:
                merged = _merge_run(there, here, run_id, unfinished=unfinished, dry_run=dry_run)
            yield merged  # it is there for good
            if merged.change in ("new", "joined", "unchanged"):
                coming |= {(model.name, model.digest) for model in _models_of(there, run_id)}
        with target.connection(writing=not dry_run) as here:
            orphans = there.execute(_models().where(MODELS.c.run_id.is_(None))).all()
            coming |= {(model.name, model.digest) for model in orphans}
            rest = [one for one in needed if one.change == "conflict"]
            for model, version in _bring_models(here, orphans, dry_run=dry_run):
                label = f"{model.name}@{version}"
                rest.append(Merged("model", label, model.name, "new", _renamed(model, version)))
            if not dry_run:
                _keep_numbers(there, here)
            rest += _merge_aliases(there, here, coming, dry_run=dry_run)
            for table in other_tables(False):
                rest += _merge_rows(there, here, table, dry_run=dry_run)
            if not dry_run:
                roll_up_tests(here)
        yield from rest


def open_other(target: Database, location: str) -> Database:
    """Open another registry, by what `Registry` takes, for reading alone.

    Raises: RegistryError where there is none; InputError where it is the target itself.
    """
    other = Database(location, read_only=True)
    paths = [Path(str(url.database)) for url in (target.url, other.url) if url.get_backend_name() == "sqlite"]
    is_same_file = len(paths) == 2 and all(path.exists() for path in paths) and paths[0].samefile(paths[1])
    if is_same_file or other.url == target.url:
        raise InputError(f"{target} is the registry itself; name another one")
    if other.current_revision() is None:
        raise RegistryError(f"There is no registry at {other}; check the path.")
    other.open()  # which refuses another revision
    return other


def other_tables(needed: bool) -> list[Table]:
    """Tables without a rule of their own, whose rows are joined by primary key.

    Args:
        needed: whether runs may need their rows; else their rows name runs.
    """
    known = {*_WITH_RULES, *_tables_of_runs()}
    tables = [table for table in METADATA.sorted_tables if table not in known]
    return [table for table in tables if not table.info.get("is_derived") and ("run_id" not in table.c) == needed]


@cache
def _tables_of_runs() -> list[Table]:
    """Runs and the tables whose rows belong to one run, without marks; a table follows those it needs."""
    owned = [t for t in METADATA.sorted_tables if t is POINTS or ("run_id" in t.c and not t.c.run_id.nullable)]
    return [ALL_RUNS, *(table for table in owned if table is not OWN_MARKS and not table.info.get("is_derived"))]


def _merge_run(there: Connection, here: Connection, run_id: str, *, unfinished: bool, dry_run: bool) -> Merged:
    other, known = (find_row(*place, id=run_id) for place in ((there, RUNS), (here, ALL_RUNS)))
    assert other is not None, run_id
    merged = ("run", run_id, other.name)
    if known is not None and known.removed_at is not None:
        remark = f"it is in the trash here; to bring it back: orchestrator runs restore {run_id}"
        return Merged(*merged, "removed", remark)
    if known is not None:
        ours, theirs = (_digests(connection, run_id) for connection in (here, there))
        if differing := [name for name in ours if ours[name] != theirs[name]]:
            return Merged(*merged, "conflict", f"both have a run of this id, and differ in {', '.join(differing)}")
    elif not other.state.is_final and not unfinished:
        return Merged(*merged, "unfinished", f"it is {other.state} there; merge again when it has ended")
    elif not dry_run:
        _copy_run(there, here, run_id)
    missing = _missing_marks(there, here, run_id)
    if missing and not dry_run:
        keys = tuple(column.name for column in OWN_MARKS.primary_key)
        here.execute(upsert(here.dialect.name, OWN_MARKS, keys, ("text", "author", "at")), missing)
    brought = _bring_models(here, _models_of(there, run_id), dry_run=dry_run)
    remark = "; ".join(filter(None, (_renamed(model, version) for model, version in brought)))
    return Merged(*merged, "new" if known is None else "joined" if missing else "unchanged", remark)


def _digests(connection: Connection, run_id: str) -> dict[str, str]:
    """Digest of what each table has of a run and its trials: equal in two registries that have the same of it."""
    found = {}
    for table in _tables_of_runs():
        digest = hashlib.sha256()
        for part in _rows_of_run(connection, table, run_id).partitions():
            digest.update(repr([*map(tuple, part)]).encode())
        found[RUNS.name if table is ALL_RUNS else table.name] = digest.hexdigest()
    return found


def _copy_run(there: Connection, here: Connection, run_id: str) -> None:
    """Insert a run, its trials and their rows."""
    for table in _tables_of_runs():
        for part in _rows_of_run(there, table, run_id).mappings().partitions():
            rows = [dict(row) for row in part]
            here.execute(insert(table), _with_series(here, rows, run_id) if table is POINTS else rows)
    here.execute(insert(OPEN_RUNS), [{"run_id": run_id}])
    roll_up(here)


def _rows_of_run(connection: Connection, table: Table, run_id: str) -> Result[Any]:
    """Rows of a table that belong to a run or its trials, in the order of what tells them."""
    return connection.execute(_select_rows(table, connection.dialect.name), {"run": run_id})


@cache
def _select_rows(table: Table, dialect: str) -> Select[Any]:
    """Statement that selects the rows of a table that belong to a family.

    Without keys, which each registry counts by itself: points have the run and the name of their series.
    """
    series = SERIES.c
    keys = {ALL_RUNS: [ALL_RUNS.c.id], SERIES: [series.run_id, series.name]}
    keys[POINTS] = [*keys[SERIES], POINTS.c.step]
    told_by = keys.get(table, [*table.primary_key])
    names = {"key", "series", *(key.name for key in told_by)}
    rows = select(*told_by, *(column for column in table.columns if column.name not in names)).select_from(table)
    if table is POINTS:
        rows = rows.join(SERIES, series.key == POINTS.c.series)
    owner = ALL_RUNS.c.key if table is ALL_RUNS else table.c.get("run_id", series.run_id)
    texts = [key.type.text_of(key) if isinstance(key.type, ReferenceKey) else key for key in told_by]
    # Texts in the order that SQLite has: that of PostgreSQL depends on the server's locale.
    order = [collate(key, "C") if dialect == "postgresql" and isinstance(key.type, String) else key for key in texts]
    first = [ALL_RUNS.c.parent_id.is_not(None)] if table is ALL_RUNS else []
    return rows.where(owner.in_(_FAMILY)).order_by(*first, *order).execution_options(yield_per=_ROWS_AT_ONCE)


def _with_series(here: Connection, points: list[dict[str, Any]], run_id: str) -> list[dict[str, Any]]:
    """Points with the keys that their series have here, in place of run and name."""
    known = select(SERIES.c.run_id, SERIES.c.name, SERIES.c.key).where(SERIES.c.run_id.in_(_FAMILY))
    keys = {(run, name): key for run, name, key in here.execute(known, {"run": run_id})}
    return [{**point, "series": keys[point.pop("run_id"), point.pop("name")]} for point in points]


def _missing_marks(there: Connection, here: Connection, run_id: str) -> list[dict[str, Any]]:
    """Marks of a run and its trials there that it has not here, or has with a later time."""
    ours, theirs = (
        {tuple(row[column.name] for column in OWN_MARKS.primary_key): dict(row) for row in rows.mappings()}
        for rows in (_rows_of_run(connection, OWN_MARKS, run_id) for connection in (here, there))
    )
    return [row for key, row in theirs.items() if key not in ours or _age(row) < _age(ours[key])]


def _age(mark: dict[str, Any]) -> tuple[Any, str]:
    return mark["at"], repr(mark)


def _models() -> Select[Any]:
    return select(MODELS).order_by(MODELS.c.name, MODELS.c.version)


def _models_of(connection: Connection, run_id: str) -> Sequence[Row[Any]]:
    """Models that a run and its trials registered, in the order of their versions."""
    return connection.execute(_models().where(MODELS.c.run_id.in_(_FAMILY)), {"run": run_id}).all()


def _bring_models(here: Connection, models: Iterable[Row[Any]], *, dry_run: bool) -> list[tuple[Row[Any], int]]:
    """Bring the records of models; weights that are known here by this name keep their version.

    Returns those that were not registered here, each with the version that it has here.
    """
    brought = []
    for model in models:
        if not dry_run:
            lock_until_commit(here, f"models/{model.name}")
        known = find_row(here, ALL_MODELS, name=model.name, digest=model.digest)
        version = free_version(here, model.name, model.version) if known is None else known.version
        if known is None or known.removed_at is not None:
            brought.append((model, version))
        if dry_run:
            continue
        if known is None:
            here.execute(insert(ALL_MODELS), [{**model._mapping, "version": version}])
            continue
        changes: dict[str, Any] = {"run_id": known.run_id or model.run_id}
        if known.removed_at is not None:
            changes = {name: model._mapping[name] for name in ("created_at", "folder", "run_id", "removed_at")}
        change_row(here, ALL_MODELS, changes, name=known.name, version=known.version)
    return brought


def _renamed(model: Row[Any], version: int) -> str:
    """Remark on a model whose version other weights have here; empty of any other."""
    theirs = f"{model.name}@{model.version}"
    return "" if version == model.version else f"model {theirs} is {model.name}@{version} here"


def _keep_numbers(there: Connection, here: Connection) -> None:
    """Note the numbers of models that were removed there: specs that come from there mean those weights."""
    removed = select(ALL_MODELS).where(ALL_MODELS.c.removed_at.is_not(None))
    if rows := [{**model, "run_id": None} for model in there.execute(removed).mappings()]:
        here.execute(upsert(here.dialect.name, ALL_MODELS, ()), rows)


def _merge_aliases(
    there: Connection, here: Connection, coming: Collection[tuple[str, str]], *, dry_run: bool
) -> Iterator[Merged]:
    """Join aliases.

    Args:
        coming: models that have come, or would, by name and digest.
    """
    is_its = (MODELS.c.name == ALIASES.c.name) & (MODELS.c.version == ALIASES.c.version)
    with_weights = select(ALIASES, MODELS.c.digest).join(MODELS, is_its).order_by(ALIASES.c.name, ALIASES.c.alias)
    for alias in there.execute(with_weights).all():
        same = (MODELS.c.name == alias.name) & (MODELS.c.digest == alias.digest)
        version = here.scalar(select(MODELS.c.version).where(same))
        own = find_row(here, ALIASES, name=alias.name, alias=alias.alias)
        merged = ("alias", f"{alias.name}@{alias.alias}", alias.name)
        if own is not None and own.version != version:
            remark = f"here it is {own.name}@{own.version}, there other weights, {alias.name}@{alias.version}"
            yield Merged(*merged, "conflict", f"{remark}; to move it: orchestrator models alias")
        elif own is None and version is None and (alias.name, alias.digest) not in coming:
            yield Merged(*merged, "conflict", f"its model, {alias.name}@{alias.version}, does not come")
        elif own is None:
            if not dry_run:
                values = {name: alias._mapping[name] for name in ("name", "alias", "set_at")}
                here.execute(insert(ALIASES), [{**values, "version": version}])
            yield Merged(*merged, "new", f"it is {alias.name}@{version or alias.version}")


def _merge_rows(there: Connection, here: Connection, table: Table, *, dry_run: bool) -> Iterator[Merged]:
    """Join the rows of a table by primary key; a run that is not here is not named."""

    def is_here(run_id: str | None) -> bool:
        return run_id is not None and find_row(here, RUNS, id=run_id) is not None

    for row in there.execute(select(table).order_by(*table.primary_key)).mappings().all():
        is_it = [column == row[column.name] for column in table.primary_key]
        own = here.execute(select(table).where(*is_it)).mappings().first()
        merged = (table.name, " ".join(str(row[key.name]) for key in table.primary_key), str(row.get("name", "")))
        run = {"run_id": row["run_id"] if is_here(row["run_id"]) else None} if "run_id" in row else {}
        if own is None:
            if not dry_run:
                here.execute(upsert(here.dialect.name, table, ()), [{**row, **run}])
            yield Merged(*merged, "new")
        elif run.get("run_id") and not is_here(own["run_id"]):  # as lineage loses it when the run is removed
            if not dry_run:
                here.execute(update(table).where(*is_it).values(run))
            yield Merged(*merged, "joined")
        elif differing := [name for name in row if row[name] != own[name] and name not in _OF_THIS_PLACE]:
            yield Merged(*merged, "conflict", f"they differ in {', '.join(differing)}")
