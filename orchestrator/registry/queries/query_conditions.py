"""Conditions of a query on one field: every operator, made of the comparisons that the field itself knows."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import ColumnElement, and_, false, not_, or_

from orchestrator.registry.queries.query_fields import ColumnField, Field
from orchestrator.registry.queries.query_tree import Age, Value
from orchestrator.registry.queries.query_values import WrongValueError, as_time, end_of_day


def condition(field: Field, operator: str, values: "tuple[Value | Field, ...]") -> ColumnElement[bool]:
    """Condition for runs of which `field operator values` is true. Raises: WrongValueError."""
    if operator == "in":
        return or_(false(), *(condition(field, "=", (value,)) for value in values))
    if operator == "between":
        return _between(field, *values)
    value = values[0]
    if value is None:
        if operator not in ("=", "!="):
            raise WrongValueError("null can be compared with = and != only")
        return not_(field.present()) if operator == "=" else field.present()
    if operator == "!=":  # of runs without the field it is true, as what people mean by tag != 'broken'
        return not_(field.compared("=", value))
    return field.compared(operator, value)


def _between(field: Field, low: "Value | Field", high: "Value | Field") -> ColumnElement[bool]:
    """Condition for runs whose field lies between two ends, both included. Raises: WrongValueError."""
    if low is None or high is None:
        raise WrongValueError("between takes two values; `is null` finds runs without one")
    is_time = isinstance(field, ColumnField) and field.kind == "time"
    end = end_of_day(high) if is_time and isinstance(high, str) else high
    within = and_(field.compared(">=", low), field.compared("<=", end))
    if isinstance(low, Value) and isinstance(high, Value):
        _check_order(low, high, is_time=is_time)
    return within


def _check_order(low: Value, high: Value, *, is_time: bool) -> None:
    """Check that an interval begins before it ends. Raises: WrongValueError."""
    if is_time:
        is_turned, first = _moment(low) > _moment(end_of_day(high)), "the older one comes first"
    else:
        begin, end = _number(low), _number(high)
        is_turned = begin is not None and end is not None and begin > end
        first = "the smaller one comes first"
    if is_turned:
        one, other = (f"{value:g}" if isinstance(value, float) else str(value) for value in (low, high))
        raise WrongValueError(f"nothing is between {one} and {other}; {first}: between {other} and {one}")


def _moment(value: Value) -> datetime:
    """The moment of a time or an age, by this machine's clock: two of them are put in order, no run is held beside."""
    return datetime.now(UTC) - timedelta(seconds=value.seconds) if isinstance(value, Age) else as_time(value)


def _number(value: Value) -> float | None:
    """The value as a number, an age in seconds; None of a text, whose order is the database's own."""
    if isinstance(value, Age):
        return value.seconds
    return value if isinstance(value, float) else None
