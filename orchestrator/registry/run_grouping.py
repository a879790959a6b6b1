"""Groups of the runs that a query selects, by the values of fields, with aggregates of their scores or other fields."""

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from sqlalchemy import Connection, and_, case, func, or_, select

from orchestrator.errors import InputError
from orchestrator.measurements import is_better_lower
from orchestrator.progress import counted
from orchestrator.registry.dialects import select_items
from orchestrator.registry.fields import Column, Field, Test, parameter
from orchestrator.registry.model_origins import load_test_refusals
from orchestrator.registry.query_language import AGGREGATES
from orchestrator.registry.records import RecordTable, paused_collection
from orchestrator.registry.selection import Selection
from orchestrator.registry.tables import RUNS
from orchestrator.run_states import RunState

MAX_PIVOT_COLUMNS = 50
SCORE = "score"
"""Field that an aggregate is of where it names none."""
DEFAULT_AGGREGATES = ("count", "n", "mean", "sd", "min", "max")
_DATA = "data.validation_digest"
_MEASUREMENT = re.compile(r"metrics\.([\w./-]+)")


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)  # `fmean` raises where a sum is infinite


def _deviation(numbers: Sequence[float]) -> float:
    """Standard deviation of a sample; NaN of one number, or an infinite one."""
    mean, degrees = _mean(numbers), len(numbers) - 1
    squares = sum((number - mean) * (number - mean) for number in numbers)
    return math.sqrt(squares / degrees) if degrees and math.isfinite(mean) else math.nan


_OF_NUMBERS: Mapping[str, Callable[[Sequence[float]], float]] = {
    **{"mean": _mean, "sd": _deviation, "median": median, "sum": sum}
}


class Aggregate(NamedTuple):
    """Aggregate that was asked for: the words of the person, one of `AGGREGATES`, and the name of a field."""

    label: str
    function: str
    field: str

    def of(self, num_runs: int, values: Sequence[Any], metric: str) -> Any:
        """The aggregate of the values in a group of runs. Raises: InputError for text where there are numbers."""
        function = self.function
        if function in ("count", "n"):
            return num_runs if function == "count" else len(values)
        kinds = {issubclass(kind, int | float) for kind in set(map(type, values))}
        if False in kinds and (True in kinds or function in _OF_NUMBERS):
            raise InputError(f"{function} takes numbers, and {self.field} has other values; count and n do")
        if not values:
            return None
        if function in _OF_NUMBERS:
            number = _OF_NUMBERS[function](list(map(float, values)))
            return None if math.isnan(number) else number
        if function in ("best", "worst"):
            measured = _MEASUREMENT.search(self.field)
            name = metric if self.field == SCORE else measured[1] if measured else self.field
            function = "min" if is_better_lower(name) == (function == "best") else "max"
        return min(values) if function == "min" else max(values)


@paused_collection()
def group_runs(
    selection: Selection,
    conditions: Sequence[Test],
    by: str | Sequence[str],
    aggregates: str | Sequence[str],
    pivot: str | None,
    sort: str | None,
) -> RecordTable:
    """Group the runs of which conditions are true, as `Registry.grouped` describes it. Raises: InputError."""
    keys, connection = list(dict.fromkeys(_parts(by))), selection.connection
    if not keys:
        raise InputError("Runs are grouped by one field at least, such as task.")
    asked = [_aggregate(text) for text in _parts(aggregates) or (("mean",) if pivot else DEFAULT_AGGREGATES)]
    measured = {one.field: selection.field(one.field) for one in asked if one.function != "count"}
    counts, notes = _refused_tests(connection, measured, conditions)
    metrics = set[str]()
    if SCORE in measured:
        counts[SCORE] = RUNS.c.state == RunState.COMPLETED
        conditions = _with_own_scores(connection, measured[SCORE], conditions, notes)
        ranked = select(RUNS.c.metric, RUNS.c.task).where(*conditions, counts[SCORE], RUNS.c.metric.is_not(None))
        kinds = connection.execute(ranked.distinct()).all()
        metrics, tasks = {metric for metric, _ in kinds}, {kind for kind in kinds if kind.task is not None}
        are_mixed = {"metric": len(metrics) > 1, "task": len(tasks) > len({metric for metric, _ in tasks})}
        keys += [name for name, is_mixed in are_mixed.items() if is_mixed and name not in (*keys, pivot)]
    fields = {name: selection.field(name) for name in (*keys, *([pivot] if pivot else []))}
    groups, num_mixed = list[dict[str, Any]](), 0
    for group, num_runs, values in _read_groups(connection, conditions, fields, measured, counts):
        metric = group.get("metric") or max(metrics, default="")
        num_mixed += len({*values[_DATA]}) > 1
        groups.append(group | {one.label: one.of(num_runs, values[one.field], metric) for one in asked})
    if num_mixed:
        remedy = f"to part them, group by params.{_DATA}, too"
        mixed = counted(num_mixed, "group")
        notes.append(f"scores on different validation data are taken together in {mixed}; {remedy}")
    columns = [*keys, *dict.fromkeys(one.label for one in asked)]
    if pivot:
        columns, groups = _pivot(groups, keys, columns[len(keys) :], pivot)
    if column := (sort or "").removeprefix("-"):
        if column not in columns:
            raise InputError(f"Cannot sort groups by {column!r}; they have: {', '.join(columns)}")
        groups.sort(key=lambda group: _rank(group.get(column)), reverse=column != sort)
        groups.sort(key=lambda group: group.get(column) is None)
    return RecordTable(columns, groups, notes=notes)


def _aggregate(text: str) -> Aggregate:
    found = re.fullmatch(r"\s*(\w+)\s*(?:\(\s*(.+?)\s*\))?\s*", text)
    if found is None or (function := found[1].lower()) not in AGGREGATES:
        raise InputError(f"{text.strip()!r} is no aggregate; there are {', '.join(AGGREGATES)}, such as max(seconds).")
    if found[2] is None:
        return Aggregate(text.strip(), function, SCORE)
    return Aggregate(f"{found[1]}({found[2]})", "n" if function == "count" else function, found[2])


def _refused_tests(
    connection: Connection, measured: Mapping[str, Field], conditions: Sequence[Test]
) -> tuple[dict[str, Test], list[str]]:
    """Conditions, by field, for the runs whose models were made without the test data; a note on the others."""
    names = [name for name in measured if "metrics.test." in name]
    tests = [measured[name].of_runs(measured[name].value.is_not(None)) for name in names]
    tested = connection.scalars(select(RUNS.c.id).where(*conditions, or_(*tests))).all() if tests else ()
    refused = load_test_refusals(connection, tested)
    if not refused:
        return {}, []
    note = f"left out: the test score of {counted(len(refused), 'run')}, refused; `orchestrator runs show` says why"
    return {name: RUNS.c.id.not_in(select_items(connection, refused)) for name in names}, [note]


def _with_own_scores(
    connection: Connection, score: Field, conditions: Sequence[Test], notes: list[str]
) -> Sequence[Test]:
    """Conditions without runs whose trials are selected, which have the score of the best one; adds notes on those."""
    parents = select(RUNS.c.parent_id).where(*conditions, RUNS.c.parent_id.is_not(None)).correlate(None)
    num_runs = select(func.count()).select_from(RUNS)
    if num_parents := connection.scalar(num_runs.where(*conditions, RUNS.c.key.in_(parents))):
        notes.append(f"left out: {counted(num_parents, 'run')} whose trials are here, with the score of the best one")
        conditions = [*conditions, RUNS.c.key.not_in(parents)]
    unfinished = num_runs.where(*conditions, RUNS.c.state != RunState.COMPLETED)
    if num_unfinished := connection.scalar(unfinished.where(score.of_runs(score.value.is_not(None)))):
        notes.append(f"left out: the score of {counted(num_unfinished, 'run')} not completed")
    return conditions


def _read_groups(
    connection: Connection,
    conditions: Sequence[Test],
    fields: Mapping[str, Field],
    measured: Mapping[str, Field],
    counts: Mapping[str, Test],
) -> Iterator[tuple[dict[str, Any], int, dict[str, list[Any]]]]:
    """Yield groups in the order of the values of fields: these, the number of runs, and what these have measured.

    Args:
        counts: conditions, by the name of a `measured` field, for the runs whose value counts.
    """
    shown = [column for field in fields.values() for column in field.shown]
    joined, columns = [*fields.values(), *measured.values()], list[Column]()
    names: list[str] = []  # of what each column is measured of
    for name, field in measured.items():
        parts = field.parts.values()
        columns += [case((counts[name], part)) for part in parts] if name in counts else parts
        names += [name] * len(parts)
    if SCORE in measured:  # the data that a score is on stand beside it
        joined.append(data := parameter(_DATA))
        columns.append(case((and_(counts[SCORE], measured[SCORE].value.is_not(None)), data.value)))
        names.append(_DATA)
    statement = select(*shown, *columns).select_from(RUNS)
    for field in {id(field): field for field in joined}.values():
        statement = field.beside(statement)
    rows, num_shown = defaultdict[tuple[Any, ...], list[tuple[Any, ...]]](list), len(shown)
    for row in connection.execute(statement.where(*conditions)).all():
        rows[row[:num_shown]].append(row[num_shown:])
    groups: dict[tuple[Any, ...], tuple[dict[str, Any], list[tuple[Any, ...]]]] = {}
    for stored in sorted(rows, key=str):  # 1 and 1.0 are one value
        cells = iter(stored)
        group = {name: field.show(*(next(cells) for _ in field.shown)) for name, field in fields.items()}
        groups.setdefault(tuple(map(_rank, group.values())), (group, []))[1].extend(rows[stored])
    for _, (group, own) in sorted(groups.items()):
        values: dict[str, list[Any]] = defaultdict(list)
        for name, column in zip(names, zip(*own, strict=True), strict=True):
            values[name] += (value for value in column if value is not None)
        yield group, len(own), values


def _pivot(
    groups: Sequence[dict[str, Any]], by: Sequence[str], labels: Sequence[str], pivot: str
) -> tuple[list[str], list[dict[str, Any]]]:
    """Columns and rows, with a column for each value of a field and each aggregate. Raises: InputError for too many."""
    headings = {_rank(group[pivot]): group[pivot] for group in groups}
    if len(headings) > MAX_PIVOT_COLUMNS:
        raise InputError(f"{pivot} has {len(headings)} values; at most {MAX_PIVOT_COLUMNS} become columns.")

    def column(label: str, value: Any) -> str:
        shown = "none" if value is None else json.dumps(value) if isinstance(value, bool) else value
        place = f"{pivot.rpartition('.')[2]}={shown}"
        return place if len(labels) == 1 else f"{label} {place}"

    rows: dict[tuple[Any, ...], dict[str, Any]] = defaultdict(dict)
    for group in groups:
        own = {name: group[name] for name in by}
        rows[tuple(map(_rank, own.values()))] |= own | {column(label, group[pivot]): group[label] for label in labels}
    columns = [column(label, headings[rank]) for rank in sorted(headings) for label in labels]
    return [*by, *dict.fromkeys(columns)], list(rows.values())


def _parts(text: str | Sequence[str]) -> list[str]:
    """Parts of a text between its commas, those in parentheses aside."""
    parts = re.split(r",(?![^(]*\))", text) if isinstance(text, str) else text
    return [part.strip() for part in parts if part.strip()]


def _rank(value: Any) -> tuple[int, Any]:
    """Sort key of a value: numbers, then times, then text, true and false, lists, and what has no value."""
    if value is None:
        return 9, 0
    if isinstance(value, bool):
        return 4, value
    if isinstance(value, int | float):
        return (1, 0) if math.isnan(value) else (0, value)
    if isinstance(value, str):
        return 3, value
    return (5, str(value)) if isinstance(value, list | dict) else (2, value)
