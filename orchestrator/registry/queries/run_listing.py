"""Runs and trials as tables of plain values, read in a session, with their tags, latest metrics and parameters."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from sqlalchemy import ColumnElement, Integer, Select, func, not_, select, type_coerce
from sqlalchemy.orm import Session

from orchestrator.registry.collection_pause import paused_collection
from orchestrator.registry.marks import is_flagged
from orchestrator.registry.parameter_values import decode_parameter
from orchestrator.registry.queries.fields import FIELDS, Test, state_field
from orchestrator.registry.queries.query_tree import METRIC_SPLITS, short_names
from orchestrator.registry.queries.selection import Selection
from orchestrator.registry.record_table import RecordTable, check_page
from orchestrator.registry.run_records import metric_name
from orchestrator.registry.tables import MarkRow, NameRow, ParameterRow, RunRow, SeriesRow
from orchestrator.run_states import RunState

RUN_COLUMNS = (
    *("id", "name", "kind", "state", "parent", "number", "task", "metric", "seed", "experiment", "group"),
    *("created_at", "started_at", "finished_at", "seconds", "error"),
)
_RUNS_PER_STATEMENT = 5_000


@dataclass(frozen=True)
class Query:
    """Runs that a query selects, in a session."""

    session: Session
    state: ColumnElement[RunState]
    """State of a run as `state_as_read` gives it."""
    text: str
    trials: bool = True
    """Whether trials are among them, beside runs without a parent."""
    archived: bool = True
    """Whether archived runs are; they are in any case where the query asks for the field `archived`."""

    def conditions(self) -> list[Test]:
        """Conditions for these runs. Raises: InputError."""
        selection = Selection(self.session, self.state)
        condition = selection.where(self.text)
        return [
            *([] if condition is None else [condition]),
            *([] if self.trials else [RunRow.parent_id.is_(None)]),
            *([] if self.archived or selection.asks_for("archived", self.text) else [not_(is_flagged("archived"))]),
        ]

    def ids(self, sort: str) -> list[str]:
        """Ids in the order of a field; runs without it come last, the newest first. Raises: InputError."""
        return self._read(RunRow.id, sort)

    def _read(self, column: Any, sort: str, limit: int | None = None, offset: int = 0) -> list[Any]:
        check_page(limit, offset)
        field, descends = Selection(self.session, self.state).order(sort)
        key = field.lowest
        columns = [column.desc() if descends else column for column in key.sort_keys]
        if key is FIELDS["created_at"]:  # as in its index
            order = [*columns, RunRow.id.desc() if descends else RunRow.id]
        else:
            empty = [column.is_(None) for column in key.sort_keys]
            order = [*chain(*zip(empty, columns, strict=True)), RunRow.created_at.desc(), RunRow.id.desc()]
        page = key.beside(select(column)).where(*self.conditions()).order_by(*order).limit(limit).offset(offset)
        return list(self.session.connection().scalars(page))  # a session's rows cost twice as much

    @paused_collection()
    def table(self, sort: str, limit: int | None = None, offset: int = 0) -> RecordTable:
        """Table as `Registry.run_table` describes it. Raises: InputError."""
        return _table(self.session, self.state, self._read(RunRow.key, sort, limit, offset))

    def count(self) -> int:
        """Number of these runs. Raises: InputError."""
        return self.session.scalar(select(func.count()).select_from(RunRow).where(*self.conditions())) or 0


def list_trials(session: Session, state: ColumnElement[RunState], sweep_id: str) -> RecordTable:
    """List the trials of a sweep, in order, with the columns of `Registry.run_table`."""
    of_sweep = select(RunRow.key).where(RunRow.parent_id == sweep_id)
    return _table(session, state, session.scalars(of_sweep.order_by(RunRow.number, RunRow.id)).all())


def _key(column: Any) -> ColumnElement[int]:
    """Reference as the key that it is, of which many are read sooner than of the texts that they stand for."""
    return type_coerce(column, Integer)


def _of_runs(table: Any, keys: Sequence[int], *columns: Any) -> Select[Any]:
    """Select columns of rows that belong to some runs, after the run's key."""
    return select(_key(table.run_id), *columns).where(_key(table.run_id).in_(keys))


def _table(session: Session, state: ColumnElement[RunState], keys: Sequence[int]) -> RecordTable:
    """Table of runs in the order of their keys here, with their tags, metrics and parameters.

    A parameter's column has the last part of its path where no other one of the table ends so.
    """
    fields = {name: FIELDS.get(name, state_field(state)) for name in RUN_COLUMNS}
    shown: list[Any] = [RunRow.key, *(column for field in fields.values() for column in field.shown)]
    statement = select(*shown).select_from(RunRow)
    for field in fields.values():
        statement = field.beside(statement)
    connection = session.connection()
    records: dict[int, dict[str, Any]] = {key: {} for key in keys}
    tags: dict[int, list[str]] = defaultdict(list)
    metrics: set[str] = set()
    parameters: list[tuple[int, str, Any]] = []
    texts = dict(connection.execute(select(NameRow.key, NameRow.text)).all())
    for start in range(0, len(keys), _RUNS_PER_STATEMENT):
        some = keys[start : start + _RUNS_PER_STATEMENT]
        for row in connection.execute(statement.where(RunRow.key.in_(some))):
            key, *columns = row
            values = iter(columns)
            for name, field in fields.items():
                records[key][name] = field.show(*(next(values) for _ in field.shown))
        for key, tag in connection.execute(_of_runs(MarkRow, some, MarkRow.word).where(MarkRow.kind == "tag")):
            tags[key].append(tag)
        for key, name, value in connection.execute(_of_runs(SeriesRow, some, _key(SeriesRow.name), SeriesRow.value)):
            metrics.add(texts[name])
            records[key][f"metrics.{metric_name(texts[name])}"] = math.nan if value is None else value
        stored = _of_runs(ParameterRow, some, _key(ParameterRow.path), ParameterRow.kind, ParameterRow.text)
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
