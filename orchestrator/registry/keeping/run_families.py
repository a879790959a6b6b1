"""A run with its trials and all rows that belong to them: told apart by digests, and copied between registries.

Which tables belong to runs follows from the tables themselves: those with a `run_id` in their primary key. What people
have added to a run later (tags, notes, flags) is no part of what the run is: `keeping_tables.ANNOTATIONS`.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Select, String, Table, collate, insert, or_, select, update
from sqlalchemy.orm import Session

from orchestrator.registry.attempt_tables import AttemptRow
from orchestrator.registry.column_types import NameKey, ReferenceKey
from orchestrator.registry.engines.dialects import lock_until_commit, select_runs, upsert
from orchestrator.registry.group_tables import OpenRunRow
from orchestrator.registry.groups.roll_up import roll_up
from orchestrator.registry.keeping_tables import ANNOTATIONS
from orchestrator.registry.registered_models import free_version
from orchestrator.registry.runs.run_names import record_names
from orchestrator.registry.tables import BaseRow, ModelRow, NameRow, PointRow, RunRow, SeriesRow, StoredModel, StoredRun

_ROWS_AT_ONCE = 5_000
_POINTS = BaseRow.metadata.tables[PointRow.__tablename__]


def tables_of_runs() -> list[Table]:
    """Tables whose rows belong to one run, without its own and without annotations; a table follows those it needs."""
    return [
        table
        for table in BaseRow.metadata.sorted_tables
        if table is _POINTS
        or (
            "run_id" in table.c
            and not table.c.run_id.nullable
            and table.name not in ANNOTATIONS
            and not table.info.get("is_derived")
        )
    ]


def family_of(session: Session, run_id: str) -> list[str]:
    """Ids of a run and its trials, the run first."""
    return [run_id, *session.scalars(select(RunRow.id).where(RunRow.parent_id == run_id).order_by(RunRow.id))]


def family_digests(session: Session, run_id: str) -> dict[str, str]:
    """Digest of what each table has of a run and its trials: equal in two registries that have the same of it."""
    own = [sorted(run.items()) for run in _runs_of_family(session, run_id)]
    digests = {RunRow.__tablename__: hashlib.sha256(repr(own).encode())}
    for table in tables_of_runs():
        digests[table.name] = hashlib.sha256()
        for part in session.execute(_rows_of_family(session, table, run_id)).partitions():
            digests[table.name].update(repr([*map(tuple, part)]).encode())
    return {name: digest.hexdigest() for name, digest in digests.items()}


def copy_family(there: Session, here: Session, run_id: str) -> list[str]:
    """Insert a run, its trials and their rows, and what these rest on; returns their ids, the run first."""
    runs = _runs_of_family(there, run_id)
    here.execute(insert(StoredRun), runs)
    for table in tables_of_runs():
        for part in there.execute(_rows_of_family(there, table, run_id)).mappings().partitions():
            rows = [dict(row) for row in part]
            _bring_shared(there, here, table, rows)
            record_names(here, {row[column.name] for column in _names_in(table) for row in rows})
            here.execute(insert(table), _with_series(here, rows, run_id) if table is _POINTS else rows)
    here.execute(insert(OpenRunRow), [{"run_id": run_id}])
    roll_up(here)
    there.expunge_all()
    return [run["id"] for run in runs]


def bring_models(there: Session, here: Session, models: Iterable[ModelRow]) -> dict[str, str]:
    """Bring the records of models; weights that are known here by this name keep their version.

    Returns the new labels of those whose version other weights have here.
    """
    renamed = {}
    for model in models:
        lock_until_commit(here.connection(), f"models/{model.name}")
        known = here.scalar(_same_weights(model))
        if known is None:
            version = version_here(here, model)
            values = {column.key: getattr(model, column.key) for column in StoredModel.__table__.columns}
            here.execute(insert(StoredModel), [{**values, "version": version}])
            if version != model.version:
                renamed[f"{model.name}@{model.version}"] = f"{model.name}@{version}"
            continue
        if known.removed_at is not None:
            known.removed_at, known.created_at = None, model.created_at
            known.folder, known.run_id = model.folder, model.run_id
            if known.version != model.version:
                renamed[f"{model.name}@{model.version}"] = f"{model.name}@{known.version}"
        known.run_id = known.run_id or model.run_id
        here.flush()
    return renamed


def version_here(here: Session, model: ModelRow) -> int:
    """Version that weights of another registry have here, also where they were removed, or would get."""
    known = here.scalar(_same_weights(model))
    return free_version(here, model.name, model.version) if known is None else known.version


def is_registered(here: Session, model: ModelRow) -> bool:
    """Whether weights of another registry are registered here under the same name, and not removed."""
    known = here.scalar(_same_weights(model))
    return known is not None and known.removed_at is None


def _same_weights(model: ModelRow) -> Select[StoredModel]:
    return select(StoredModel).where(StoredModel.name == model.name, StoredModel.digest == model.digest)


def models_of(session: Session, run_ids: Iterable[str]) -> list[ModelRow]:
    """Records of the models that runs registered, in the order of their versions."""
    statement = select(ModelRow).where(ModelRow.run_id.in_(select_runs(session, run_ids)))
    return list(session.scalars(statement.order_by(ModelRow.name, ModelRow.version)))


def _runs_of_family(session: Session, run_id: str) -> list[dict[str, Any]]:
    """Columns of a run and of its trials, but for their keys; the run first."""
    table = BaseRow.metadata.tables[StoredRun.__tablename__]
    rows = session.execute(select(table).where(table.c.key.in_(_members(run_id)))).mappings()
    runs = [{name: value for name, value in row.items() if name != "key"} for row in rows]
    return sorted(runs, key=lambda run: (run["id"] != run_id, run["id"]))


def _rows_of_family(session: Session, table: Table, run_id: str) -> Select[Any]:
    """Statement that selects the rows of a table that belong to a run or its trials, in the order of what tells them.

    A series has no key there, and its points have its run and name.
    """
    series = SeriesRow.__table__.c
    keys = {_POINTS: [series.run_id, series.name, _POINTS.c.step], SeriesRow.__table__: [series.run_id, series.name]}
    told_by = keys.get(table, [*table.primary_key])
    own = [column for column in table.columns if column.name not in ("key", "series") and column not in told_by]
    rows = select(*told_by, *own).select_from(table)
    rows = rows.join(SeriesRow, series.key == _POINTS.c.series) if table is _POINTS else rows
    texts = [key.type.text_of(key) if isinstance(key.type, ReferenceKey) else key for key in told_by]
    # Texts in the order that SQLite has: that of PostgreSQL depends on the server's locale.
    is_server = session.get_bind().dialect.name == "postgresql"
    order = [collate(key, "C") if is_server and isinstance(key.type, String) else key for key in texts]
    its = rows.where((series if table is _POINTS else table.c).run_id.in_(_members(run_id)))
    return its.order_by(*order).execution_options(yield_per=_ROWS_AT_ONCE)


def _names_in(table: Table) -> list[Column[Any]]:
    return [column for column in table.columns if isinstance(column.type, NameKey)]


def _with_series(here: Session, points: list[dict[str, Any]], run_id: str) -> list[dict[str, Any]]:
    """Points with the keys that their series have here, in place of run and name."""
    known = select(SeriesRow.run_id, SeriesRow.name, SeriesRow.key).where(SeriesRow.run_id.in_(_members(run_id)))
    keys = {(run, name): key for run, name, key in here.execute(known)}
    return [{**point, "series": keys[point.pop("run_id"), point.pop("name")]} for point in points]


def _members(run_id: str) -> Select[Any]:
    return select(StoredRun.key).where(or_(StoredRun.id == run_id, StoredRun.parent_id == run_id))


def _linked_here(here: Session, table: Table, row: dict[str, Any]) -> dict[str, Any]:
    """A row whose run is not here, without that link."""
    is_linked = "run_id" in table.c and row["run_id"] is not None
    return {**row, "run_id": None} if is_linked and here.get(RunRow, row["run_id"]) is None else row


@dataclass(frozen=True)
class SharedKey:
    """Columns of a table by which its rows need a row of a table that runs share."""

    columns: tuple[str, ...]
    shared: Table
    shared_columns: tuple[str, ...]


def shared_keys(table: Table) -> list[SharedKey]:
    """Columns by which rows of a table need rows that runs share: data, changes of code."""
    keys = [
        SharedKey(tuple(key.column_keys), key.referred_table, tuple(element.column.name for element in key.elements))
        for key in table.foreign_key_constraints
        if key.referred_table not in (StoredRun.__table__, SeriesRow.__table__, NameRow.__table__)
    ]
    if table.name == AttemptRow.__tablename__:
        keys.append(SharedKey(("diff_digest",), BaseRow.metadata.tables["code_diffs"], ("digest",)))
    return keys


def _bring_shared(there: Session, here: Session, table: Table, rows: list[dict[str, Any]]) -> None:
    """Insert the rows of shared tables that some rows need, where they are not here yet."""
    for key in shared_keys(table):
        wanted = {tuple(row[name] for name in key.columns) for row in rows}
        for values in sorted(wanted, key=repr):
            if None not in values:
                bring_row(there, here, key.shared, dict(zip(key.shared_columns, values, strict=True)))


def bring_row(there: Session, here: Session, table: Table, key: Mapping[str, Any]) -> None:
    """Insert one row of a shared table, and what it rests on; a row that is here already stays as it is."""
    statement = select(table).where(*(table.c[name] == value for name, value in key.items()))
    rows = [_linked_here(here, table, dict(row)) for row in there.execute(statement).mappings()]
    _bring_shared(there, here, table, rows)
    names = tuple(column.name for column in table.primary_key)
    for row in rows:
        here.execute(upsert(here.get_bind().dialect.name, table, names), [row])


Annotations = dict[str, dict[tuple[Any, ...], dict[str, Any]]]
"""Rows by table and by primary key."""


def annotations_of(session: Session, run_ids: Collection[str]) -> Annotations:
    """Everything that people added to some runs."""
    found: Annotations = {}
    for name in ANNOTATIONS:
        table = BaseRow.metadata.tables[name]
        rows = session.execute(select(table).where(table.c.run_id.in_(select_runs(session, run_ids)))).mappings()
        found[name] = {tuple(row[column.name] for column in table.primary_key): dict(row) for row in rows}
    return found


def missing_annotations(ours: Annotations, theirs: Annotations) -> Annotations:
    """Rows of theirs that we lack, or have with a later time."""
    return {
        name: {key: row for key, row in rows.items() if _is_wanted(name, row, ours[name].get(key))}
        for name, rows in theirs.items()
    }


def add_annotations(session: Session, missing: Annotations) -> None:
    """Write the rows that `missing_annotations` has found."""
    for name, rows in missing.items():
        table = BaseRow.metadata.tables[name]
        for key, row in rows.items():
            is_this = [column == value for column, value in zip(table.primary_key, key, strict=True)]
            if session.execute(update(table).where(*is_this).values(row)).rowcount == 0:  # type: ignore[attr-defined]
                session.execute(insert(table), [row])


def _is_wanted(name: str, row: dict[str, Any], own: dict[str, Any] | None) -> bool:
    time = ANNOTATIONS[name]
    return own is None or (time is not None and (row[time], repr(row)) < (own[time], repr(own)))
