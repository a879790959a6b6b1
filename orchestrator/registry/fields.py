"""Fields of runs: the one table of what a query can ask for, and each field's value as SQL; and runs as tables.

A field is a column of the run, or a value in the rows of another table. A comparison on rows is
`run IN (SELECT run …)`: the database finds these runs once. Only after such a comparison and an `and`, where few runs
are left, rows are looked up run by run (`EXISTS`). No text of a query becomes part of the SQL.
"""

import math
import operator
import string
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlalchemy as sql
from sqlalchemy import Connection, and_, func, not_, or_

from orchestrator.base.metric_names import is_better_lower
from orchestrator.base.run_states import RunState
from orchestrator.registry import tables
from orchestrator.registry.dialects import id_of_run, key_of_name
from orchestrator.registry.parameters import LARGEST_EXACT, decode_parameter, group_key
from orchestrator.registry.query_language import METRIC_SPLITS, WrongValueError, metric_name, series_order, short_names
from orchestrator.registry.records import RecordTable, check_page, is_flagged, paused_collection
from orchestrator.registry.tables import RUNS, of_whole_run

Column = sql.SQLColumnExpression[Any]
Test = sql.ColumnElement[bool]
ORDER: Mapping[str, Callable[[Any, Any], Any]] = {
    **{"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
}
_ALL = sql.true()
_TYPES = {"time": "time", "flag": "boolean"} | dict.fromkeys(("whole number", "seconds", "number"), "number")
"""Type of the value, by the kind of a field; text of other kinds."""
_COMMIT_MARK, COMMIT_DIGITS = "+g", 12
"""Mark before the commit in a code version, `0.1.0+g1f2e3d4c5b6a.d0a1b2c3d`, and the commit's number of digits."""
_OF_VERSIONS = string.ascii_letters + string.digits + "._-!"
"""Characters of a version before its commit."""


@dataclass(frozen=True, eq=False)
class Field:
    """Value that runs have under one name, and where it stands."""

    kind: str
    """Kind of the value: text, state, kind, commit, group, tag value, whole number, seconds, number (a
    measurement, which may be NaN), time, flag, or parameter (any of several types)."""
    value: Column
    """The value; of a parameter its text."""
    table: Any = None
    """Table whose rows hold the value, each with the key of its run; None where it is of the run itself."""
    where: Test = _ALL
    """Condition for the rows of the table."""
    has_value: Test | None = None
    """Whether a row, or the run, has a value at all, where it is not the same as that it is not NULL."""
    also: tuple[Column, ...] = ()
    """Other texts of a row by which it is found."""
    of_several: bool = False
    """Whether a run may have several values."""

    @property
    def present(self) -> Test:
        """Whether a row, or the run, has a value: a NaN is one."""
        if self.has_value is not None:
            return self.has_value
        return (self.table.c.run_id if self.kind == "number" else self.value).is_not(None)

    @property
    def is_nan(self) -> Test | None:
        """Whether the value is NaN; None of a field that never is."""
        if self.kind == "parameter":
            return and_(self.table.c.kind == "number", self.table.c.number.is_(None))
        return and_(self.present, self.value.is_(None)) if self.kind == "number" else None

    @property
    def parts(self) -> Mapping[str, Column]:
        """The value by its type: number, text, boolean or time; NULL in a run whose value is of another type."""
        if self.kind != "parameter":
            return {_TYPES.get(self.kind, "text"): self.value}
        kind, number, text = self.table.c.kind, self.table.c.number, self.table.c.text
        return {
            "number": sql.case((kind == "number", number)),
            "text": sql.case((kind.in_(("text", "json")), text)),
            "boolean": sql.case((kind == "boolean", number)),
        }

    @property
    def keys(self) -> tuple[Column, ...]:
        """Columns that are equal in runs whose values are; beside the rows of the field."""
        if self.kind == "parameter":
            kind, number, text = self.table.c.kind, self.table.c.number, self.table.c.text
            is_told_by_number = and_(number.is_not(None), func.abs(number) < LARGEST_EXACT)
            return kind, number, sql.case((is_told_by_number, None), else_=text)
        if self.kind == "number":
            return self.value, sql.case((self.present, 1))
        return (RUNS.c.group_key, RUNS.c.code_version) if self.kind == "group" else (self.value,)

    @property
    def shown(self) -> tuple[Column, ...]:
        """Columns that `show` makes the value of."""
        return (self.table.c.kind, self.table.c.text) if self.kind == "parameter" else self.keys

    def show(self, first: Any, second: Any = None) -> Any:
        """Value as it is shown, None where there is none."""
        if first is None:
            return math.nan if self.kind == "number" and second else None
        if self.kind in ("parameter", "group"):
            return (decode_parameter if self.kind == "parameter" else group_key)(first, second)
        if self.kind == "tag value":
            return first or True
        return bool(first) if self.kind == "flag" else first

    def once(self, *, lowest: bool = False) -> "Field":
        """The field itself; where a run may have several values, with each of them once, or with the lowest alone."""
        if not self.of_several:
            return self
        run = self.table.c.run_id
        value: Column = func.min(self.value) if lowest else self.value
        rows = sql.select(run, value.label("value")).where(self.where, self.value.is_not(None))
        each = (rows.group_by(run) if lowest else rows.distinct()).subquery()
        return Field(self.kind, each.c.value, each, of_several=not lowest)

    def of_runs(self, test: Test, *, run_by_run: bool = False) -> Test:
        """Condition for runs that have a value of which a test is true; never NULL, so that it can be negated."""
        if self.table is None:
            return and_(self.present, test)
        run = self.table.c.run_id
        rows = sql.select(run).where(self.where, test).correlate(RUNS)
        if run_by_run and self.kind in ("number", "parameter"):  # of which an index has a run's only row
            return rows.where(run == RUNS.c.key).exists()
        return RUNS.c.key.in_(rows)

    def beside(
        self, statement: sql.Select[Any], are_meant: Test | None = None, *, outer: bool = True
    ) -> sql.Select[Any]:
        """Join the rows of the field, or those of the runs that are meant, to a statement that selects of runs."""
        if self.table is None:
            return statement
        its = self.table.c.run_id == RUNS.c.key, self.where, *([] if are_meant is None else [are_meant])
        return statement.join(self.table, and_(*its), isouter=outer)


@lru_cache
def metric(series: str) -> Field:
    """Field of the latest value of a measurement: of `validation.f1`."""
    row = tables.SERIES.alias()
    return Field("number", row.c.value, row, row.c.name == series)


@lru_cache
def history(function: str, series: str, step: int | None) -> Field:
    """Field of one value of a measurement's history; the best, worst, lowest and highest are of what was no NaN."""
    row, points = tables.SERIES.alias(), tables.POINTS.alias()
    its = [points.c.series == row.c.key, *([] if step is None else [points.c.step <= step])]
    if function in ("first", "last", "at"):
        order = points.c.step.asc() if function == "first" else points.c.step.desc()
        value = sql.select(points.c.value).where(*its).order_by(order).limit(1)
    else:
        falls = is_better_lower(series.partition(".")[2])
        takes_lowest = {"min": True, "max": False, "best": falls, "worst": not falls}[function]
        value = sql.select((func.min if takes_lowest else func.max)(points.c.value)).where(*its)
    has_value = sql.select(points.c.step).where(*its).correlate(row).exists()
    shown = value.correlate(row).scalar_subquery()
    return Field("number", shown, row, row.c.name == series, has_value=has_value)


@lru_cache
def parameter(path: str) -> Field:
    """Field of a parameter by its whole path."""
    row = tables.PARAMETERS.alias()
    return Field("parameter", row.c.text, row, and_(row.c.path == path, row.c.kind != "null"))


@lru_cache
def tag_value(key: str) -> Field:
    """Field `tags.KEY`: whether a run has the tag KEY, or what follows the colon in its tag `KEY:VALUE`."""
    row = tables.MARKS.alias()
    is_so_called = or_(row.c.word == key, func.substr(row.c.word, 1, len(key) + 1) == f"{key}:")
    value = func.substr(row.c.word, len(key) + 2)
    return Field("tag value", value, row, and_(row.c.kind == "tag", is_so_called), of_several=True)


def state_field(state: sql.ColumnElement[RunState]) -> Field:
    """Field of the state of a run as it reads now."""
    return Field("state", sql.type_coerce(state, sql.Text), has_value=_ALL)


_tag, _note, _score = tables.MARKS.alias(), tables.OWN_MARKS.alias(), tables.SERIES.alias()
_model, _data, _named = tables.MODELS.alias(), tables.RUN_DATASETS.alias(), tables.DATASETS
_data_name = sql.select(_named.c.name).where(_named.c.fingerprint == _data.c.fingerprint).correlate(_data)
_label = _model.c.name + "@" + sql.cast(_model.c.version, sql.String)
_ranking = key_of_name(sql.literal(f"{METRIC_SPLITS[0]}.") + RUNS.c.metric)
_is_score = and_(_score.c.run_id == RUNS.c.key, _score.c.name == _ranking)
_commit = func.substr(func.ltrim(RUNS.c.code_version, _OF_VERSIONS), 1 + len(_COMMIT_MARK), COMMIT_DIGITS)
FIELDS: Mapping[str, Field] = {
    **{name: Field("text", RUNS.c[name]) for name in ("id", "name", "task", "metric", "host", "error")},
    "kind": Field("kind", RUNS.c.kind),
    "experiment": Field("text", of_whole_run("name")),
    "fingerprint": Field("text", of_whole_run("fingerprint")),
    "parent": Field("text", id_of_run(RUNS.c.parent_id)),
    "group": Field("group", RUNS.c.group_key),
    "code": Field("text", RUNS.c.code_version),
    **{name: Field("whole number", RUNS.c[name]) for name in ("seed", "number", "attempt")},
    "seconds": Field("seconds", RUNS.c.seconds),
    **{name: Field("time", RUNS.c[name]) for name in ("created_at", "started_at", "finished_at")},
    "score": Field("number", _score.c.value, _score, _is_score),
    "commit": Field("commit", sql.case((RUNS.c.code_version.contains(_COMMIT_MARK, autoescape=True), _commit))),
    "tag": Field("text", _tag.c.word, _tag, _tag.c.kind == "tag", of_several=True),
    "model": Field("text", _model.c.name, _model, _model.c.run_id.is_not(None), also=(_label,), of_several=True),
    "dataset": Field("text", _data_name.scalar_subquery(), _data, also=(_data.c.fingerprint,), of_several=True),
    "note": Field("text", _note.c.text, _note, _note.c.kind == "note", of_several=True),
    "archived": Field("flag", sql.case((is_flagged("archived"), 1.0), else_=0.0), has_value=_ALL),
    "pinned": Field("flag", sql.case((is_flagged("pinned"), 1.0), else_=0.0), has_value=_ALL),
}
"""The table of fields. `state` is one more, which depends on the registry's patience (`state_field`)."""
FIELD_NAMES = ("state", *FIELDS)


def of_two(left: Field, operator: str, right: Field) -> Test:
    """Condition for runs whose two fields compare so; false in a run that lacks one. Raises: WrongValueError."""
    if left.of_several or right.of_several:
        raise WrongValueError("a run may have several tags, models, datasets and notes; compare them with one value")
    mine, theirs = left.parts, right.parts
    common = [kind for kind in mine if kind in theirs and (kind != "boolean" or operator == "=")]
    if not common:
        raise WrongValueError(f"{' or '.join(mine)} cannot be compared with {' or '.join(theirs)}")

    def comparable(column: Any, kind: str) -> Any:
        return sql.cast(column, sql.Double) if kind == "number" and left.kind != right.kind else column

    tests = (ORDER[operator](comparable(mine[kind], kind), comparable(theirs[kind], kind)) for kind in common)
    test = func.coalesce(or_(*tests), sql.false())
    both = left.beside(sql.select(RUNS.c.key).select_from(RUNS), outer=False)
    if right.table is not left.table:
        both = right.beside(both, outer=False)
    return RUNS.c.key.in_(both.where(test).correlate(None))


RUN_COLUMNS = (
    *("id", "name", "kind", "state", "parent", "number", "task", "metric", "seed", "experiment", "group"),
    *("created_at", "started_at", "finished_at", "seconds", "error"),
)
_RUNS_PER_STATEMENT = 5_000


def read_in_order(
    connection: Connection,
    column: Any,
    conditions: Sequence[Test],
    by: tuple[Field, bool, bool],
    limit: int | None = None,
    offset: int = 0,
) -> list[Any]:
    """Read a column of runs in the order of a field; those without it come last, newest first.

    `by` has the field, whether the order descends, and whether each of the runs is known to have a value.

    Raises: InputError for a page that there is not.
    """
    check_page(limit, offset)
    key, descends, all_have_it = by[0].once(lowest=True), *by[1:]
    end, runs = None if limit is None else offset + limit, sql.select(column).where(*conditions)
    newest = RUNS.c.created_at.desc(), RUNS.c.id.desc()

    def ordered(column: Column) -> Any:
        return column.desc() if descends else column.asc()

    if key is FIELDS["created_at"]:  # as in its index
        pages = [runs.order_by(ordered(RUNS.c.created_at), ordered(RUNS.c.id))]
    elif key.table is None or key is FIELDS["score"]:  # whose name each run has itself
        pages = [key.beside(runs).order_by(ordered(key.value).nulls_last(), *newest)]
    else:  # an index of the rows has the order of the runs with a value
        has_value = key.value.is_not(None)
        order = [ordered(key.table.c.number).nulls_last()] if key.kind == "parameter" else []
        having = key.beside(sql.select(column).select_from(RUNS), outer=False).where(has_value, *conditions)
        having = having.order_by(*order, ordered(key.value), *newest)
        lacks_value = not_(key.of_runs(has_value, run_by_run=True))
        pages = [having] if all_have_it else [having, runs.where(lacks_value).order_by(*newest)]
    found: list[Any] = []
    for page in pages:
        if end is None or len(found) < end:
            found += connection.scalars(page.limit(None if end is None else end - len(found)))
    return found[offset:]


def list_trials(connection: Connection, state: sql.ColumnElement[RunState], sweep_id: str) -> RecordTable:
    """List the trials of a sweep, in order, with the columns of `Registry.run_table`."""
    of_sweep = sql.select(RUNS.c.key).where(RUNS.c.parent_id == sweep_id).order_by(RUNS.c.number, RUNS.c.id)
    return list_runs(connection, state, connection.scalars(of_sweep).all())


@paused_collection()
def list_runs(connection: Connection, state: sql.ColumnElement[RunState], keys: Sequence[int]) -> RecordTable:
    """List runs in the order of their keys here, with their tags, metrics and parameters.

    A parameter's column has the last part of its path where no other one of the table ends so.
    """
    shown = [FIELDS.get(name, state_field(state)).value for name in RUN_COLUMNS]
    runs: sql.Select[Any] = sql.select(RUNS.c.key, RUNS.c.code_version, *shown)
    records: dict[int, dict[str, Any]] = {key: {} for key in keys}
    tags: dict[int, set[str]] = defaultdict(set)
    metrics: set[str] = set()
    parameters: list[tuple[int, str, Any]] = []
    marks, latest, stored = tables.MARKS, tables.SERIES, tables.PARAMETERS
    texts = dict(connection.execute(sql.select(tables.NAMES.c.key, tables.NAMES.c.text)).all())
    for start in range(0, len(keys), _RUNS_PER_STATEMENT):
        some = keys[start : start + _RUNS_PER_STATEMENT]
        for key, code_version, *values in connection.execute(runs.where(RUNS.c.key.in_(some))):
            records[key] |= zip(RUN_COLUMNS, values, strict=True)
            records[key]["group"] = group_key(records[key]["group"], code_version)
        for key, tag in connection.execute(_of_runs(marks, some, marks.c.word).where(marks.c.kind == "tag")):
            tags[key].add(tag)
        for key, name, value in connection.execute(_of_runs(latest, some, _key(latest.c.name), latest.c.value)):
            metrics.add(texts[name])
            records[key][f"metrics.{metric_name(texts[name])}"] = math.nan if value is None else value
        its = _of_runs(stored, some, _key(stored.c.path), stored.c.kind, stored.c.text)
        for key, path, kind, text in connection.execute(its):
            parameters.append((key, texts[path], decode_parameter(kind, text)))
    names = {path: f"params.{name}" for path, name in short_names({path: None for _, path, _ in parameters}).items()}
    for key, path, value in parameters:
        records[key][names[path]] = value
    for key, record in records.items():
        record["tags"] = ", ".join(sorted(tags.get(key, ())))
    measured = [f"metrics.{metric_name(series)}" for series in sorted(metrics, key=series_order)]
    dtypes = dict.fromkeys([*measured, "seconds"], "float64") | dict.fromkeys(["seed", "number"], "Int64")
    columns_of_all = [*RUN_COLUMNS, "tags", *measured, *sorted(names.values())]
    return RecordTable(columns_of_all, [record for record in records.values() if "id" in record], dtypes)


def _of_runs(table: Any, keys: Sequence[int], *columns: Any) -> sql.Select[Any]:
    """Select columns of rows that belong to some runs, after the run's key."""
    return sql.select(_key(table.c.run_id), *columns).where(_key(table.c.run_id).in_(keys))


def _key(column: Any) -> sql.ColumnElement[int]:
    """Reference as the key that it is, of which many are read sooner than of the texts that they stand for."""
    return sql.type_coerce(column, sql.Integer)
