"""Fields of runs: the one table of what a query can ask for, and each field's value as SQL.

A field is a column of the run, or a value in the rows of another table. A comparison on rows is always
`run IN (SELECT run …)`: the database finds these runs once, whatever stands beside the comparison. No text of a query
becomes part of the SQL: names and values are bound parameters, columns come from the table below.
"""

import math
import string
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlalchemy as sql

from orchestrator.measurements import is_better_lower
from orchestrator.registry import tables
from orchestrator.registry.column_types import id_of_run, key_of_name
from orchestrator.registry.group_records import group_key
from orchestrator.registry.parameters import LARGEST_EXACT, decode_parameter
from orchestrator.registry.query_language import METRIC_SPLITS
from orchestrator.registry.records import is_flagged
from orchestrator.registry.tables import RUNS, of_whole_run
from orchestrator.run_states import RunState

Column = sql.SQLColumnExpression[Any]
Test = sql.ColumnElement[bool]
_TYPES = {"time": "time", "flag": "boolean"} | dict.fromkeys(("whole number", "seconds", "number"), "number")
_COMMIT_MARK, COMMIT_DIGITS = "+g", 12
"""Mark before the commit in a code version, `0.1.0+g1f2e3d4c5b6a.d0a1b2c3d`, and the commit's number of digits."""
_OF_VERSIONS = string.ascii_letters + string.digits + "._-!"
"""Characters of a version before its commit."""
_ALL = sql.true()
_tags = sql.select(tables.MARKS.c.run_id, tables.MARKS.c.word).where(tables.MARKS.c.kind == "tag").distinct().subquery()


@dataclass(frozen=True)
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
    link: tuple[Column, Column] | None = None
    """Column of a row, and what it is equal to in the row's run."""
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
            return sql.and_(self.table.c.kind == "number", self.table.c.number.is_(None))
        return sql.and_(self.present, self.value.is_(None)) if self.kind == "number" else None

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
            is_told_by_number = sql.and_(number.is_not(None), sql.func.abs(number) < LARGEST_EXACT)
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
        if self.kind == "parameter":
            return decode_parameter(first, second)
        if self.kind == "group":
            return group_key(first, second)
        if self.kind == "tag value":
            return first or True
        return bool(first) if self.kind == "flag" else first

    def lowest(self) -> "Field":
        """The field itself; where a run may have several values, one of the lowest of them."""
        if not self.of_several:
            return self
        run = self.table.c.run_id
        rows = sql.select(run, sql.func.min(self.value).label("value")).where(self.where).group_by(run).subquery()
        return Field(self.kind, rows.c.value, rows)

    def of_runs(self, test: Test) -> Test:
        """Condition for runs that have a value of which a test is true; never NULL, so that it can be negated."""
        if self.table is None:
            return sql.and_(self.present, test)
        rows = sql.select(self.table.c.run_id).where(self.where, test).correlate(None)
        if self.link is None:
            return RUNS.c.key.in_(rows)
        mine, theirs = self.link
        rows = rows.add_columns(mine).where(mine.in_(sql.select(theirs).distinct().correlate(None)))
        return sql.func.coalesce(sql.tuple_(RUNS.c.key, theirs).in_(rows), sql.false())

    def beside(self, statement: sql.Select[Any], *, outer: bool = True) -> sql.Select[Any]:
        """Join the rows of the field to a statement that selects of runs."""
        if self.table is None:
            return statement
        linked = _ALL if self.link is None else self.link[0] == self.link[1]
        its = sql.and_(self.table.c.run_id == RUNS.c.key, linked, self.where)
        return statement.join(self.table, its, isouter=outer)


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
        value = sql.select((sql.func.min if takes_lowest else sql.func.max)(points.c.value)).where(*its)
    has_value = sql.select(points.c.step).where(*its).correlate(row).exists()
    shown = value.correlate(row).scalar_subquery()
    return Field("number", shown, row, row.c.name == series, has_value=has_value)


@lru_cache
def parameter(path: str) -> Field:
    """Field of a parameter by its whole path."""
    row = tables.PARAMETERS.alias()
    return Field("parameter", row.c.text, row, sql.and_(row.c.path == path, row.c.kind != "null"))


@lru_cache
def tag_value(key: str) -> Field:
    """Field `tags.KEY`: whether a run has the tag KEY, or what follows the colon in its tag `KEY:VALUE`."""
    row = _tags.alias()
    is_so_called = sql.or_(row.c.word == key, sql.func.substr(row.c.word, 1, len(key) + 1) == f"{key}:")
    return Field("tag value", sql.func.substr(row.c.word, len(key) + 2), row, is_so_called, of_several=True)


def state_field(state: sql.ColumnElement[RunState]) -> Field:
    """Field of the state of a run as it reads now."""
    return Field("state", sql.type_coerce(state, sql.Text), has_value=_ALL)


_tag, _note, _score = _tags.alias(), tables.OWN_MARKS.alias(), tables.SERIES.alias()
_model, _data, _named = tables.MODELS.alias(), tables.RUN_DATASETS.alias(), tables.DATASETS
_data_name = sql.select(_named.c.name).where(_named.c.fingerprint == _data.c.fingerprint).correlate(_data)
_label = _model.c.name + "@" + sql.cast(_model.c.version, sql.String)
_ranking = key_of_name(sql.literal(f"{METRIC_SPLITS[0]}.") + RUNS.c.metric)
_commit = sql.func.substr(sql.func.ltrim(RUNS.c.code_version, _OF_VERSIONS), 1 + len(_COMMIT_MARK), COMMIT_DIGITS)
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
    "score": Field("number", _score.c.value, _score, link=(_score.c.name, _ranking)),
    "commit": Field("commit", sql.case((RUNS.c.code_version.contains(_COMMIT_MARK, autoescape=True), _commit))),
    "tag": Field("text", _tag.c.word, _tag, of_several=True),
    "model": Field("text", _model.c.name, _model, _model.c.run_id.is_not(None), also=(_label,), of_several=True),
    "dataset": Field("text", _data_name.scalar_subquery(), _data, also=(_data.c.fingerprint,), of_several=True),
    "note": Field("text", _note.c.text, _note, _note.c.kind == "note", of_several=True),
    "archived": Field("flag", sql.case((is_flagged("archived"), 1.0), else_=0.0), has_value=_ALL),
    "pinned": Field("flag", sql.case((is_flagged("pinned"), 1.0), else_=0.0), has_value=_ALL),
}
"""The table of fields. `state` is one more, which depends on the registry's patience (`state_field`)."""
FIELD_NAMES = ("state", *FIELDS)
