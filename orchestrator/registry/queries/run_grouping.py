"""Groups of the runs that a query selects, by the values of fields, with aggregates of their scores or other fields.

The database groups and aggregates; each group comes as one row. Where scores of several measurements or tasks would be
taken together, it is asked once more, with these as fields of the groups.
"""

import math
import re
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from sqlalchemy import Double, and_, case, cast, func, or_, select
from sqlalchemy.orm import Session

from orchestrator.errors import InputError
from orchestrator.measurements import is_better_lower
from orchestrator.progress import counted
from orchestrator.registry.column_types import median
from orchestrator.registry.engines.dialects import select_items
from orchestrator.registry.groups.model_origins import load_test_refusals, taken_path
from orchestrator.registry.queries.fields import FIELDS, Column, Field, Test, parameter
from orchestrator.registry.queries.run_listing import Query
from orchestrator.registry.queries.selection import Selection
from orchestrator.registry.record_table import RecordTable
from orchestrator.registry.tables import RunRow
from orchestrator.run_states import RunState

MAX_PIVOT_COLUMNS = 50
SCORE = "score"
"""Field that an aggregate is of where it names none."""
AGGREGATES = ("count", "n", "mean", "sd", "min", "max", "median", "sum", "best", "worst")
"""`count` is the number of runs, `n` of those whose value counts, `best` the highest one, of a loss the lowest."""
DEFAULT_AGGREGATES = ("count", "n", "mean", "sd", "min", "max")
_OF_NUMBERS: dict[str, Any] = {"mean": func.avg, "sd": func.stddev_samp, "median": median, "sum": func.sum}
_METRIC, _TASK, _TEST = "metric", "task", "metrics.test."
_DATA = f"params.{taken_path('validation')}"
_REFUSED = "left out: the test score of {}, refused; `orchestrator runs show` says why"
_MEASUREMENT = re.compile(r"metrics\.([\w./-]+)")


@dataclass(frozen=True)
class Aggregate:
    """One aggregate that was asked for."""

    label: str
    """Heading of its column: the words of the person who asked."""
    function: str
    """One of `AGGREGATES`."""
    field: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Make one of its text. Raises: InputError."""
        found = re.fullmatch(r"\s*(\w+)\s*(?:\(\s*(.+?)\s*\))?\s*", text)
        function = found[1].lower() if found else text
        if found is None or function not in AGGREGATES:
            raise InputError(
                f"{text.strip()!r} is no aggregate; there are {', '.join(AGGREGATES)}, such as max(seconds)."
            )
        if function == "count" and found[2]:
            function = "n"
        label = text.strip() if found[2] is None else f"{found[1]}({found[2]})"
        return cls(label, function, found[2] or SCORE)

    @property
    def is_of_scores(self) -> bool:
        """Whether it aggregates the scores of the runs rather than their number or another field."""
        return self.field == SCORE and self.function != "count"

    def takes_lowest(self, metric: str | None) -> bool:
        """Whether it is the lowest value rather than the highest, of scores of a measurement."""
        if self.function in ("min", "max"):
            return self.function == "min"
        measured = _MEASUREMENT.search(self.field)
        name = metric or "" if self.field == SCORE else measured[1] if measured else self.field
        return is_better_lower(name) == (self.function == "best")


@dataclass(frozen=True)
class Grouping:
    """Way to group runs, in the words of the query language."""

    by: Sequence[str]
    """Fields whose values make a group."""
    aggregates: Sequence[Aggregate]
    """Aggregates of each group: `count`, `mean` (of the score), `max(seconds)`, `mean(best(metrics.loss))`."""
    pivot: str | None = None
    """Field each of whose values becomes a column, or one for each aggregate."""
    sort: str | None = None
    """Column to sort the groups by, `-mean` from the largest down; the fields of `by` when None."""

    @classmethod
    def of(
        cls, by: str | Sequence[str], aggregates: str | Sequence[str], pivot: str | None, sort: str | None = None
    ) -> Self:
        """Make one of texts with commas or of lists; without aggregates it has the usual ones. Raises: InputError."""
        usual = ("mean",) if pivot else DEFAULT_AGGREGATES
        named = tuple(dict.fromkeys(_parts(by)))
        if not named:
            raise InputError("Runs are grouped by one field at least, such as task.")
        return cls(named, [Aggregate.parse(text) for text in _parts(aggregates) or usual], pivot, sort)


def group_runs(query: Query, grouping: Grouping) -> RecordTable:
    """Group the runs that a query selects, as `Registry.grouped` describes it. Raises: InputError."""
    session, selection, conditions = query.session, Selection(query.session, query.state), query.conditions()
    aggregates = grouping.aggregates
    by, pivots, notes = list(grouping.by), [grouping.pivot] if grouping.pivot else [], list[str]()
    fields = {name: selection.field(name) for name in (*by, *pivots)}
    measured = {one.field: selection.field(one.field) for one in aggregates if one.function != "count"}
    counts: dict[str, Any] = {SCORE: RunRow.state == RunState.COMPLETED}
    if tests := [field for name, field in measured.items() if _TEST in name]:
        refused = _refused(session, tests, conditions)
        if refused:
            counts |= {name: RunRow.id.not_in(select_items(session, refused)) for name in measured if _TEST in name}
            notes.append(_REFUSED.format(counted(len(refused), "run")))
    if any(one.is_of_scores for one in aggregates):
        conditions, left_out = _with_own_scores(session, measured[SCORE], conditions)
        notes += left_out
        ranked = select(RunRow.metric).where(*conditions, counts[SCORE], RunRow.metric.is_not(None)).distinct()
        if _METRIC not in (*by, *pivots) and len(session.scalars(ranked.limit(2)).all()) > 1:
            by.append(_METRIC)
    groups = _Groups(session, fields, measured, counts, conditions)
    rows = groups.read([*by, *pivots], aggregates)
    if any(row.has_several_tasks for row in rows):
        by.append(_TASK)
        rows = groups.read([*by, *pivots], aggregates)
    if num_mixed := sum(row.has_several_data for row in rows):
        mixed = counted(num_mixed, "group")
        notes.append(
            f"scores on different validation data are taken together in {mixed}; to part them, group by {_DATA}, too"
        )
    return _sorted(_table(rows, by, grouping), grouping.sort, notes)


def _refused(session: Session, tests: Sequence[Field], conditions: Sequence[Test]) -> set[str]:
    """Runs with a score on the test split that is refused: their models were made with the test data."""
    having = or_(*(field.of_runs(field.value.is_not(None)) for field in tests))
    return {*load_test_refusals(session, session.scalars(select(RunRow.id).where(*conditions, having)).all())}


def _with_own_scores(session: Session, score: Field, conditions: Sequence[Test]) -> tuple[list[Test], list[str]]:
    """Conditions without runs whose trials are selected, whose score is that of the best one; notes on what counts not.

    Such a score would count twice, and those of runs that have not completed are no results.
    """
    parents = select(RunRow.parent_id).where(*conditions, RunRow.parent_id.is_not(None)).correlate(None)
    num_parents = session.scalar(select(func.count()).select_from(RunRow).where(*conditions, RunRow.key.in_(parents)))
    notes = []
    if num_parents:
        notes.append(f"left out: {counted(num_parents, 'run')} whose trials are here, with the score of the best one")
    own = [*conditions, RunRow.key.not_in(parents)] if num_parents else list(conditions)
    unfinished = select(func.count()).select_from(RunRow).where(*own, RunRow.state != RunState.COMPLETED)
    if num_unfinished := session.scalar(unfinished.where(score.of_runs(score.value.is_not(None)))):
        notes.append(f"left out: the score of {counted(num_unfinished, 'run')} not completed")
    return own, notes


@dataclass(frozen=True)
class _Group:
    """One group as the database gives it."""

    values: Mapping[str, Any]
    """Values of the fields that the group is made by."""
    aggregates: Mapping[str, Any]
    has_several_tasks: bool
    has_several_data: bool


@dataclass(frozen=True)
class _Groups:
    """Selected runs, and the fields that are read of them."""

    session: Session
    fields: Mapping[str, Field]
    measured: Mapping[str, Field]
    """Fields that are aggregated, by name."""
    counts: Mapping[str, Any]
    """Conditions for the runs whose value of a field counts; all do where there is none."""
    conditions: Sequence[Test]

    def read(self, by: Sequence[str], aggregates: Sequence[Aggregate]) -> list[_Group]:
        """Read the groups by some fields. Raises: InputError for aggregates that a field's values have not."""
        fields = {name: self.fields.get(name) or FIELDS[name] for name in by}
        joined = {id(field): field for field in (*fields.values(), *self.measured.values())}
        parts = {key: column for one in aggregates for key, column in self._parts(one).items()}
        if any(one.is_of_scores for one in aggregates):
            data = parameter(taken_path("validation"))
            joined[id(data)] = data
            is_scored = and_(self.counts[SCORE], self.measured[SCORE].value.is_not(None))
            for name, column in ((_METRIC, RunRow.metric), (_TASK, RunRow.task), (_DATA, data.value)):
                parts |= _ends(name, case((is_scored, column)), "scored ")
        shown = [func.min(column) for field in fields.values() for column in field.shown]
        statement = select(*shown, *parts.values()).select_from(RunRow)
        for field in joined.values():
            statement = field.beside(statement)
        keys = (key for field in fields.values() for key in field.keys)
        groups = []
        for row in self.session.execute(statement.where(*self.conditions).group_by(*keys)):
            values = iter(row)
            own = {name: field.show(*(next(values) for _ in field.shown)) for name, field in fields.items()}
            found = dict(zip(parts, values, strict=True))
            made = {one.label: _made(one, found, found.get((_METRIC, "scored min"))) for one in aggregates}
            are_mixed = [found.get((name, "scored min")) != found.get((name, "scored max")) for name in (_TASK, _DATA)]
            groups.append(_Group(own, made, *are_mixed))
        return groups

    def _parts(self, one: Aggregate) -> dict[tuple[str, str], Column]:
        """Columns that an aggregate is made of, by the field and what of it; numbers apart from what is none."""
        if one.function == "count":
            return {("", "count"): func.count()}
        field, counting = self.measured[one.field], self.counts.get(one.field)
        parts = field.parts
        number = field.table.c.number if field.kind == "parameter" else parts.get("number", parts.get("boolean"))
        other = parts.get("text", parts.get("time"))
        made: dict[tuple[str, str], Column] = {}
        for kind, column in (("", number), ("other ", other)):
            if column is None:
                continue
            counted_ones = column if counting is None else case((counting, column))
            made[one.field, f"{kind}n"] = func.count(counted_ones)
            if one.function not in ("n", *_OF_NUMBERS):
                made |= _ends(one.field, counted_ones, kind)
            elif one.function != "n" and not kind:
                made[one.field, one.function] = _OF_NUMBERS[one.function](cast(counted_ones, Double))
        return made


def _ends(name: str, column: Column, kind: str = "") -> dict[tuple[str, str], Column]:
    return {(name, f"{kind}min"): func.min(column), (name, f"{kind}max"): func.max(column)}


def _made(one: Aggregate, found: Mapping[tuple[str, str], Any], metric: str | None) -> Any:
    """The value of an aggregate. Raises: InputError for text among numbers.

    Args:
        metric: measurement that ranks the group's runs, which tells the better scores.
    """
    if one.function == "count":
        return found["", "count"]
    num_numbers, num_others = (found.get((one.field, name), 0) for name in ("n", "other n"))
    if one.function == "n":
        return num_numbers + num_others
    if one.function in _OF_NUMBERS:
        if num_others:
            raise InputError(f"{one.function} takes numbers, and {one.field} has other values; count, min and max do")
        value = found.get((one.field, one.function))
        return None if value is None or math.isnan(value) else value
    if num_numbers and num_others:  # which have no order
        raise InputError(f"{one.function} takes values of one type, and {one.field} has several")
    end = "min" if one.takes_lowest(metric) else "max"
    return found.get((one.field, f"other {end}" if num_others else end))


def _table(groups: Sequence[_Group], by: Sequence[str], grouping: Grouping) -> RecordTable:
    """Table of groups, a row each, in the order of their fields. Raises: InputError for a pivot of too many values."""
    groups = sorted(groups, key=lambda group: [_rank(value) for value in group.values.values()])
    pivot, labels = grouping.pivot, list(dict.fromkeys(one.label for one in grouping.aggregates))
    if pivot is None:
        records = [{**group.values, **group.aggregates} for group in groups]
        return RecordTable([*by, *labels], records)
    headings = {_rank(group.values[pivot]): group.values[pivot] for group in groups}
    if len(headings) > MAX_PIVOT_COLUMNS:
        raise InputError(f"{pivot} has {len(headings)} values; at most {MAX_PIVOT_COLUMNS} become columns.")

    def column(label: str, value: Any) -> str:
        shown = "none" if value is None else str(value).lower() if isinstance(value, bool) else value
        place = f"{pivot.rpartition('.')[2]}={shown}"
        return place if len(labels) == 1 else f"{label} {place}"

    rows: dict[Hashable, dict[str, Any]] = defaultdict(dict)
    for group in groups:
        own = {name: group.values[name] for name in by}
        of_value = {column(label, group.values[pivot]): group.aggregates[label] for label in labels}
        rows[tuple(map(_rank, own.values()))] |= own | of_value
    columns = [column(label, headings[rank]) for rank in sorted(headings) for label in labels]
    return RecordTable([*by, *dict.fromkeys(columns)], list(rows.values()))


def _sorted(table: RecordTable, sort: str | None, notes: Sequence[str]) -> RecordTable:
    """The table sorted by a column, those without a value last. Raises: InputError for a column that it has not."""
    if not sort:
        return replace(table, notes=notes)
    column, descends = sort.removeprefix("-"), sort.startswith("-")
    if column not in table.columns:
        raise InputError(f"Cannot sort groups by {column!r}; they have: {', '.join(table.columns)}")
    having = [record for record in table.records if record.get(column) is not None]
    having.sort(key=lambda record: _rank(record[column]), reverse=descends)
    without = [record for record in table.records if record.get(column) is None]
    return replace(table, records=having + without, notes=notes)


def _parts(text: str | Sequence[str]) -> list[str]:
    """Parts of a text between its commas, those in parentheses aside."""
    if not isinstance(text, str):
        return [part.strip() for part in text]
    return [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]


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
