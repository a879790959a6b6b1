"""Groups of the runs that a query selects, by the values of fields, with aggregates of their scores or of other fields.

Values are read by one statement and aggregated here: so both databases give the same numbers, and a median. They are
kept as columns, and a group is the numbers of its rows: of 100,000 runs, a mapping for each takes longer than SQL.
"""

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from sqlalchemy import ColumnElement, case, exists, select
from sqlalchemy.orm import Session

from orchestrator.errors import InputError
from orchestrator.progress import counted
from orchestrator.registry.collection_pause import paused_collection
from orchestrator.registry.groups.split_data import taken_path
from orchestrator.registry.queries.field_reader import FieldColumns, read_fields
from orchestrator.registry.queries.group_aggregates import DEFAULT_AGGREGATES, SCORE, Aggregate
from orchestrator.registry.queries.query_fields import ColumnField, Field
from orchestrator.registry.queries.refused_values import are_of_tests, without_refused
from orchestrator.registry.queries.run_listing import selecting
from orchestrator.registry.queries.selection import Selection
from orchestrator.registry.record_table import RecordTable
from orchestrator.registry.tables import ParameterRow, RunRow
from orchestrator.run_states import RunState

MAX_PIVOT_COLUMNS = 50
_METRIC = "metric"
_TASK = "task"
_DATA_PATH = taken_path("validation")
_DATA = f"params.{_DATA_PATH}"
_ID, _PARENT, _PARENTLESS, _UNFINISHED = "id of", "parent of", "id without a parent", "not completed"
_STANDING: Mapping[str, Field] = {
    _PARENT: ColumnField(RunRow.parent_id, "text"),
    _PARENTLESS: ColumnField(case((RunRow.parent_id.is_(None), RunRow.id)), "text"),
    _UNFINISHED: ColumnField(case((RunRow.state != RunState.COMPLETED, 1)), "whole number"),
}
"""Columns that say which scores count. No trial is the parent of another run, so that trials need no id here."""
_UNHASHABLE = {bool, list, dict}
"""Types of values that are no parts of keys as they are."""
Key = tuple[Hashable, ...]


@dataclass(frozen=True)
class Grouping:
    """Way to group runs, in the words of the query language."""

    by: Sequence[str]
    """Fields whose values make a group."""
    aggregates: Sequence[str]
    """Texts such as `count`, `mean` (of the score), `max(seconds)` and `mean(best(metrics.loss))`."""
    pivot: str | None = None
    """Field each of whose values becomes a column, or one for each aggregate."""
    sort: str | None = None
    """Column to sort the groups by, `-mean` from the largest down; the fields of `by` when None."""

    @classmethod
    def of(
        cls, by: str | Sequence[str], aggregates: str | Sequence[str], pivot: str | None, sort: str | None = None
    ) -> Self:
        """Make one of texts with commas or of lists; without aggregates it has the usual ones."""
        usual = ("mean",) if pivot else DEFAULT_AGGREGATES
        return cls(tuple(dict.fromkeys(_parts(by))), tuple(_parts(aggregates)) or usual, pivot, sort)


@paused_collection()
def group_runs(
    session: Session, state: ColumnElement[RunState], filter: str, grouping: Grouping, *, trials: bool, archived: bool
) -> RecordTable:
    """Group the runs that a query selects, as `Registry.grouped` describes it. Raises: InputError."""
    table = _group(session, state, filter, grouping, trials=trials, archived=archived)
    if not grouping.sort:
        return table
    column, descends = grouping.sort.removeprefix("-"), grouping.sort.startswith("-")
    if column not in table.columns:
        raise InputError(f"Cannot sort groups by {column!r}; they have: {', '.join(table.columns)}")
    having = [record for record in table.records if record.get(column) is not None]
    having.sort(key=lambda record: _rank(_hashable(record[column])), reverse=descends)
    return replace(table, records=having + [record for record in table.records if record.get(column) is None])


def _group(
    session: Session, state: ColumnElement[RunState], filter: str, grouping: Grouping, *, trials: bool, archived: bool
) -> RecordTable:
    if not grouping.by:
        raise InputError("Runs are grouped by one field at least, such as params.learning_rate.")
    aggregates = [Aggregate.parse(text) for text in grouping.aggregates]
    by, pivots = list(grouping.by), [grouping.pivot] if grouping.pivot else []
    takes_scores = any(one.is_of_scores for one in aggregates)
    own = [_DATA] if takes_scores and session.scalar(select(exists().where(ParameterRow.path == _DATA_PATH))) else []
    names = [*by, *pivots, *own, *([_METRIC, _TASK] if takes_scores else [])]
    names += [one.field for one in aggregates if one.function != "count"]
    conditions = selecting(session, state, filter, trials=trials, archived=archived, whole=True)
    selection = Selection(session, state)
    fields = {name: selection.field(name) for name in names}
    if takes_scores:
        fields |= _STANDING
    tests = are_of_tests([one.field for one in aggregates])
    if tests:
        fields[_ID] = ColumnField(RunRow.id, "text")
    read = read_fields(session, fields, conditions)
    rows: Sequence[int] = range(len(read.runs))
    notes: list[str] = []
    if tests:
        read, notes = without_refused(session, read, tests, _ID)
    if takes_scores:
        read, rows, left_out = _with_own_scores(read, rows)
        notes += left_out
        scored = _scored(read, rows, [*by, *pivots, _METRIC, _TASK, *own])
        by += _parting(scored, by, pivots)
        notes += _notes_on_data(scored, [*by, *pivots]) if own else []
    groups = _grouped(read, rows, by)
    if not pivots:
        records = [_record(read, rows, by) | _aggregated(aggregates, read, rows) for rows in groups]
        return RecordTable([*by, *dict.fromkeys(one.label for one in aggregates)], records, notes=notes)
    headings = _grouped(read, rows, pivots)
    if len(headings) > MAX_PIVOT_COLUMNS:
        raise InputError(f"{grouping.pivot} has {len(headings)} values; at most {MAX_PIVOT_COLUMNS} become columns.")
    columns = [label for of_value in headings for label in _labels(aggregates, read, of_value, pivots[0]).values()]
    records = []
    for rows in groups:
        record = _record(read, rows, by)
        for of_value in _grouped(read, rows, pivots):
            labels = _labels(aggregates, read, of_value, pivots[0])
            record |= {labels[label]: value for label, value in _aggregated(aggregates, read, of_value).items()}
        records.append(record)
    return RecordTable([*by, *dict.fromkeys(columns)], records, notes=notes)


def _with_own_scores(read: FieldColumns, rows: Sequence[int]) -> tuple[FieldColumns, Sequence[int], list[str]]:
    """Scores of completed runs alone; rows without runs whose trials are among them; and notes on the others.

    The score of such a run is that of its best trial, which would count twice.
    """
    values, notes = dict(read.values), []
    parents = (set(values[_PARENT]) & set(values[_PARENTLESS])) - {None}
    if parents:
        notes.append(f"left out: {counted(len(parents), 'run')} whose trials are here, with the score of the best one")
        rows = [row for row, run_id in enumerate(values[_PARENTLESS]) if run_id not in parents]
    scores = values[SCORE] = list(values[SCORE])
    unfinished = [row for row in rows if values[_UNFINISHED][row] and scores[row] is not None]
    if unfinished:
        num_unfinished = len({read.runs[row] for row in unfinished})
        notes.append(f"left out: the score of {counted(num_unfinished, 'run')} not completed")
    for row in unfinished:
        scores[row] = None
    return replace(read, values=values), rows, notes


def _scored(read: FieldColumns, rows: Sequence[int], names: Sequence[str]) -> FieldColumns:
    """Values that runs with a score have in some fields, each combination once."""
    names, scores = list(dict.fromkeys(names)), read.values[SCORE]
    keys = list(set(_keys(read, [row for row in rows if scores[row] is not None], names)))
    return FieldColumns({name: [key[place] for key in keys] for place, name in enumerate(names)}, range(len(keys)))


def _parting(scored: FieldColumns, by: Sequence[str], pivots: Sequence[str]) -> list[str]:
    """Fields that groups are made by as well, so that no scores of different measurements or tasks are in one."""
    parting = []
    if len(set(scored.values[_METRIC])) > 1 and _METRIC not in (*by, *pivots):
        parting.append(_METRIC)
    if _num_mixed(scored, scored.runs, [*by, *parting, *pivots], _TASK):
        parting.append(_TASK)
    return parting


def _notes_on_data(scored: FieldColumns, by: Sequence[str]) -> list[str]:
    """Note on groups whose scores are known to be of different validation data, and are taken together all the same."""
    known = [row for row, data in enumerate(scored.values[_DATA]) if data is not None]
    num_mixed = _num_mixed(scored, known, by, _DATA)
    if not num_mixed:
        return []
    mixed = counted(num_mixed, "group")
    return [f"scores on different validation data are taken together in {mixed}; to part them, group by {_DATA}, too"]


def _grouped(read: FieldColumns, rows: Sequence[int], by: Sequence[str]) -> list[list[int]]:
    """Rows that agree in some fields, group by group, in the order of these fields."""
    groups = _groups(read, rows, by)
    return [groups[key] for key in sorted(groups, key=_order)]


def _groups(read: FieldColumns, rows: Sequence[int], by: Sequence[str]) -> dict[Key, list[int]]:
    groups: dict[Key, list[int]] = defaultdict(list)
    for key, row in zip(_keys(read, rows, by), rows, strict=True):
        groups[key].append(row)
    return groups


def _num_mixed(scored: FieldColumns, rows: Sequence[int], by: Sequence[str], name: str) -> int:
    """Number of groups of some rows that have several values of a field."""
    column = scored.values[name]
    return sum(len({column[row] for row in of_group}) > 1 for of_group in _groups(scored, rows, by).values())


def _keys(read: FieldColumns, rows: Sequence[int], names: Sequence[str]) -> Iterable[Key]:
    """Values of some fields in each row, as parts of a key."""
    return zip(*(_hashables([*map(read.values[name].__getitem__, rows)]) for name in names), strict=True)


def _record(read: FieldColumns, rows: Sequence[int], by: Sequence[str]) -> dict[str, Any]:
    return {name: read.values[name][rows[0]] for name in by}


def _aggregated(aggregates: Sequence[Aggregate], read: FieldColumns, rows: Sequence[int]) -> dict[str, Any]:
    """Aggregates of a group by their labels."""
    values: dict[str, list[Any]] = {}
    for name in dict.fromkeys(one.field for one in aggregates if one.function != "count"):
        column = read.values[name]
        values[name] = [column[row] for row in rows if column[row] is not None]
    metric = read.values[_METRIC][rows[0]] if SCORE in values else None
    return {one.label: one.of(values.get(one.field, ()), len(rows), metric) for one in aggregates}


def _labels(aggregates: Sequence[Aggregate], read: FieldColumns, rows: Sequence[int], pivot: str) -> dict[str, str]:
    """Columns of the aggregates of one of the pivot's values: `seed=0`; `mean seed=0` where there are several."""
    value = read.values[pivot][rows[0]]
    shown = "none" if value is None else str(value).lower() if isinstance(value, bool) else value
    place = f"{pivot.rpartition('.')[2]}={shown}"
    return {one.label: place if len(aggregates) == 1 else f"{one.label} {place}" for one in aggregates}


def _parts(text: str | Sequence[str]) -> list[str]:
    """Parts of a text between its commas, those in parentheses aside."""
    if not isinstance(text, str):
        return [part.strip() for part in text]
    return [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def _hashables(values: list[Any]) -> list[Hashable]:
    """Values as parts of keys, most of which are that already."""
    return [*map(_hashable, values)] if not _UNHASHABLE.isdisjoint(map(type, values)) else values


def _hashable(value: Any) -> Hashable:
    """A value as part of a key; true is not 1, and a list is its text."""
    if isinstance(value, bool):
        return "boolean", str(value).lower()
    return ("list", str(value)) if isinstance(value, list | dict) else value


def _order(key: Key) -> list[tuple[int, Any]]:
    """Sort key of a group: numbers, then times, then text, then what has no value."""
    return [_rank(part) for part in key]


def _rank(part: Hashable) -> tuple[int, Any]:
    if part is None:
        return 9, 0
    if isinstance(part, int | float):
        return 0, part
    if isinstance(part, str):
        return 2, part
    return (3, part) if isinstance(part, tuple) else (1, part)
