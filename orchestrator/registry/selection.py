"""Selection of runs: queries and sort keys as SQL.

Names of fields are checked against what runs have. A comparison that no run can ever meet is a slip of the pen, and an
error; a word of which a run may come is told where nothing was found. What times, ages and NaN mean is told by
`orchestrator help queries`; whole numbers are compared as such, however large.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, TypeGuard

import sqlalchemy as sql
from sqlalchemy import Connection, and_, not_, or_, select

from orchestrator.base.errors import InputError
from orchestrator.base.nearest import nearest
from orchestrator.base.run_states import RunState
from orchestrator.registry import fields
from orchestrator.registry import query_language as language
from orchestrator.registry.dialects import is_like, replace_unstorable, utc_now
from orchestrator.registry.fields import COMMIT_DIGITS, FIELD_NAMES, FIELDS, ORDER, Field, Test, of_two
from orchestrator.registry.parameters import LARGEST_EXACT, code_digest, decode_parameter
from orchestrator.registry.query_language import Age, Comparison, MisplacedError, Operand, Value, WrongValueError
from orchestrator.registry.recorded_names import RecordedNames
from orchestrator.registry.records import is_flagged
from orchestrator.registry.tables import RUNS, is_internal

_NEEDS_PARSING = frozenset("('\"")
"""Signs of a field that is more than a plain name: a function of one, or a name in quotes."""
_SORT = re.compile(r"(-?)\s*(.*?)(?:\s+(asc|desc))?", re.IGNORECASE | re.DOTALL)
_OFFERED = ("task", "tag", "model", "dataset", "name", "host", "experiment")
"""Fields of text with words to choose from."""
_MORE_TYPES = {"seconds": ("age",), "time": ("age",), "tag value": ("boolean",)}
"""Types of values that fields of a kind are compared with beside their own."""
_VALUE_TYPES: Mapping[type, str] = {bool: "boolean", str: "text", Age: "age", int: "number", float: "number"}
_IN_WORDS = {
    **{"number": "a number without quotes", "text": "text in quotes", "boolean": "true or false without quotes"},
    **{"time": "a time like 2026-11-20 or 2026-11-20T10:45 (UTC)", "age": "an age like 7d without quotes"},
}
_DAY = timedelta(days=1)
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2})(T.+)?")
_COMMIT, _GROUP = re.compile(r"[0-9a-f]{4,40}"), re.compile(r"([0-9a-f]{4,})(?:\.([0-9a-f]+))?")
_WORDS_SAMPLE, _NUM_LISTED = 20_000, 8


@dataclass(frozen=True)
class Selection:
    """Translator of the query language, for one connection."""

    connection: Connection
    state: sql.ColumnElement[RunState]
    """State of a run as `state_as_read` gives it."""
    had_by_all: set[Field] = field(default_factory=set)
    """Fields of which each run has a value that is selected by the conditions so far."""

    @cached_property
    def _names(self) -> RecordedNames:
        return RecordedNames.of(self.connection)

    def conditions(self, text: str, *, trials: bool = True, archived: bool = True) -> list[Test]:
        """Conditions for the runs that a query selects, with trials, and with archived runs, or without.

        Archived ones are among them in any case where the query asks for the field `archived`. Raises: InputError with
        a caret.
        """
        found, asked = list[Test](), set[Value | Operand]()
        if text.strip():
            tree = language.parse_filter(text)
            with language.errors_in(text):
                found.append(self._test(tree))
                parts = tree.parts if isinstance(tree, language.Combination) and tree.word == "and" else (tree,)
                self.had_by_all.update(self._field(part.operand) for part in parts if _needs_value(part))
            asked = {each for one, _ in language.comparisons(tree) for each in (one.operand, *one.values)}
        if not trials:
            found.append(RUNS.c.parent_id.is_(None))
        if not archived and Operand("archived") not in asked:
            found.append(not_(is_flagged("archived")))
        return found

    def unmatched(self, text: str) -> list[str]:
        """Tell what a query asks for that no run has, such as a task that no run is of: why it finds nothing."""
        told = list[str]()
        with language.errors_in(text):
            for each, _ in language.comparisons(language.parse_filter(text)) if text.strip() else ():
                if each.operator in ("=", "in"):
                    told += self._unmatched_words(each)
        return told

    def order(self, text: str) -> tuple[Field, bool, bool]:
        """Sort key, whether it descends, and whether each selected run has it: `-created_at`, `best(metrics.f1) desc`.

        Raises: InputError.
        """
        dash, name, direction = _SORT.fullmatch(text.strip()).groups("")  # type: ignore[union-attr]
        if " " in name and not _NEEDS_PARSING.intersection(name):
            raise InputError(f"Cannot sort by {text!r}: after the field, say asc or desc.")
        key = self.field(name)
        return key, bool(dash) != (direction.lower() == "desc"), key in self.had_by_all

    def field(self, text: str) -> Field:
        """Field of a text that is nothing but one: `metrics.f1`, `best(metrics.f1)`. Raises: InputError."""
        operand = language.parse_operand(text) if _NEEDS_PARSING.intersection(text) else Operand(text)
        with language.errors_in(text):
            return self._field(operand)

    def _test(self, tree: language.Condition, is_narrowed: bool = False) -> Test:
        """Condition for the runs that a part of a query selects, among those that a comparison on rows has found."""
        if isinstance(tree, Comparison):
            field = self._field(tree.operand)
            values = [self._value(value, tree, field) for value in tree.values]
            try:
                return _condition(self.connection, field, tree.operator, values, is_narrowed)
            except WrongValueError as error:
                raise MisplacedError(tree.operand.start, f"{tree.operand}: {error}:") from None
        if tree.word == "not":
            return not_(self._test(tree.parts[0]))
        if tree.word == "or":
            return or_(*map(self._test, tree.parts))
        quick, slow = list[Test](), list[Test]()  # SQLite tests them in turn, and patterns take longest
        for part in tree.parts:
            is_like = isinstance(part, Comparison) and part.operator == "like"
            (slow if is_like else quick).append(self._test(part, is_narrowed))
            is_narrowed |= _needs_value(part) and self._field(part.operand).table is not None
        return and_(*quick, *slow)

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
        raise MisplacedError(operand.place, f"No run has a field {name!r}{self._nearest_fields(name)}:")

    def _nearest_fields(self, name: str) -> str:
        """The end of a message about a field that no run has: the nearest ones, else which ones there are."""
        known = [*FIELD_NAMES, *(f"metrics.{metric}" for metric in self._names.metrics())]
        known += [f"params.{parameter}" for parameter, _ in self._names.parameters()]
        there = [language.field_text(other) for other in known if other.startswith(name.partition(".")[0] + ".")]
        every = f"; there are: {', '.join([*FIELD_NAMES, 'metrics.NAME', 'params.PATH', 'tags.NAME'])}"
        return _offer([*map(language.field_text, nearest(name, known))], there) or every

    def _path(self, name: str, operand: Operand) -> str | None:
        """Path of a parameter, which a name without dots may be the last part of; None where no run has such a one.

        Raises: MisplacedError for a last part of several.
        """
        paths = self._names.paths
        ending = language.paths_called(name, paths)
        if operand.is_quoted or "." in name or not ending:
            return name if name in paths or not paths else None  # in an empty registry no name is wrong
        if len(ending) > 1:  # which is looked into only here: names of removed runs are harmless elsewhere
            ending = [path for path in ending if self._names.is_of_a_run(path)] or ending
        if len(ending) > 1:
            whole = (language.field_text(f"params.{path}") if "." in path else f'params."{path}"' for path in ending)
            which = ", ".join(whole)
            raise MisplacedError(operand.place, f"params.{name} is {' or '.join(ending)}; say which: {which}")
        return ending[0]

    def _history(self, operand: Operand) -> Field:
        function, step, measured = operand.function, operand.step, replace(operand, function="", step=None)
        if function not in language.FUNCTIONS:
            known = ", ".join(language.FUNCTIONS)
            raise MisplacedError(operand.start, f"{function} is no function; there are {known}:")
        if self._field(measured).kind != "number" or not operand.name.startswith("metrics"):
            message = f"{measured} has no history; {function} takes a measurement, such as metrics.f1:"
            raise MisplacedError(operand.place, message)
        if (function == "at") != (step is not None) or not (step is None or (0 <= step < 2**63 and step == int(step))):
            message = "at(metrics.loss, 1000) takes a step, a whole number from 0 to 2**63 - 1; other functions none:"
            raise MisplacedError(operand.start, message)
        return fields.history(function, _measurement(operand), None if step is None else int(step))

    def _unmatched_words(self, tree: Comparison) -> list[str]:
        """Tell which texts of a comparison no run is equal to; such a run may come, so that it is no error."""
        field, name, told = self._field(tree.operand), str(tree.operand), list[str]()
        if field.kind == "tag value":
            if _occurs(self.connection, select(field.value).where(field.where)):
                return []
            key, keys = tree.operand.name.partition(".")[2], self._names.tag_keys()
            near, known = ([language.field_text(f"tags.{key}") for key in some] for some in (nearest(key, keys), keys))
            return [f"no run has the tag {_shortened(key)}{_offer(near, known)}"]
        is_offered = name in _OFFERED or field.kind == "parameter"
        for value in tree.values if field.kind in ("text", "kind", "group", "parameter") else ():
            if isinstance(value, str):
                is_so = self._test(replace(tree, operator="=", values=(value,)))
                if not _occurs(self.connection, select(RUNS.c.id).where(is_so)):
                    those = _nearest_words(self.connection, field, value) if is_offered else ""
                    told.append(f"no run has {name} = {_shortened(value)}{those}")
        return told


def _needs_value(part: language.Condition) -> TypeGuard[Comparison]:
    """Whether a part of a query is a comparison that only runs with a value of its field can meet, and with no NaN."""
    if not isinstance(part, Comparison) or part.operator == "!=":
        return False
    return not any(value is None or value is False or value != value for value in part.values)


def _measurement(operand: Operand) -> str:
    """Name of a measurement's series: `validation.f1` for `metrics.f1`."""
    parts = operand.name.split(".")[1:]
    has_split = len(parts) > 1 and parts[0] in language.METRIC_SPLITS
    return replace_unstorable(".".join(parts if has_split else [language.METRIC_SPLITS[0], *parts]))


def _condition(
    connection: Connection, field: Field, operator: str, values: Sequence[Value | Field], run_by_run: bool = False
) -> Test:
    """Condition for runs of which `field operator values` is true. Raises: WrongValueError."""
    if operator == "!=":  # of runs without the field it is true, as what people mean by tag != 'broken'
        return not_(_condition(connection, field, "=", values))
    tests, others, plain = list[Test](), list[Test](), list[Value]()
    names = {"between": (">=", "<="), "in": ("=",) * len(values)}.get(operator, (operator,))
    end = values[-1]
    if operator == "between" and field.kind == "time" and isinstance(end, str) and "T" not in end:  # a whole day
        values = values[0], (as_time(end) + (_DAY - datetime.resolution)).isoformat()
    if operator == "between" and _place(field, values[0]) > _place(field, values[1]):
        low, high = values[0], end
        raise WrongValueError(f"nothing is between {low} and {high}; the other way round: between {high} and {low}")
    for name, value in zip(names, values, strict=True):
        if isinstance(value, Field):
            others.append(of_two(field, name, value))
        elif isinstance(value, bool | None) and name != "=":
            raise WrongValueError("null, true and false can be compared with = and != only")
        elif value is None or (value is False and field.kind == "tag value"):
            others.append(not_(field.of_runs(field.present)))
        else:
            tests.append(_of_one(connection, field, name, value))
            plain.append(value)
    if field.kind == "parameter":
        _check_types(connection, field, plain)
    join = and_ if operator == "between" else or_
    return join(*([field.of_runs(join(*tests), run_by_run=run_by_run)] if tests else []), *others)


def _place(field: Field, value: Value | Field) -> float:
    """Place of a value in the field's order, to compare the ends of an interval; NaN where they have none."""
    if field.kind != "time":
        return value.seconds if isinstance(value, Age) else value if isinstance(value, int | float) else math.nan
    if isinstance(value, Age):
        return (datetime.now(UTC) - timedelta(seconds=value.seconds)).timestamp()
    return as_time(value).timestamp() if isinstance(value, str) else math.nan


def as_time(value: Value) -> datetime:
    """The value as a moment in UTC. Raises: WrongValueError."""
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise _wrong_type(("time", "age"))
    try:
        time = datetime.fromisoformat(value)
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise WrongValueError(f"this is a time, and the calendar has no {value[:40]}") from None


def _wrong_type(types: Sequence[str]) -> WrongValueError:
    return WrongValueError(f"compare it with {', or '.join(_IN_WORDS[each] for each in types)}")


def _of_one(connection: Connection, field: Field, operator: str, value: Value) -> Test:
    """Condition for one row of a field, or for the run itself, whose value compares so with one that is no null."""
    kind, parts = field.kind, field.parts
    if isinstance(value, float) and math.isnan(value):
        if operator != "=":
            raise WrongValueError("nan has no order; `is nan` finds it")
        if field.is_nan is None:
            raise WrongValueError("only metrics and parameters can be nan")
        return field.is_nan
    wanted, types = _VALUE_TYPES[type(value)], (*parts, *_MORE_TYPES.get(kind, ()))
    if kind == "time" and wanted == "text" and operator != "like":
        wanted = "time"
    if wanted not in types:
        raise _wrong_type(types)
    if kind == "time":
        return _of_time(field.value, operator, value)
    if isinstance(value, bool):
        return field.present if kind == "tag value" else parts["boolean"] == float(value)
    return (_of_text if isinstance(value, str) else _of_number)(connection, field, operator, value)  # type: ignore[arg-type]


def _of_text(connection: Connection, field: Field, operator: str, value: str) -> Test:
    kind, text = field.kind, replace_unstorable(value)
    if kind in ("state", "commit") and operator not in ("=", "like"):
        raise WrongValueError(f"{kind}s have no order; compare them with = != in and like")
    if operator == "=" and kind in ("state", "kind"):
        text = _known_word(connection, field, text)
    if operator == "=" and kind == "commit":
        if not _COMMIT.fullmatch(text.lower()):
            raise WrongValueError("this is a commit's id; give 4 to 40 of its hexadecimal digits, in quotes")
        return field.value.startswith(text.lower()[:COMMIT_DIGITS], autoescape=True)
    if operator == "=" and kind == "group":
        return _of_group(connection, text.lower())
    texts = (field.parts["text"], *field.also)
    if operator != "like":
        return or_(*(ORDER[operator](each, text) for each in texts))
    # `\%`, `\_` and `\\` are the signs themselves; any other backslash is one, and no database's own escaping shows
    pattern = re.sub(r"\\([%_\\]?)", lambda found: "\\" + (found[1] or "\\"), text)
    return or_(*(is_like(each, pattern) for each in texts))


def _of_number(connection: Connection, field: Field, operator: str, value: int | float | Age) -> Test:
    order, row = ORDER[operator], field.table
    number = value.seconds if isinstance(value, Age) else value
    if field.kind == "whole number":
        if not abs(number) < 2**63 or (operator == "=" and number != int(number)):
            raise WrongValueError(f"this is a whole number from -2**63 to 2**63 - 1, and never {str(number)[:40]}")
        if number != int(number):
            order = ORDER[{"<": "<=", ">=": ">"}.get(operator, operator)]  # than the whole number below
        return order(field.value, sql.literal(math.floor(number), sql.BigInteger))  # type: ignore[no-any-return]
    try:
        double = float(number)
    except OverflowError:
        double = math.inf if number > 0 else -math.inf
    if field.kind != "parameter":
        return order(field.value, double)  # type: ignore[no-any-return]
    test = order(row.c.number, double)
    if isinstance(number, int) and abs(number) >= LARGEST_EXACT:  # doubles that may be others: their texts are exact
        equal = and_(row.c.kind == "number", row.c.number == double)
        texts = connection.scalars(select(row.c.text).where(field.where, equal).distinct())
        exactly = [text for text in texts if order(decode_parameter("number", text), number)]
        surely = sql.false() if operator == "=" else ORDER[operator[0]](row.c.number, double)
        test = or_(surely, and_(row.c.number == double, row.c.text.in_(exactly)))
    return and_(row.c.kind == "number", test)


def _of_time(column: Any, operator: str, value: Value) -> Test:
    if isinstance(value, Age):
        if operator == "=":
            raise WrongValueError("an age can be compared with < <= > >= and between only: created_at > 7d")
        return ORDER[operator](column, utc_now(value.seconds))  # type: ignore[no-any-return]
    time = as_time(value)
    if operator == "=" and "T" not in str(value):
        return and_(column >= time, column < (time + _DAY if time.year < datetime.max.year else time))
    return ORDER[operator](column, time)  # type: ignore[no-any-return]


def _of_group(connection: Connection, text: str) -> Test:
    """Runs of a group, by the beginning of its digest, and after a dot of its code's, which stands in no column."""
    found, version = _GROUP.fullmatch(text), RUNS.c.code_version
    if found is None:
        raise WrongValueError("this is a group's id; give 4 or more of its digits, as `leaderboard` shows it")
    begins = RUNS.c.group_key.startswith(found[1], autoescape=True)
    if found[2] is None:
        return begins
    versions = connection.scalars(select(version).where(begins, version.is_not(None)).distinct())
    fitting = [each for each in versions if each and code_digest(each).startswith(found[2])]
    return and_(begins, version.is_not(None), version.in_(fitting))


def _known_word(connection: Connection, field: Field, text: str) -> str:
    """The state or the kind that a text means. Raises: WrongValueError for one that no run has or can have."""
    from orchestrator.specs import SPEC_KINDS

    is_state = field.kind == "state"
    word, known = (text.upper(), [*RunState]) if is_state else (text.lower(), [*SPEC_KINDS, "trial"])
    if word in known or _occurs(connection, select(RUNS.c.id).where(field.value == word)):
        return word
    there = ", ".join(repr(each.lower()) for each in known)
    raise WrongValueError(f"no run is ever {_shortened(text)}; there are {there}")


def _check_types(connection: Connection, field: Field, values: Sequence[Value]) -> None:
    """Check that some run has a parameter with values of these types. Raises: WrongValueError, with those there are."""
    rows = select(field.table.c.kind).where(field.where)

    def occurs_as(kind: str) -> bool:
        return _occurs(connection, rows.where(field.table.c.kind.in_(("text", "json") if kind == "text" else (kind,))))

    is_possible = all(occurs_as(_VALUE_TYPES[type(value)]) for value in values)
    if not is_possible and (types := [*filter(occurs_as, field.parts)]):  # else no run has it, or null alone
        raise _wrong_type(types)


def _occurs(connection: Connection, rows: sql.Select[Any]) -> bool:
    """Whether a statement finds any row."""
    return connection.scalar(rows.with_only_columns(sql.literal(1)).limit(1)) is not None


def _nearest_words(connection: Connection, field: Field, text: str) -> str:
    """The end of a message about a text that no run has: the nearest ones of the field, else those that there are.

    Of a very large registry the texts are those of its first rows.
    """
    first = select(field.parts["text"].label("word")).where(field.where).limit(_WORDS_SAMPLE).subquery()
    words = connection.scalars(select(first.c.word).where(first.c.word.is_not(None)).distinct())
    known = sorted(word for word in words if not is_internal(word))
    near = nearest(text, known)
    return _offer([*map(_shortened, near)] if len(near) < len(known) else [], [*map(_shortened, known)])


def _offer(near: Sequence[str], known: Sequence[str]) -> str:
    """The end of a message about a name that is not there: the nearest ones, else the first of those that there are."""
    some = [*known[:_NUM_LISTED], *(["…"] if len(known) > _NUM_LISTED else [])]
    return f"; nearest: {', '.join(near)}" if near else f"; there are: {', '.join(some)}" if some else ""


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")
