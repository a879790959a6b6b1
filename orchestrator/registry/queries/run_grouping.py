"""Groups of the runs that a query selects, by the values of fields, with aggregates of their scores or of other fields.

Values are read by one statement and aggregated here: so both databases give the same numbers, and a median.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, stdev
from typing import Any, Self

from sqlalchemy import ColumnElement, exists, select
from sqlalchemy.orm import Session

from orchestrator.errors import InputError
from orchestrator.progress import counted
from orchestrator.registry.queries.field_reader import FieldReader
from orchestrator.registry.queries.run_listing import selecting
from orchestrator.registry.queries.selection import Selection
from orchestrator.registry.record_table import RecordTable
from orchestrator.registry.tables import ParameterRow
from orchestrator.results import is_better_lower
from orchestrator.run_states import RunState

AGGREGATES = ("count", "n", "mean", "sd", "min", "max", "median", "sum", "best", "worst")
"""`count` is the number of runs, `n` of those whose value counts, `best` the highest one, of a loss the lowest."""
DEFAULT_AGGREGATES = ("count", "n", "mean", "sd", "min", "max")
MAX_PIVOT_COLUMNS = 50
_SCORE = "score"
_METRIC = "metric"
_TASK = "task"
_DATA_PATH = "data.validation_digest"
_DATA = f"params.{_DATA_PATH}"
_OF_RUN = ("id", "parent", "state")
_OF_NUMBERS = ("mean", "sd", "median", "sum")
Key = tuple[Hashable, ...]
Row = dict[str, Any]


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


@dataclass(frozen=True)
class _Aggregate:
    label: str
    function: str
    field: str

    def of(self, values: Sequence[Any], num_runs: int, metric: str) -> Any:
        """Aggregate of a group's values; None where there are too few. Raises: InputError for text.

        Args:
            metric: measurement that the values are of, which tells the better ones.
        """
        if self.function in ("count", "n"):
            return num_runs if self.function == "count" else len(values)
        if not values:
            return None
        if self.function in _OF_NUMBERS and not all(isinstance(value, int | float) for value in values):
            raise InputError(f"{self.function} takes numbers, and {self.field} has other values; count, min and max do")
        takes_lowest = is_better_lower(metric) == (self.function == "best")
        functions: dict[str, Callable[[Sequence[Any]], Any]] = {
            "mean": fmean,
            "sd": _deviation,
            "median": lambda numbers: float(median(numbers)),
            "sum": math.fsum,
            "min": min,
            "max": max,
            "best": min if takes_lowest else max,
            "worst": min if takes_lowest else max,
        }
        try:
            return functions[self.function](values)
        except TypeError:  # numbers beside text have no order
            raise InputError(f"{self.function} takes values of one type, and {self.field} has several") from None


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
    aggregates = [_aggregate(text) for text in grouping.aggregates]
    by, pivots = list(grouping.by), [grouping.pivot] if grouping.pivot else []
    takes_scores = any(one.field == _SCORE and one.function != "count" for one in aggregates)
    own = [_DATA] if takes_scores and session.scalar(select(exists().where(ParameterRow.path == _DATA_PATH))) else []
    names = list(dict.fromkeys([*by, *pivots, *own, _METRIC, _TASK, *_OF_RUN, *(one.field for one in aggregates)]))
    conditions = selecting(session, state, filter, trials=trials, archived=archived, whole=True)
    rows = list(FieldReader(session, Selection(session, state)).rows(names, conditions))
    notes: list[str] = []
    if takes_scores:
        rows, notes = _with_own_scores(rows)
        of_scores = [row for row in rows if row[_SCORE] is not None]
        if len({row[_METRIC] for row in of_scores}) > 1 and _METRIC not in (*by, *pivots):
            by.append(_METRIC)  # scores of different measurements have no mean
        if any(len({row[_TASK] for row in rows}) > 1 for rows in _grouped(of_scores, [*by, *pivots])):
            by.append(_TASK)  # nor have those of different tasks
        notes += _notes_on_data(_grouped(of_scores, [*by, *pivots])) if own else []
    groups = _grouped(rows, by)
    if not pivots:
        records = [_record(rows, by) | {one.label: _aggregated(one, rows) for one in aggregates} for rows in groups]
        return RecordTable([*by, *dict.fromkeys(one.label for one in aggregates)], records, notes=notes)
    headings = _grouped(rows, pivots)
    if len(headings) > MAX_PIVOT_COLUMNS:
        raise InputError(f"{grouping.pivot} has {len(headings)} values; at most {MAX_PIVOT_COLUMNS} become columns.")
    columns = [_label(one, of_value[0], pivots[0], len(aggregates)) for of_value in headings for one in aggregates]
    records = []
    for rows in groups:
        record = _record(rows, by)
        for of_value in _grouped(rows, pivots):
            for one in aggregates:
                record[_label(one, of_value[0], pivots[0], len(aggregates))] = _aggregated(one, of_value)
        records.append(record)
    return RecordTable([*by, *dict.fromkeys(columns)], records, notes=notes)


def _with_own_scores(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """Rows without runs whose trials are among them, with the scores of completed ones alone; and notes on the others.

    The score of such a run is that of its best trial, which would count twice.
    """
    parents = {row["parent"] for row in rows}
    own = [row for row in rows if row["id"] not in parents]
    unfinished = {row["id"] for row in own if row["state"] != RunState.COMPLETED and row[_SCORE] is not None}
    scored = [{**row, _SCORE: None} if row["id"] in unfinished else row for row in own]
    num_parents = len({row["id"] for row in rows} & parents)
    notes = []
    if num_parents:
        notes.append(f"left out: {counted(num_parents, 'run')} whose trials are here, with the score of the best one")
    if unfinished:
        notes.append(f"left out: the score of {counted(len(unfinished), 'run')} not completed")
    return scored, notes


def _notes_on_data(groups: Sequence[Sequence[Row]]) -> list[str]:
    """Note on groups whose scores are known to be of different validation data, and are taken together all the same."""
    num_mixed = sum(len({row[_DATA] for row in rows} - {None}) > 1 for rows in groups)
    if not num_mixed:
        return []
    mixed = counted(num_mixed, "group")
    return [f"scores on different validation data are taken together in {mixed}; to part them, group by {_DATA}, too"]


def _grouped(rows: Sequence[Row], by: Sequence[str]) -> list[list[Row]]:
    """Rows that agree in some fields, group by group, in the order of these fields."""
    groups: dict[Key, list[Row]] = defaultdict(list)
    keys = zip(*([_hashable(row[name]) for row in rows] for name in by), strict=True)
    for key, row in zip(keys, rows, strict=True):
        groups[key].append(row)
    return [groups[key] for key in sorted(groups, key=_order)]


def _record(rows: Sequence[Row], by: Sequence[str]) -> Row:
    return {name: rows[0][name] for name in by}


def _aggregate(text: str) -> _Aggregate:
    found = re.fullmatch(r"\s*(\w+)\s*(?:\(\s*(.+?)\s*\))?\s*", text)
    function = found[1].lower() if found else text
    if found is None or function not in AGGREGATES:
        raise InputError(f"{text.strip()!r} is no aggregate; there are {', '.join(AGGREGATES)}, such as max(seconds).")
    if function == "count" and found[2]:
        function = "n"
    label = text.strip() if found[2] is None else f"{found[1]}({found[2]})"
    return _Aggregate(label, function, found[2] or _SCORE)


def _aggregated(aggregate: _Aggregate, rows: Sequence[Row]) -> Any:
    values = [row[aggregate.field] for row in rows if row[aggregate.field] is not None]
    measured = re.search(r"metrics\.([\w./-]+)", aggregate.field)
    metric = rows[0][_METRIC] or "" if aggregate.field == _SCORE else measured[1] if measured else aggregate.field
    return aggregate.of(values, len(rows), metric)


def _deviation(values: Sequence[float]) -> float | None:
    """Standard deviation of a sample; None of a single value, and where a value is infinite."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    return stdev(values)


def _label(aggregate: _Aggregate, row: Row, pivot: str, num_aggregates: int) -> str:
    """Column of an aggregate of one of the pivot's values: `seed=0`; `mean seed=0` where there are several."""
    value = row[pivot]
    shown = "none" if value is None else str(value).lower() if isinstance(value, bool) else value
    place = f"{pivot.rpartition('.')[2]}={shown}"
    return place if num_aggregates == 1 else f"{aggregate.label} {place}"


def _parts(text: str | Sequence[str]) -> list[str]:
    """Parts of a text between its commas, those in parentheses aside."""
    if not isinstance(text, str):
        return [part.strip() for part in text]
    return [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]


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
