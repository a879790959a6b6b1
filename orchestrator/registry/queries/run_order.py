"""Order of runs: rows of a statement sorted by a field, as its index has them where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlalchemy import Select, and_, exists, func, select
from sqlalchemy.orm import Session

from orchestrator.registry.queries.query_fields import ColumnField, Field, MetricField, ParameterField, ScoreField
from orchestrator.registry.tables import MetricRow, ParameterRow, RunRow

_FIRST_SORTED = 1_000
"""Runs that are tried first where all are sorted by a parameter."""
CREATED_AT = ColumnField(RunRow.created_at, "time")
_NEWEST_FIRST = RunRow.created_at.desc(), RunRow.id.desc()


def ordered(
    session: Session, statement: Select[Any], key: Field, descends: bool, limit: int | None, offset: int
) -> Iterator[Sequence[Any]]:
    """Rows in the order asked for: runs that have a measurement or a number first, as their index has them; the others.

    Args:
        statement: selects runs, the id first.
    """
    connection = session.connection()  # a session's rows cost twice as much

    def directed(column: Any) -> Any:
        return column.desc() if descends else column

    if isinstance(key, ScoreField) or (isinstance(key, MetricField) and limit is None):
        # no index has the order, or all of it is wanted
        yield from connection.execute(_sorted_by_value(statement, key, directed).limit(limit).offset(offset))
        return
    if isinstance(key, MetricField | ParameterField):
        table, value = (
            (MetricRow, MetricRow.value) if isinstance(key, MetricField) else (ParameterRow, ParameterRow.number)
        )
        has_value = and_(table.run_id == RunRow.id, key.rows(), value.is_not(None))
        having, by_value = statement.join(table, has_value), (directed(value), directed(table.run_id))
        page = having.order_by(*by_value).limit(limit).offset(offset)
        rows: Sequence[Sequence[Any]] = []
        if table is ParameterRow and limit is not None and connection.dialect.name == "sqlite":
            # SQLite looks up the run of each row before it sorts them: the first rows, sorted alone, often fill a page.
            first = select(table.run_id).where(key.rows(), value.is_not(None)).order_by(*by_value).limit(_FIRST_SORTED)
            rows = connection.execute(page.where(table.run_id.in_(first))).all()
        if limit is None or len(rows) < limit:
            rows = connection.execute(page).all()
        yield from rows
        if limit is not None:
            limit -= len(rows)
        if limit == 0:
            return
        if offset:
            num_before = 0 if rows else session.scalar(select(func.count()).select_from(having.subquery())) or 0
            offset = 0 if rows else offset - num_before
        statement = statement.where(~exists().where(has_value).correlate(RunRow))
    order: list[Any]
    if isinstance(key, MetricField):
        order = [*_NEWEST_FIRST]
    elif key == CREATED_AT:  # as in its index
        order = [directed(RunRow.created_at), directed(RunRow.id)]
    else:
        order = [part for column in key.sort_keys() for part in (column.is_(None), directed(column))]
        order.append(directed(RunRow.id))
    yield from connection.execute(statement.order_by(*order).limit(limit).offset(offset))


def _sorted_by_value(statement: Select[Any], key: MetricField, directed: Callable[[Any], Any]) -> Select[Any]:
    """Sort runs by a measurement, with one look-up for each run; those without it come last, the newest first."""
    has_value = and_(MetricRow.run_id == RunRow.id, key.rows(), MetricRow.value.is_not(None))
    joined = statement.join(MetricRow, has_value, isouter=True)
    valued_first = MetricRow.value.is_(None), directed(MetricRow.value), directed(MetricRow.run_id)
    return joined.order_by(*valued_first, *_NEWEST_FIRST)
