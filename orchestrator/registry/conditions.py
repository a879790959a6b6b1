"""Conditions on one field: a comparison of its value, as SQL that means the same on both databases.

A day such as `2026-11-20` is its first moment, in UTC; equal to a day is any time of it. An age such as `7d` is the
moment so long before now, by the database's clock, or for a duration so many seconds. Whole numbers are compared as
such, however large. NaN is equal to `nan` alone and has no order.
"""

import math
import operator as operators
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, Connection, Double, Select, and_, cast, false, func, literal, not_, or_, select

from orchestrator.nearest import nearest
from orchestrator.registry.column_types import folded, replace_unstorable, utc_now
from orchestrator.registry.fields import COMMIT_DIGITS, Field, Test
from orchestrator.registry.group_records import code_digest
from orchestrator.registry.parameters import LARGEST_EXACT, decode_parameter
from orchestrator.registry.query_language import Age, Value
from orchestrator.registry.recorded_names import offer
from orchestrator.registry.tables import RUNS, is_internal
from orchestrator.run_states import RunState

MAX_AGE_S = 36_500 * 86_400.0
_ORDER: Mapping[str, Callable[[Any, Any], Any]] = {
    **{"=": operators.eq, "<": operators.lt, "<=": operators.le, ">": operators.gt, ">=": operators.ge}
}
_DAY = timedelta(days=1)
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2})(T.+)?")
_IN_WORDS = {
    **{"number": "a number without quotes", "text": "text in quotes", "boolean": "true or false without quotes"},
    **{"time": "a time like 2026-11-20 or 2026-11-20T10:45 (UTC)", "age": "an age like 7d without quotes"},
}
_TYPES: Mapping[type, str] = {bool: "boolean", str: "text", Age: "age", int: "number", float: "number"}
_MORE_TYPES = {"seconds": ("age",), "time": ("age",), "tag value": ("boolean",)}
"""Types of values, by the kind of the field that is compared with these beside those of its own parts."""
_WORDS_SAMPLE = 20_000
_COMMIT, _GROUP = re.compile(r"[0-9a-f]{4,40}"), re.compile(r"([0-9a-f]{4,})(?:\.([0-9a-f]+))?")


class WrongValueError(ValueError):
    """Error for a value or a comparison that does not fit a field; the message says what does."""


def condition(connection: Connection, field: Field, operator: str, values: "Sequence[Value | Field]") -> Test:
    """Condition for runs of which `field operator values` is true. Raises: WrongValueError."""
    if operator == "!=":  # of runs without the field it is true, as what people mean by tag != 'broken'
        return not_(condition(connection, field, "=", values))
    is_range = operator == "between"
    names = (">=", "<=") if is_range else ("=" if operator == "in" else operator,) * len(values)
    join = and_ if is_range else or_
    if is_range:
        values = _in_order(field, *values)
    tests, others, plain = [], [], []
    for name, value in zip(names, values, strict=True):
        if isinstance(value, Field):
            others.append(_of_two(field, name, value))
        elif isinstance(value, bool | None) and name != "=":
            raise WrongValueError("null, true and false can be compared with = and != only")
        elif value is None or (value is False and field.kind == "tag value"):
            others.append(not_(field.of_runs(field.present)))
        else:
            tests.append(_test(connection, field, name, value))
            plain.append(value)
    if field.kind == "parameter":
        _check_parameter(connection, field, operator, plain)
    return join(*([field.of_runs(join(*tests))] if tests else []), *others)


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


def _test(connection: Connection, field: Field, operator: str, value: Value) -> Test:
    """Condition for one row of a field, or for the run itself, whose value compares so with one that is no null."""
    kind, parts = field.kind, field.parts
    if isinstance(value, float) and math.isnan(value):
        if operator != "=" or field.is_nan is None:
            raise WrongValueError("only measurements and parameters are nan, which has no order; `is nan` finds it")
        return field.is_nan
    wanted, types = _TYPES[type(value)], (*parts, *_MORE_TYPES.get(kind, ()))
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
        return or_(*(_ORDER[operator](each, text) for each in texts))
    # `\%`, `\_` and `\\` are the signs themselves; any other backslash is one, and no database's own escaping shows
    pattern = folded(re.sub(r"\\([%_\\]?)", lambda found: "\\" + (found[1] or "\\"), text))
    return or_(*(folded(each).like(pattern, escape="\\") for each in texts))


def _of_number(connection: Connection, field: Field, operator: str, value: int | float | Age) -> Test:
    order, row = _ORDER[operator], field.table
    number = _age_s(value) if isinstance(value, Age) else value
    if field.kind == "whole number":
        return _of_whole(field.value, operator, number)
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
        surely = false() if operator == "=" else _ORDER[operator[0]](row.c.number, double)
        test = or_(surely, and_(row.c.number == double, row.c.text.in_(exactly)))
    return and_(row.c.kind == "number", test)


def _of_whole(column: Any, operator: str, value: int | float) -> Test:
    if not abs(value) < 2**63 or (operator == "=" and value != int(value)):
        raise WrongValueError(f"this is a whole number from -2**63 to 2**63 - 1, and never {str(value)[:40]}")
    if value != int(value):
        operator = {"<": "<=", ">=": ">"}.get(operator, operator)  # than the whole number below
    return _ORDER[operator](column, literal(math.floor(value), BigInteger))  # type: ignore[no-any-return]


def _of_time(column: Any, operator: str, value: Value) -> Test:
    if isinstance(value, Age):
        if operator == "=":
            raise WrongValueError("an age can be compared with < <= > >= and between only: created_at > 7d")
        return _ORDER[operator](column, utc_now(_age_s(value)))  # type: ignore[no-any-return]
    time = as_time(value)
    if operator == "=" and _is_day(value):
        return and_(column >= time, column < (time + _DAY if time.year < datetime.max.year else time))
    return _ORDER[operator](column, time)  # type: ignore[no-any-return]


def _of_group(connection: Connection, text: str) -> Test:
    """Runs of a group, by the beginning of its digest, and after a dot of its code's, which stands in no column."""
    found, version = _GROUP.fullmatch(text), RUNS.c.code_version
    if found is None:
        raise WrongValueError(
            "this is a group's id; give 4 or more of its digits, in quotes, as `orchestrator leaderboard` shows it"
        )
    begins = RUNS.c.group_key.startswith(found[1], autoescape=True)
    if found[2] is None:
        return begins
    versions = connection.scalars(select(version).where(begins, version.is_not(None)).distinct())
    fitting = [each for each in versions if each and code_digest(each).startswith(found[2])]
    return and_(begins, version.is_not(None), version.in_(fitting))


def _of_two(left: Field, operator: str, right: Field) -> Test:
    """Condition for runs whose two fields compare so; false in a run that lacks one. Raises: WrongValueError."""
    if left.of_several or right.of_several:
        raise WrongValueError("a run may have several tags, models, datasets and notes; compare them with one value")
    mine, theirs = left.parts, right.parts
    common = [kind for kind in mine if kind in theirs and (kind != "boolean" or operator == "=")]
    if not common:
        raise WrongValueError(f"{' or '.join(mine)} cannot be compared with {' or '.join(theirs)}")

    def comparable(column: Any, kind: str) -> Any:
        return cast(column, Double) if kind == "number" and left.kind != right.kind else column

    tests = (_ORDER[operator](comparable(mine[kind], kind), comparable(theirs[kind], kind)) for kind in common)
    test = func.coalesce(or_(*tests), false())
    if left.table is None and right.table is None:
        return test
    both = left.beside(select(RUNS.c.key), outer=False)
    if right.table is not left.table:
        both = right.beside(both, outer=False)
    return RUNS.c.key.in_(both.where(test).correlate(None))


def _in_order(field: Field, low: "Value | Field", high: "Value | Field") -> "tuple[Value | Field, Value | Field]":
    """The ends of an interval, a day's its last moment. Raises: WrongValueError for one that ends before it begins."""
    end, now = high, datetime.now(UTC)  # by this machine's clock: two times are put in order, no run is held beside
    if field.kind == "time" and isinstance(high, str) and _is_day(high):
        end = (as_time(high) + (_DAY - datetime.resolution)).isoformat()

    def number(one: "Value | Field") -> float:
        if field.kind == "time" and isinstance(one, str | Age):
            return (now - timedelta(seconds=_age_s(one)) if isinstance(one, Age) else as_time(one)).timestamp()
        if field.kind == "time":
            return math.nan
        return one.seconds if isinstance(one, Age) else one if isinstance(one, int | float) else math.nan

    if number(low) > number(end):
        raise WrongValueError(f"nothing is between {low} and {high}; the other way round: between {high} and {low}")
    return low, end


def _is_day(value: Value) -> bool:
    return isinstance(value, str) and "T" not in value


def _age_s(age: Age) -> float:
    if age.seconds > MAX_AGE_S:
        raise WrongValueError("the longest age is 36500d")
    return age.seconds


def _known_word(connection: Connection, field: Field, text: str) -> str:
    """The state or the kind that a text means. Raises: WrongValueError for one that no run has or can have."""
    from orchestrator.specs.kinds import SPEC_KINDS

    is_state = field.kind == "state"
    word, known = (text.upper(), [*RunState]) if is_state else (text.lower(), [*SPEC_KINDS, "trial"])
    if word in known or occurs(connection, select(RUNS.c.id).where(field.value == word)):
        return word
    raise WrongValueError(
        f"no run is ever {shortened(text)}; there are {', '.join(repr(each.lower()) for each in known)}"
    )


def _check_parameter(connection: Connection, field: Field, operator: str, values: Sequence[Value]) -> None:
    """Check that some run may have a parameter as a comparison says. Raises: WrongValueError, with what there is."""
    rows = select(field.table.c.kind).where(field.where)

    def occurs_as(kind: str) -> bool:
        return occurs(connection, rows.where(field.table.c.kind.in_(("text", "json") if kind == "text" else (kind,))))

    if not all(occurs_as(_TYPES[type(value)]) for value in values):
        if types := list(filter(occurs_as, field.parts)):  # else no run has it, or only runs whose value is null
            raise _wrong_type(types)
        return
    texts = [replace_unstorable(value) for value in values if isinstance(value, str)]
    is_of_texts = operator in ("=", "in") and len(texts) == len(values) > 0
    if is_of_texts and not occurs(connection, rows.where(field.parts["text"].in_(texts))):
        none = " or ".join(map(shortened, texts))
        raise WrongValueError(f"no run has {none}{nearest_words(connection, field, texts[0])}")


def occurs(connection: Connection, rows: Select[Any]) -> bool:
    """Whether a statement finds any row."""
    return connection.scalar(rows.with_only_columns(literal(1)).limit(1)) is not None


def nearest_words(connection: Connection, field: Field, text: str) -> str:
    """The end of a message about a text that no run has: the nearest ones of the field, else those that there are.

    Of a very large registry the texts are those of its first rows.
    """
    first = select(field.parts["text"].label("word")).where(field.where).limit(_WORDS_SAMPLE).subquery()
    words = connection.scalars(select(first.c.word).where(first.c.word.is_not(None)).distinct())
    known = sorted(word for word in words if not is_internal(word))
    near = nearest(text, known)
    return offer([*map(shortened, near)] if len(near) < len(known) else [], [*map(shortened, known)])


def shortened(text: str) -> str:
    """A text in quotes, for a message."""
    return repr(text if len(text) <= 40 else text[:39] + "…")
