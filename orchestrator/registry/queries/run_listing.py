"""Runs and trials as tables of plain values, with their tags, latest metrics and parameters."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, Select, select, type_coerce

from orchestrator.registry.parameter_values import decode_parameter
from orchestrator.registry.queries.fields import FIELDS, Test, state_field
from orchestrator.registry.queries.query_tree import METRIC_SPLITS, short_names
from orchestrator.registry.queries.selection import Selection
from orchestrator.registry.record_table import RecordTable, check_page, paused_collection
from orchestrator.registry.run_records import metric_name
from orchestrator.registry.tables import MARKS, NAMES, PARAMETERS, RUNS, SERIES
from orchestrator.run_states import RunState

RUN_COLUMNS = (
    *("id", "name", "kind", "state", "parent", "number", "task", "metric", "seed", "experiment", "group"),
    *("created_at", "started_at", "finished_at", "seconds", "error"),
)
_RUNS_PER_STATEMENT = 5_000


@paused_collection()
def list_runs(
    selection: Selection, conditions: Sequence[Test], sort: str, limit: int | None, offset: int
) -> RecordTable:
    """List the runs of which conditions are true, as `Registry.run_table` describes it. Raises: InputError."""
    keys = read_in_order(selection, RUNS.c.key, conditions, sort, limit, offset)
    return _table(selection.connection, selection.state, keys)


def read_in_order(
    selection: Selection, column: Any, conditions: Sequence[Test], sort: str, limit: int | None = None, offset: int = 0
) -> list[Any]:
    """Read a column of runs in the order of a field; those without it come last, newest first. Raises: InputError."""
    check_page(limit, offset)
    field, descends = selection.order(sort)
    key = field.lowest
    columns = [each.desc() if descends else each for each in key.sort_keys]
    if key is FIELDS["created_at"]:  # as in its index
        order = [*columns, RUNS.c.id.desc() if descends else RUNS.c.id]
    else:
        empty = [each.is_(None) for each in key.sort_keys]
        order = [*chain(*zip(empty, columns, strict=True)), RUNS.c.created_at.desc(), RUNS.c.id.desc()]
    page = key.beside(select(column)).where(*conditions).order_by(*order).limit(limit).offset(offset)
    return list(selection.connection.scalars(page))


def list_trials(connection: Connection, state: ColumnElement[RunState], sweep_id: str) -> RecordTable:
    """List the trials of a sweep, in order, with the columns of `Registry.run_table`."""
    of_sweep = select(RUNS.c.key).where(RUNS.c.parent_id == sweep_id)
    return _table(connection, state, connection.scalars(of_sweep.order_by(RUNS.c.number, RUNS.c.id)).all())


def _key(column: Any) -> ColumnElement[int]:
    """Reference as the key that it is, of which many are read sooner than of the texts that they stand for."""
    return type_coerce(column, Integer)


def _of_runs(table: Any, keys: Sequence[int], *columns: Any) -> Select[Any]:
    """Select columns of rows that belong to some runs, after the run's key."""
    return select(_key(table.c.run_id), *columns).where(_key(table.c.run_id).in_(keys))


def _table(connection: Connection, state: ColumnElement[RunState], keys: Sequence[int]) -> RecordTable:
    """Table of runs in the order of their keys here, with their tags, metrics and parameters.

    A parameter's column has the last part of its path where no other one of the table ends so.
    """
    fields = {name: FIELDS.get(name, state_field(state)) for name in RUN_COLUMNS}
    shown: list[Any] = [RUNS.c.key, *(column for field in fields.values() for column in field.shown)]
    statement = select(*shown).select_from(RUNS)
    for field in fields.values():
        statement = field.beside(statement)
    records: dict[int, dict[str, Any]] = {key: {} for key in keys}
    tags: dict[int, list[str]] = defaultdict(list)
    metrics: set[str] = set()
    parameters: list[tuple[int, str, Any]] = []
    texts = dict(connection.execute(select(NAMES.c.key, NAMES.c.text)).all())
    for start in range(0, len(keys), _RUNS_PER_STATEMENT):
        some = keys[start : start + _RUNS_PER_STATEMENT]
        for row in connection.execute(statement.where(RUNS.c.key.in_(some))):
            key, *columns = row
            values = iter(columns)
            for name, field in fields.items():
                records[key][name] = field.show(*(next(values) for _ in field.shown))
        for key, tag in connection.execute(_of_runs(MARKS, some, MARKS.c.word).where(MARKS.c.kind == "tag")):
            tags[key].append(tag)
        for key, name, value in connection.execute(_of_runs(SERIES, some, _key(SERIES.c.name), SERIES.c.value)):
            metrics.add(texts[name])
            records[key][f"metrics.{metric_name(texts[name])}"] = math.nan if value is None else value
        stored = _of_runs(PARAMETERS, some, _key(PARAMETERS.c.path), PARAMETERS.c.kind, PARAMETERS.c.text)
        for key, path, kind, text in connection.execute(stored):
            parameters.append((key, texts[path], decode_parameter(kind, text)))
    names = {path: f"params.{name}" for path, name in short_names(dict.fromkeys(p for _, p, _ in parameters)).items()}
    for key, path, value in parameters:
        records[key][names[path]] = value
    for key, record in records.items():
        record["tags"] = ", ".join(sorted(tags.get(key, ())))
    parts = sorted((series.split(".", 1) for series in metrics), key=lambda part: (METRIC_SPLITS.index(part[0]), part))
    measured = [f"metrics.{metric_name('.'.join(part))}" for part in parts]
    dtypes = dict.fromkeys([*measured, "seconds"], "float64") | dict.fromkeys(["seed", "number"], "Int64")
    columns_of_all = [*RUN_COLUMNS, "tags", *measured, *sorted(names.values())]
    return RecordTable(columns_of_all, [record for record in records.values() if "id" in record], dtypes)
