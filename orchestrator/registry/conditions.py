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
from orchestrator.registry.fields import COMMIT_DIGITS, COMMIT_MARK, Field, Test
from orchestrator.registry.group_records import code_digest
from orchestrator.registry.parameters import LARGEST_EXACT, decode_parameter
from orchestrator.registry.query_tree import Age, Value
from orchestrator.registry.recorded_names import some
from orchestrator.registry.tables import RUNS
from orchestrator.run_states import RunState

MAX_AGE_S = 36_500 * 86_400.0
_ORDER: Mapping[str, Callable[[Any, Any], Any]] = {
    **{"=": operators.eq, "<": operators.lt, "<=": operators.le, ">": operators.gt, ">=": operators.ge}
}
_DAY = timedelta(days=1)
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2})(T.+)?")
_NUMBER = "this is a number; compare it with one, without quotes"
_TEXT = "this is text; compare it with text in quotes"
_BOOLEAN = "this is true or false; write it without quotes"
_TIME_REMEDY = (
    "this is a time; compare it with one like 2026-11-20 or 2026-11-20T10:45 (UTC), or with an age like 7d, which "
    "stands without quotes"
)
_KINDS: Mapping[str, tuple[tuple[str, ...], str]] = {
    **dict.fromkeys(("text", "state", "kind", "commit", "group"), (("text",), _TEXT)),
    **dict.fromkeys(("whole number", "number"), (("number",), _NUMBER)),
    "seconds": (("number", "age"), "this is a number of seconds; compare it with one, or with a length like 30m or 1h"),
    "time": (("text", "age"), _TIME_REMEDY),
    "flag": (("boolean",), _BOOLEAN),
    "tag value": (("boolean", "text"), "this is true, or the text after the colon of a tag '{}:…', in quotes"),
    "parameter": (("number", "text", "boolean"), "an age is compared with a time or with seconds only"),
}
"""Types of the values that a field of each kind is compared with, and what is said of any other."""
_REMEDIES = {"number": _NUMBER, "boolean": _BOOLEAN, "text": _TEXT}
_SAMPLE = 500
"""Rows of a parameter that tell what type it has; only a value of another type is looked for in all of them."""
_WORDS_SAMPLE = 20_000
_COMMIT, _GROUP = re.compile(r"[0-9a-f]{4,40}"), re.compile(r"([0-9a-f]{4,})(?:\.([0-9a-f]+))?")


class WrongValueError(ValueError):
    """Error for a value or a comparison that does not fit a field; the message says what does."""


def condition(connection: Connection, field: Field, operator: str, values: "Sequence[Value | Field]") -> Test:
    """Condition for runs of which `field operator values` is true. Raises: WrongValueError."""
    if operator == "!=":  # of runs without the field it is true, as what people mean by tag != 'broken'
        return not_(condition(connection, field, "=", values))
    is_range = operator == "between"
    if None in values and operator not in ("=", "in"):
        raise WrongValueError("null can be compared with = and != only" if not is_range else "between takes two values")
    if is_range:
        values = _in_order(field, *values)
    names = (">=", "<=") if is_range else ("=" if operator == "in" else operator,) * len(values)
    join = and_ if is_range else or_
    tests, others, plain = [], [], []
    for name, value in zip(names, values, strict=True):
        if isinstance(value, Field):
            others.append(_of_two(field, name, value))
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
        raise WrongValueError(_TIME_REMEDY)
    try:
        time = datetime.fromisoformat(value)
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise WrongValueError(f"this is a time, and the calendar has no {value[:40]}") from None


def _test(connection: Connection, field: Field, operator: str, value: Value) -> Test:
    """Condition for one row of a field, or for the run itself, whose value compares so with one that is no null."""
    kind, (types, remedy) = field.kind, _KINDS[field.kind]
    if isinstance(value, float) and math.isnan(value) and field.is_nan is not None:
        if operator != "=":
            raise WrongValueError("nan has no order; `is nan` finds it")
        return field.is_nan
    if operator == "like" and (kind == "time" or "text" not in types):
        raise WrongValueError(f"like compares text, and this is a {kind}")
    if _type_of(value) not in types:
        raise WrongValueError(remedy.format(field.name))
    if kind == "time":
        return _of_time(field.value, operator, value)
    if isinstance(value, bool):
        if operator != "=":
            raise WrongValueError("true and false can be compared with = and != only")
        return field.present if kind == "tag value" else field.parts["boolean"] == float(value)
    return (_of_text if isinstance(value, str) else _of_number)(connection, field, operator, value)  # type: ignore[arg-type]


def _type_of(value: Value) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "text" if isinstance(value, str) else "age" if isinstance(value, Age) else "number"


def _of_text(connection: Connection, field: Field, operator: str, value: str) -> Test:
    kind, text = field.kind, replace_unstorable(value)
    if kind in ("state", "commit") and operator not in ("=", "like"):
        raise WrongValueError(f"{kind}s have no order; compare them with = != in and like")
    if kind == "state":
        text = text.upper()
        if operator == "=" and text not in list(RunState):
            states = ", ".join(map(repr, map(str.lower, RunState)))
            raise WrongValueError(f"no run is ever {value!r}; a state is {states}")
    if kind == "kind" and operator == "=":
        text = _known_kind(connection, text)
    if kind == "commit" and operator == "=":
        if not _COMMIT.fullmatch(text.lower()):
            raise WrongValueError("this is a commit's id; give 4 to 40 of its hexadecimal digits, in quotes")
        return RUNS.c.code_version.contains(COMMIT_MARK + text.lower()[:COMMIT_DIGITS], autoescape=True)
    if kind == "group" and operator == "=":
        return _of_group(connection, text.lower())
    return or_(*(_compare(each, operator, text) for each in (field.parts["text"], *field.also)))


def _compare(column: Any, operator: str, value: Any) -> Test:
    if operator != "like":
        return _ORDER[operator](column, value)  # type: ignore[no-any-return]
    # `\%`, `\_` and `\\` are the signs themselves; any other backslash is one, and no database's own escaping shows
    pattern = re.sub(r"\\([%_\\]?)", lambda found: "\\" + (found[1] or "\\"), value)
    return folded(column).like(folded(pattern), escape="\\")


def _of_number(connection: Connection, field: Field, operator: str, value: int | float | Age) -> Test:
    order, row = _ORDER[operator], field.table
    number = _age_s(value) if isinstance(value, Age) else value
    if number != number:
        raise WrongValueError("this is a number, and never nan")
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
    if not abs(value) < 2**63:
        raise WrongValueError(f"this is a whole number from -2**63 to 2**63 - 1, and never {str(value)[:40]}")
    if value != int(value):
        if operator == "=":
            raise WrongValueError(f"this is a whole number, and never {value:g}")
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
    found = _GROUP.fullmatch(text)
    if found is None:
        raise WrongValueError(
            "this is a group's id; give 4 or more of its digits, in quotes, as `orchestrator groups list` shows it"
        )
    begins = RUNS.c.group_key.startswith(found[1], autoescape=True)
    if found[2] is None:
        return begins
    versions = connection.scalars(
        select(RUNS.c.code_version).where(begins, RUNS.c.code_version.is_not(None)).distinct()
    )
    fitting = [version for version in versions if version and code_digest(version).startswith(found[2])]
    return and_(begins, RUNS.c.code_version.is_not(None), RUNS.c.code_version.in_(fitting))


def _of_two(left: Field, operator: str, right: Field) -> Test:
    """Condition for runs whose two fields compare so; false in a run that lacks one. Raises: WrongValueError."""
    if left.of_several or right.of_several:
        raise WrongValueError("a run may have several tags, models, datasets and notes; compare them with one value")
    mine, theirs = left.parts, right.parts
    common = [kind for kind in mine if kind in theirs and (kind != "boolean" or operator == "=")]
    if not common:
        raise WrongValueError(f"{' or '.join(mine)} cannot be compared with {' or '.join(theirs)}")
    is_mixed = left.kind != right.kind

    def comparable(column: Any, kind: str) -> Any:
        return cast(column, Double) if kind == "number" and is_mixed else column

    tests = (_compare(comparable(mine[kind], kind), operator, comparable(theirs[kind], kind)) for kind in common)
    test = func.coalesce(or_(*tests), false())
    if left.table is None and right.table is None:
        return test
    both = left.beside(select(RUNS.c.key), outer=False)
    if right.table is not left.table:
        both = right.beside(both, outer=False)
    return RUNS.c.key.in_(both.where(test).correlate(None))


def _in_order(field: Field, low: "Value | Field", high: "Value | Field") -> "tuple[Value | Field, Value | Field]":
    """The ends of an interval, a day's its last moment. Raises: WrongValueError for one that ends before it begins."""
    end = high
    if field.kind == "time" and isinstance(high, str) and _is_day(high):
        end = (as_time(high) + (_DAY - datetime.resolution)).isoformat()
    if isinstance(low, Field) or isinstance(end, Field):
        return low, end
    if field.kind == "time":
        now = datetime.now(UTC)  # by this machine's clock: two times are put in order, no run is held beside
        begins, ends = (now - timedelta(seconds=_age_s(t)) if isinstance(t, Age) else as_time(t) for t in (low, end))
        is_turned = begins > ends
    else:
        first, last = (one.seconds if isinstance(one, Age) else one for one in (low, end))
        is_turned = isinstance(first, int | float) and isinstance(last, int | float) and first > last
    if is_turned:
        which = "the older one" if field.kind == "time" else "the smaller one"
        raise WrongValueError(f"nothing is between {low} and {high}; {which} comes first: between {high} and {low}")
    return low, end


def _is_day(value: Value) -> bool:
    return isinstance(value, str) and "T" not in value


def _age_s(age: Age) -> float:
    if age.seconds > MAX_AGE_S:
        raise WrongValueError("the longest age is 36500d")
    return age.seconds


def _known_kind(connection: Connection, text: str) -> str:
    """The kind that a text means. Raises: WrongValueError for one that no run has or can have."""
    from orchestrator.specs.kinds import SPEC_KINDS

    kind, known = text.lower(), [*SPEC_KINDS, "trial"]
    if kind in known or occurs(connection, select(RUNS.c.id).where(RUNS.c.kind == kind)):
        return kind
    raise WrongValueError(f"no run is ever of the kind {shortened(text)}; a kind is {', '.join(map(repr, known))}")


def _check_parameter(connection: Connection, field: Field, operator: str, values: Sequence[Value]) -> None:
    """Check that some run may have a parameter as a comparison says. Raises: WrongValueError, with what there is."""
    rows = select(field.table.c.kind).where(field.where)
    sample = rows.limit(_SAMPLE).subquery()
    types = {"text" if kind == "json" else kind for kind in connection.scalars(select(sample.c.kind).distinct())}
    if not types:  # no run has it: there is no run at all, or only runs whose value is null
        return
    for value in values:
        wanted = _type_of(value)
        if wanted not in types and not occurs(connection, rows.where(field.parts[wanted].is_not(None))):
            raise WrongValueError("; or ".join(_REMEDIES[each] for each in sorted(types)))
    if operator == "like" and "text" not in types:
        raise WrongValueError(f"like compares text, and this is a {' or '.join(sorted(types))}")
    texts = [replace_unstorable(value) for value in values if isinstance(value, str)]
    if operator not in ("=", "in") or len(texts) < len(values) or not texts:
        return
    if not occurs(connection, rows.where(field.parts["text"].in_(texts))):
        known = words_of(connection, field)
        near = nearest(texts[0], known)
        there_are = f"did you mean {near[0]!r}? There are" if near else "there are"
        none = " or ".join(map(shortened, texts))
        raise WrongValueError(f"no run has {none}; {there_are} {', '.join(some([*map(repr, known)]))}")


def occurs(connection: Connection, rows: Select[Any]) -> bool:
    """Whether a statement finds any row."""
    return connection.scalar(rows.with_only_columns(literal(1)).limit(1)) is not None


def words_of(connection: Connection, field: Field) -> list[str]:
    """Texts of a field, sorted; of a very large registry those that its first rows have."""
    first = select(field.parts["text"].label("word")).where(field.where).limit(_WORDS_SAMPLE).subquery()
    words = connection.scalars(select(first.c.word).where(first.c.word.is_not(None)).distinct())
    return sorted(map(_plain, words))


def shortened(text: str) -> str:
    """A text in quotes, for a message."""
    return repr(_plain(text))


def _plain(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"
