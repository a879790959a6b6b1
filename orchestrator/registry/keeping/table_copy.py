"""All rows of a database, copied into an empty one of the same revision: between SQLite and PostgreSQL, either way."""

from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Column, Connection, Engine, Integer, MetaData, Select, Table, collate, func, insert, select
from sqlalchemy.types import String

from orchestrator.registry.engines.foreign_tables import VERSION_TABLE

ROWS_AT_ONCE = 5_000
_ORDERS = {"experiments": ("fingerprint", "name")}
"""Columns by which a table's rows are in order where the primary key is a number of one database alone."""


def reading_snapshot(engine: Engine) -> Connection:
    """Open a connection on which every statement sees the database as it stood at one moment."""
    if engine.dialect.name != "postgresql":
        return engine.connect()  # on SQLite every transaction does
    snapshot = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True, "stream_results": True}
    return engine.connect().execution_options(**snapshot)


def tables_in(connection: Connection) -> list[Table]:
    """Tables of the registry as they are in a database, whatever its revision; each follows those that it needs."""
    metadata = MetaData()
    metadata.reflect(connection)
    return [table for table in metadata.sorted_tables if table.name != VERSION_TABLE]


def ordered_rows(table: Table, dialect: str) -> Select[Any]:
    """Statement for the rows of a table in an order that every database gives; runs come before their trials."""
    columns = [table.c[name] for name in _ORDERS.get(table.name, [column.name for column in table.primary_key])]
    order = [in_byte_order(column, dialect) for column in columns]
    if "parent_id" in table.c:
        order.insert(0, table.c.parent_id.is_not(None))
    return select(table).order_by(*order)


def in_byte_order(column: Column[Any], dialect: str) -> Any:
    """A column to order by, the way SQLite orders texts: on PostgreSQL the order depends on the server's locale."""
    return collate(column, "C") if dialect == "postgresql" and isinstance(column.type, String) else column


def copy_tables(
    reading: Connection, writing: Connection, on_rows: Callable[[str, int], None] = lambda table, rows: None
) -> int:
    """Copy all rows into empty tables of the same revision; returns how many.

    Args:
        on_rows: told the table and the number of rows copied so far, now and then.
    """
    if writing.dialect.name == "sqlite":
        writing.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
    there = {table.name: table for table in tables_in(reading)}
    num_rows = 0
    for table in tables_in(writing):
        for part in _parts(reading, there[table.name]):
            writing.execute(insert(table), part)
            num_rows += len(part)
            on_rows(table.name, num_rows)
        set_next_number(writing, table)
    return num_rows


def _parts(reading: Connection, table: Table) -> Iterator[list[dict[str, Any]]]:
    rows = reading.execute(ordered_rows(table, reading.dialect.name)).mappings()
    for part in rows.partitions(ROWS_AT_ONCE):
        yield [dict(row) for row in part]


def set_next_number(connection: Connection, table: Table) -> None:
    """Let a server number a table's next row after those that came with their numbers; SQLite does so by itself."""
    column = table.autoincrement_column
    if connection.dialect.name != "postgresql" or column is None or not isinstance(column.type, Integer):
        return
    sequence = connection.scalar(select(func.pg_get_serial_sequence(table.fullname, column.name)))
    newest = connection.scalar(select(func.max(column)))
    if sequence and newest:
        connection.execute(select(func.setval(sequence, newest)))
