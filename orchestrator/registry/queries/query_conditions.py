"""Conditions of a query on one field: every operator, made of the comparisons that the field itself knows."""

from sqlalchemy import ColumnElement, and_, false, not_, or_

from orchestrator.registry.queries.query_fields import ColumnField, Field
from orchestrator.registry.queries.query_tree import Value
from orchestrator.registry.queries.query_values import WrongValueError, end_of_day


def condition(field: Field, operator: str, values: "tuple[Value | Field, ...]") -> ColumnElement[bool]:
    """Condition for runs of which `field operator values` is true. Raises: WrongValueError."""
    if operator == "in":
        return or_(false(), *(condition(field, "=", (value,)) for value in values))
    if operator == "between":
        low, high = values
        if low is None or high is None:
            raise WrongValueError("between takes two values; `is null` finds runs without one")
        if isinstance(low, float) and isinstance(high, float) and low > high:
            raise WrongValueError(f"nothing is between {low:g} and {high:g}; the smaller one comes first")
        is_time = isinstance(field, ColumnField) and field.kind == "time"
        end = end_of_day(high) if is_time and isinstance(high, str) else high
        return and_(field.compared(">=", low), field.compared("<=", end))
    value = values[0]
    if value is None:
        if operator not in ("=", "!="):
            raise WrongValueError("null can be compared with = and != only")
        return not_(field.present()) if operator == "=" else field.present()
    if operator == "!=":  # of runs without the field it is true, as what people mean by tag != 'broken'
        return not_(field.compared("=", value))
    return field.compared(operator, value)
