"""Selection of runs: queries and sort keys as SQL, and the selected runs as tables of plain values.

Names of fields are checked against what runs have. A comparison that no run can ever meet is a slip of the pen, and an
error; a word of which a run may come is told where nothing was found.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, Select, and_, not_, or_, select, type_coerce

from orchestrator.errors import InputError
from orchestrator.nearest import nearest
from orchestrator.registry import fields
from orchestrator.registry.column_types import replace_unstorable
from orchestrator.registry.conditions import WrongValueError, condition, nearest_words, occurs, shortened
from orchestrator.registry.fields import FIELD_NAMES, FIELDS, Field, Test
from orchestrator.registry.group_records import group_key
from orchestrator.registry.parameters import decode_parameter
from orchestrator.registry.query_language import (
    FUNCTIONS,
    METRIC_SPLITS,
    Comparison,
    Condition,
    MisplacedError,
    Operand,
    Value,
    comparisons,
    errors_in,
    field_text,
    metric_name,
    parse_filter,
    parse_operand,
    paths_called,
    quoted,
    short_names,
)
from orchestrator.registry.recorded_names import RecordedNames, offer
from orchestrator.registry.records import RecordTable, check_page, is_flagged, paused_collection
from orchestrator.registry.tables import MARKS, NAMES, PARAMETERS, RUNS, SERIES
from orchestrator.run_states import RunState

_NEEDS_PARSING = frozenset("('\"")
"""Signs of a field that is more than a plain name: a function of one, or a name in quotes."""
_SORT = re.compile(r"(-?)\s*(.*?)(?:\s+(asc|desc))?", re.IGNORECASE | re.DOTALL)
_OFFERED = ("task", "tag", "model", "dataset", "name", "host", "experiment")
"""Fields of text with words to choose from."""


@dataclass(frozen=True)
class Selection:
    """Translator of the query language, for one connection."""

    connection: Connection
    state: ColumnElement[RunState]
    """State of a run as `state_as_read` gives it."""

    @cached_property
    def _names(self) -> RecordedNames:
        return RecordedNames.of(self.connection)

    def conditions(self, text: str, *, trials: bool = True, archived: bool = True) -> list[Test]:
        """Conditions for the runs that a query selects. Raises: InputError with a caret.

        Args:
            trials: whether trials are among them, beside runs without a parent.
            archived: whether archived runs are; they are in any case where the query asks for the field `archived`.
        """
        found, asked = list[Test](), set[Value | Operand]()
        if (tree := _parsed(text)) is not None:
            with errors_in(text):
                found.append(self._test(tree))
            asked = {each for one, _ in comparisons(tree) for each in (one.operand, *one.values)}
        if not trials:
            found.append(RUNS.c.parent_id.is_(None))
        if not archived and Operand("archived") not in asked:
            found.append(not_(is_flagged("archived")))
        return found

    def unmatched(self, text: str) -> list[str]:
        """Tell what a query asks for that no run has, such as a task that no run is of: why it finds nothing."""
        tree, told = _parsed(text), list[str]()
        with errors_in(text):
            for each, _ in () if tree is None else comparisons(tree):
                if each.operator in ("=", "in"):
                    told += self._unmatched_words(each)
                elif each.operator == "like":  # a star, where the language has a percent sign
                    starred = [one for one in each.values if isinstance(one, str) and "*" in one and "%" not in one]
                    patterns = [f"{each.operand} like {quoted(one.replace('*', '%'))}" for one in starred]
                    told += [f"any text is % in a pattern: {pattern}" for pattern in patterns]
        return told

    def order(self, text: str) -> tuple[Field, bool]:
        """Sort key, and whether it descends: `-created_at`, `best(metrics.f1) desc`, `task`. Raises: InputError."""
        dash, name, direction = _SORT.fullmatch(text.strip()).groups("")  # type: ignore[union-attr]
        if " " in name and not _NEEDS_PARSING.intersection(name):
            raise InputError(f"Cannot sort by {text!r}: after the field, say asc or desc.")
        return self.field(name), bool(dash) != (direction.lower() == "desc")

    def field(self, text: str) -> Field:
        """Field of a text that is nothing but one: `metrics.f1`, `best(metrics.f1)`. Raises: InputError."""
        operand = parse_operand(text) if _NEEDS_PARSING.intersection(text) else Operand(text)
        with errors_in(text):
            return self._field(operand)

    def _test(self, tree: Condition) -> Test:
        if isinstance(tree, Comparison):
            field = self._field(tree.operand)
            return self._condition(field, tree, [self._value(value, tree, field) for value in tree.values])
        if tree.word == "not":
            return not_(self._test(tree.parts[0]))
        return (and_ if tree.word == "and" else or_)(*map(self._test, tree.parts))

    def _condition(self, field: Field, tree: Comparison, values: Sequence[Value | Field]) -> Test:
        try:
            return condition(self.connection, field, tree.operator, values)
        except WrongValueError as error:
            raise MisplacedError(tree.operand.start, f"{tree.operand}: {error}:") from None

    def _value(self, value: Value | Operand, tree: Comparison, field: Field) -> Value | Field:
        """The value, or the field that is compared with; a word that should stand in quotes is told of."""
        if not isinstance(value, Operand):
            return value
        try:
            return self._field(value)
        except MisplacedError:
            is_of_area = value.name.startswith(("metrics.", "params.", "tags."))
            if value.function or is_of_area or "text" not in field.parts:
                raise
        text = f"'{value.name}'" if tree.operator != "in" else f"('{value.name}', …)"
        hint = f"text stands in quotes: {tree.operand} {tree.operator} {text}"
        raise MisplacedError(value.place, f"{value.name} is no field, and {hint}:")

    def _field(self, operand: Operand) -> Field:
        """Field of an operand. Raises: MisplacedError, which gives the nearest names."""
        if operand.function:
            return self._history(operand)
        name = replace_unstorable(operand.name)
        area, _, rest = name.partition(".")
        if rest or operand.is_quoted:
            if area == "tags":
                return fields.tag_value(rest)  # a tag may come, so that one of no run is no error
            if area == "metrics" and self._names.has_metric(_measurement(operand)):
                return fields.metric(_measurement(operand))
            if area == "params" and (path := self._path(rest, operand)) is not None:
                return fields.parameter(path)
        elif name == "state":
            return fields.state_field(self.state)
        elif name in FIELDS:
            return FIELDS[name]
        raise MisplacedError(
            operand.place, f"No run has a field {name!r}{self._names.nearest_fields(name, FIELD_NAMES)}:"
        )

    def _path(self, name: str, operand: Operand) -> str | None:
        """Path of a parameter, which a name without dots may be the last part of; None where no run has such a one.

        Raises: MisplacedError for a last part of several.
        """
        paths = self._names.paths
        ending = paths_called(name, paths)
        if operand.is_quoted or "." in name or not ending:
            return name if name in paths or not paths else None  # in an empty registry no name is wrong
        if len(ending) > 1:  # which is looked into only here: names of removed runs are harmless elsewhere
            ending = [path for path in ending if self._names.is_of_a_run(path)] or ending
        if len(ending) > 1:
            which = ", ".join(field_text(f"params.{path}") if "." in path else f'params."{path}"' for path in ending)
            raise MisplacedError(operand.place, f"params.{name} is {' or '.join(ending)}; say which: {which}")
        return ending[0]

    def _history(self, operand: Operand) -> Field:
        function, step, measured = operand.function, operand.step, replace(operand, function="", step=None)
        if function not in FUNCTIONS:
            raise MisplacedError(operand.start, f"{function} is no function; there are {', '.join(FUNCTIONS)}:")
        if self._field(measured).kind != "number" or not operand.name.startswith("metrics"):
            message = f"{measured} has no history; {function} takes a measurement, such as metrics.f1:"
            raise MisplacedError(operand.place, message)
        if (function == "at") != (step is not None) or not (step is None or (0 <= step < 2**63 and step == int(step))):
            message = (
                "at(metrics.loss, 1000) takes a step, a whole number from 0 to 2**63 - 1; other functions take none:"
            )
            raise MisplacedError(operand.start, message)
        return fields.history(function, _measurement(operand), None if step is None else int(step))

    def _unmatched_words(self, tree: Comparison) -> list[str]:
        """Tell which texts of a comparison no run is equal to; such a run may come, so that it is no error."""
        field, name, told = self._field(tree.operand), str(tree.operand), list[str]()
        if field.kind == "tag value":
            if occurs(self.connection, select(field.value).where(field.where)):
                return []
            key, keys = tree.operand.name.partition(".")[2], self._names.tag_keys()
            near, known = ([field_text(f"tags.{key}") for key in some] for some in (nearest(key, keys), keys))
            return [f"no run has the tag {shortened(key)}{offer(near, known)}"]
        for value in tree.values if field.kind in ("text", "kind", "group") else ():
            if isinstance(value, str):
                is_so = self._condition(field, replace(tree, operator="="), [value])
                if not occurs(self.connection, select(RUNS.c.id).where(is_so)):
                    those = nearest_words(self.connection, field, value) if name in _OFFERED else ""
                    told.append(f"no run has {name} = {shortened(value)}{those}")
        return told


def _parsed(text: str) -> Condition | None:
    """Tree of a query; None of an empty one. Raises: InputError with a caret."""
    return parse_filter(text) if text.strip() else None


def _measurement(operand: Operand) -> str:
    """Name of a measurement's series: `validation.f1` for `metrics.f1`."""
    parts = operand.name.split(".")[1:]
    has_split = len(parts) > 1 and parts[0] in METRIC_SPLITS
    return replace_unstorable(".".join(parts if has_split else [METRIC_SPLITS[0], *parts]))


RUN_COLUMNS = (
    *("id", "name", "kind", "state", "parent", "number", "task", "metric", "seed", "experiment", "group"),
    *("created_at", "started_at", "finished_at", "seconds", "error"),
)
_RUNS_PER_STATEMENT = 5_000


def read_in_order(
    selection: Selection, column: Any, conditions: Sequence[Test], sort: str, limit: int | None = None, offset: int = 0
) -> list[Any]:
    """Read a column of runs in the order of a field; those without it come last, newest first. Raises: InputError."""
    check_page(limit, offset)
    field, descends = selection.order(sort)
    key = field.lowest()
    keys: Any = (key.table.c.number, key.table.c.text) if key.kind == "parameter" else (key.value,)
    order: list[Any] = [part for each in keys for part in (each.is_(None), each.desc() if descends else each)]
    order += [RUNS.c.created_at.desc(), RUNS.c.id.desc()]
    if key is FIELDS["created_at"]:  # as in its index
        order = [each.desc() if descends else each for each in (RUNS.c.created_at, RUNS.c.id)]
    page = key.beside(select(column)).where(*conditions).order_by(*order).limit(limit).offset(offset)
    return list(selection.connection.scalars(page))


def list_trials(connection: Connection, state: ColumnElement[RunState], sweep_id: str) -> RecordTable:
    """List the trials of a sweep, in order, with the columns of `Registry.run_table`."""
    of_sweep = select(RUNS.c.key).where(RUNS.c.parent_id == sweep_id).order_by(RUNS.c.number, RUNS.c.id)
    return list_runs(connection, state, connection.scalars(of_sweep).all())


@paused_collection()
def list_runs(connection: Connection, state: ColumnElement[RunState], keys: Sequence[int]) -> RecordTable:
    """List runs in the order of their keys here, with their tags, metrics and parameters.

    A parameter's column has the last part of its path where no other one of the table ends so.
    """
    shown = [FIELDS.get(name, fields.state_field(state)).value for name in RUN_COLUMNS]
    runs: Select[Any] = select(RUNS.c.key, RUNS.c.code_version, *shown)
    records: dict[int, dict[str, Any]] = {key: {} for key in keys}
    tags: dict[int, set[str]] = defaultdict(set)
    metrics: set[str] = set()
    parameters: list[tuple[int, str, Any]] = []
    texts = dict(connection.execute(select(NAMES.c.key, NAMES.c.text)).all())
    for start in range(0, len(keys), _RUNS_PER_STATEMENT):
        some = keys[start : start + _RUNS_PER_STATEMENT]
        for key, code_version, *values in connection.execute(runs.where(RUNS.c.key.in_(some))):
            records[key] |= zip(RUN_COLUMNS, values, strict=True)
            records[key]["group"] = group_key(records[key]["group"], code_version)
        for key, tag in connection.execute(_of_runs(MARKS, some, MARKS.c.word).where(MARKS.c.kind == "tag")):
            tags[key].add(tag)
        for key, name, value in connection.execute(_of_runs(SERIES, some, _key(SERIES.c.name), SERIES.c.value)):
            metrics.add(texts[name])
            records[key][f"metrics.{metric_name(texts[name])}"] = math.nan if value is None else value
        stored = _of_runs(PARAMETERS, some, _key(PARAMETERS.c.path), PARAMETERS.c.kind, PARAMETERS.c.text)
        for key, path, kind, text in connection.execute(stored):
            parameters.append((key, texts[path], decode_parameter(kind, text)))
    names = {path: f"params.{name}" for path, name in short_names({path: None for _, path, _ in parameters}).items()}
    for key, path, value in parameters:
        records[key][names[path]] = value
    for key, record in records.items():
        record["tags"] = ", ".join(sorted(tags.get(key, ())))
    parts = sorted((series.split(".", 1) for series in metrics), key=lambda part: (METRIC_SPLITS.index(part[0]), part))
    measured = [f"metrics.{metric_name('.'.join(part))}" for part in parts]
    dtypes = dict.fromkeys([*measured, "seconds"], "float64") | dict.fromkeys(["seed", "number"], "Int64")
    columns_of_all = [*RUN_COLUMNS, "tags", *measured, *sorted(names.values())]
    return RecordTable(columns_of_all, [record for record in records.values() if "id" in record], dtypes)


def _of_runs(table: Any, keys: Sequence[int], *columns: Any) -> Select[Any]:
    """Select columns of rows that belong to some runs, after the run's key."""
    return select(_key(table.c.run_id), *columns).where(_key(table.c.run_id).in_(keys))


def _key(column: Any) -> ColumnElement[int]:
    """Reference as the key that it is, of which many are read sooner than of the texts that they stand for."""
    return type_coerce(column, Integer)
