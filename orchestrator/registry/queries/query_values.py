"""Values of a query as SQL compares them: numbers, text, moments and ages; and what is said of one that fits nothing.

A day such as `2026-11-20` is its first moment, in UTC; equal to a day is any time of it. An age such as `7d` is the
moment so long before now, by the database's clock, or for a duration so many seconds.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_

from orchestrator.registry.column_types import replace_unstorable, utc_now
from orchestrator.registry.queries.query_tree import Age, Value

MAX_AGE_S = 36_500 * 86_400.0
_DAY = timedelta(days=1)
_DAY_LENGTH = len("2026-11-20")
_TIME_REMEDY = (
    "this is a time; compare it with one like 2026-11-20 or 2026-11-20T10:45 (UTC), or with an age like 7d, which "
    "stands without quotes"
)
_DATE_SHAPED = re.compile(r"\d{4}-\d{2}-\d{2}")


class WrongValueError(ValueError):
    """Error for a value or a comparison that does not fit a field; the message says what does."""


def compare(column: Any, operator: str, value: Any) -> ColumnElement[bool]:
    """Condition `column operator value`, for a value that fits the column or another column."""
    tests: dict[str, Callable[[], ColumnElement[bool]]] = {
        "=": lambda: column == value,
        "<": lambda: column < value,
        "<=": lambda: column <= value,
        ">": lambda: column > value,
        ">=": lambda: column >= value,
        # A backslash is a backslash: neither database's own escaping shows.
        "like": lambda: column.ilike(value.replace("\\", "\\\\"), escape="\\"),
    }
    return tests[operator]()


def compare_time(column: Any, operator: str, value: Value) -> ColumnElement[bool]:
    """Condition for a column of times. Raises: WrongValueError."""
    if isinstance(value, Age):
        if operator == "=":
            raise WrongValueError("an age can be compared with < <= > >= and between only: created_at > 7d")
        return compare(column, operator, utc_now(age_seconds(value)))
    time = as_time(value)
    if operator == "=" and is_day(value):
        following = time + _DAY if time.year < datetime.max.year else time
        return and_(column >= time, column < following)
    return compare(column, operator, time)


def as_number(value: Value) -> float:
    """The value as a number. Raises: WrongValueError."""
    if isinstance(value, bool) or not isinstance(value, float):
        raise WrongValueError("this is a number; compare it with one, without quotes")
    return value


def as_whole_number(value: Value) -> float:
    """The value as a number without a fraction. Raises: WrongValueError."""
    if not as_number(value).is_integer():
        raise WrongValueError(f"this is a whole number, and never {value:g}")
    return as_number(value)


def as_seconds(value: Value) -> float:
    """The value as seconds: a number, or an age such as `1h`. Raises: WrongValueError."""
    if isinstance(value, Age):
        return age_seconds(value)
    if isinstance(value, bool) or not isinstance(value, float):
        raise WrongValueError("this is a number of seconds; compare it with one, or with a length like 30m or 1h")
    return value


def as_text(value: Value) -> str:
    """The value as text that a database can hold. Raises: WrongValueError."""
    if not isinstance(value, str):
        raise WrongValueError("this is text; compare it with text in quotes")
    return replace_unstorable(value)


def as_time(value: Value) -> datetime:
    """The value as a moment in UTC. Raises: WrongValueError."""
    if not isinstance(value, str):
        raise WrongValueError(_TIME_REMEDY)
    try:
        time = datetime.fromisoformat(value)
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        if _DATE_SHAPED.match(value):
            raise WrongValueError(f"this is a time, and the calendar has no {value[:40]}") from None
        raise WrongValueError(_TIME_REMEDY) from None


def age_seconds(age: Age) -> float:
    """Seconds of an age. Raises: WrongValueError for one that no calendar has."""
    if age.seconds > MAX_AGE_S:
        raise WrongValueError("the longest age is 36500d")
    return age.seconds


def is_day(value: Value) -> bool:
    """Whether a time is given as a whole day."""
    return isinstance(value, str) and len(value) == _DAY_LENGTH


def end_of_day(value: Value) -> Value:
    """The last moment of a day, where the value is one: `between` has both of its days in it."""
    if not is_day(value):
        return value
    return (as_time(value) + timedelta(hours=23, minutes=59, seconds=59, microseconds=999_999)).isoformat()
