"""Groups of the runs that a query selects, by the values of fields, with aggregates of their scores or other fields.

The database groups and aggregates; each group comes as one row.
"""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Double, case, cast, func, or_, select

from orchestrator.base.console import counted
from orchestrator.base.errors import InputError
from orchestrator.base.metric_names import is_better_lower
from orchestrator.base.run_states import RunState
from orchestrator.registry.dialects import median, select_items
from orchestrator.registry.fields import Column, Field, Test, parameter
from orchestrator.registry.model_origins import load_test_refusals
from orchestrator.registry.parameters import DATA, TAKEN_DIGEST
from orchestrator.registry.query_language import AGGREGATES
from orchestrator.registry.records import RecordTable
from orchestrator.registry.selection import Selection
from orchestrator.registry.tables import RUNS

MAX_PIVOT_COLUMNS = 50
SCORE = "score"
"""Field that an aggregate is of where it names none."""
DEFAULT_AGGREGATES = ("count", "n", "mean", "sd", "min", "max")
_OF_NUMBERS: dict[str, Any] = {"mean": func.avg, "sd": func.stddev_samp, "median": median, "sum": func.sum}
_DATA = f"{DATA}validation{TAKEN_DIGEST}"
_MEASUREMENT = re.compile(r"metrics\.([\w./-]+)")


class Aggregate(NamedTuple):
    """Aggregate that was asked for: the words of the person, one of `AGGREGATES`, and the name of a field."""

    label: str
    function: str
    field: str


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
    if several := [one for one in asked if one.function not in ("count", "n") and measured[one.field].of_several]:
        raise InputError(f"A run may have several values of {several[0].field}; n counts the runs that have any.")
    measured = {name: field.once(lowest=True) for name, field in measured.items()}
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
    fields = {name: selection.field(name).once() for name in (*keys, *([pivot] if pivot else []))}
    groups, num_mixed = _read_groups(connection, fields, measured, counts, conditions, asked, max(metrics, default=""))
    if num_mixed:
        remedy = f"to part them, group by params.{_DATA}, too"
        mixed = counted(num_mixed, "group")
        notes.append(f"scores on different validation data are taken together in {mixed}; {remedy}")
    groups.sort(key=lambda group: [_rank(group[name]) for name in fields])
    columns = [*keys, *dict.fromkeys(one.label for one in asked)]
    if pivot:
        columns, groups = _pivot(groups, keys, columns[len(keys) :], pivot)
    if column := (sort or "").removeprefix("-"):
        if column not in columns:
            raise InputError(f"Cannot sort groups by {column!r}; they have: {', '.join(columns)}")
        having = [group for group in groups if group.get(column) is not None]
        having.sort(key=lambda group: _rank(group[column]), reverse=column != sort)
        groups = having + [group for group in groups if group.get(column) is None]
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
    names = [name for name in measured if "metrics.test." in name.replace('"', "")]
    tests = [measured[name].of_runs(measured[name].value.is_not(None)) for name in names]
    tested = connection.scalars(select(RUNS.c.id).where(*conditions, or_(*tests))).all() if tests else ()
    refused = load_test_refusals(connection, tested)
    if not refused:
        return {}, []
    note = f"left out: the test score of {counted(len(refused), 'run')}, refused; `orchestrator runs show` says why"
    return {name: RUNS.c.id.not_in(select_items(refused)) for name in names}, [note]


def _with_own_scores(
    connection: Connection, score: Field, conditions: Sequence[Test], notes: list[str]
) -> Sequence[Test]:
    """Conditions without runs whose trials are selected, which have the score of the best one; adds notes on those."""
    parents = select(RUNS.c.parent_id).where(*conditions, RUNS.c.parent_id.is_not(None)).correlate(None)
    num_runs = select(func.count()).select_from(RUNS)
    if num_parents := connection.scalar(num_runs.where(*conditions, RUNS.c.key.in_(parents))):
        notes.append(f"left out: {counted(num_parents, 'run')} whose trials are here, with the score of the best one")
        conditions = [*conditions, RUNS.c.key.not_in(parents)]
    are_unfinished = *conditions, RUNS.c.state != RunState.COMPLETED, score.value.is_not(None)
    if num_unfinished := connection.scalar(score.beside(num_runs, outer=False).where(*are_unfinished)):
        notes.append(f"left out: the score of {counted(num_unfinished, 'run')} not completed")
    return conditions


def _read_groups(
    connection: Connection,
    fields: Mapping[str, Field],
    measured: Mapping[str, Field],
    counts: Mapping[str, Test],
    conditions: Sequence[Test],
    asked: Sequence[Aggregate],
    metric: str,
) -> tuple[list[dict[str, Any]], int]:
    """Read groups by the values of fields: these and the aggregates; and how many have scores on different data.

    Args:
        counts: conditions, by the name of a `measured` field, for the runs whose value counts; others have none.
        metric: name of the scores, where it is no field of the groups.
    """
    joined = {id(field): field for field in (*fields.values(), *measured.values())}
    columns: dict[tuple[str, str], Column] = {("", "count"): func.count()}
    for one in asked:
        if one.function != "count":
            columns |= _columns(one, measured[one.field])
    if SCORE in measured:
        data = parameter(_DATA)
        joined[id(data)] = data
        taken = case((measured[SCORE].value.is_not(None), data.value))
        columns["", "are mixed"] = func.min(taken) != func.max(taken)
    shown = [func.min(column) for field in fields.values() for column in field.shown]
    statement = select(*shown, *columns.values()).select_from(RUNS)
    counted_runs = {id(measured[name]): are_counted for name, are_counted in counts.items()}
    for place, field in joined.items():
        statement = field.beside(statement, counted_runs.get(place))
    own = [key for field in fields.values() for key in field.keys]
    groups, num_mixed = list[dict[str, Any]](), 0
    for row in connection.execute(statement.where(*conditions).group_by(*own)):
        values = iter(row)
        group = {name: field.show(*(next(values) for _ in field.shown)) for name, field in fields.items()}
        found = dict(zip(columns, values, strict=True))
        scores = group.get("metric") or metric
        groups.append(group | {one.label: _made(one, found, scores) for one in asked})
        num_mixed += bool(found.get(("", "are mixed")))
    return groups, num_mixed


def _columns(one: Aggregate, field: Field) -> dict[tuple[str, str], Column]:
    """Columns that an aggregate is made of, by the field and what of it; numbers apart from what is none."""
    parts, made = field.parts, dict[tuple[str, str], Column]()
    number = field.table.c.number if field.kind == "parameter" else parts.get("number", parts.get("boolean"))
    for kind, value in (("", number), ("other ", parts.get("text", parts.get("time")))):
        if value is not None:
            of_value = {"n": func.count(value), "min": func.min(value), "max": func.max(value)}
            if one.function in _OF_NUMBERS and not kind:
                of_value[one.function] = _OF_NUMBERS[one.function](cast(value, Double))
            made |= {(one.field, kind + name): column for name, column in of_value.items()}
    return made


def _made(one: Aggregate, found: Mapping[tuple[str, str], Any], metric: str) -> Any:
    """The value of an aggregate. Raises: InputError for text among numbers."""
    if one.function == "count":
        return found["", "count"]
    num_numbers, num_others = (found.get((one.field, name), 0) for name in ("n", "other n"))
    if one.function == "n":
        return num_numbers + num_others
    if num_others and (num_numbers or one.function in _OF_NUMBERS):
        raise InputError(f"{one.function} takes numbers, and {one.field} has other values; count and n do")
    if one.function in _OF_NUMBERS:
        value = found.get((one.field, one.function))
        return None if value is None or math.isnan(value) else value
    end = one.function
    if end in ("best", "worst"):
        measured = _MEASUREMENT.search(one.field.replace('"', ""))
        name = metric if one.field == SCORE else measured[1] if measured else one.field
        end = "min" if is_better_lower(name) == (end == "best") else "max"
    return found.get((one.field, f"other {end}" if num_others else end))


def _pivot(
    groups: Sequence[dict[str, Any]], by: Sequence[str], labels: Sequence[str], pivot: str
) -> tuple[list[str], list[dict[str, Any]]]:
    """Columns and rows, with a column for each value of a field and each aggregate. Raises: InputError for too many."""
    headings = {_rank(group[pivot]): group[pivot] for group in groups}
    if len(headings) > MAX_PIVOT_COLUMNS:
        raise InputError(f"{pivot} has {len(headings)} values; at most {MAX_PIVOT_COLUMNS} become columns.")

    def text(value: Any) -> str:
        return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    shared = Counter(map(text, headings.values()))

    def column(label: str, value: Any) -> str:
        is_ambiguous = isinstance(value, str) and shared[value] > 1  # "none" beside no value
        place = f"{pivot.rpartition('.')[2]}={json.dumps(value) if is_ambiguous else text(value)}"
        return place if len(labels) == 1 else f"{label} {place}"

    rows: dict[Hashable, dict[str, Any]] = defaultdict(dict)
    for group in groups:
        own = {name: group[name] for name in by}
        rows[tuple(map(_rank, own.values()))] |= own | {column(label, group[pivot]): group[label] for label in labels}
    columns = [column(label, headings[rank]) for rank in sorted(headings) for label in labels]
    return [*by, *dict.fromkeys(columns)], list(rows.values())


def _parts(text: str | Sequence[str]) -> list[str]:
    """Parts of a text between its commas, those in parentheses or quotes aside."""
    if not isinstance(text, str):
        return [part.strip() for part in text]
    return [part.strip() for part in re.split(r',(?![^(]*\))(?=(?:[^"]*"[^"]*")*[^"]*$)', text) if part.strip()]


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
