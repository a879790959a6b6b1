"""Statements as the database's own driver takes them: SQL text, made once by SQLAlchemy, and its parameters' order.

Running a statement through SQLAlchemy costs several times what the database needs for a short one. What is written for
every measurement and every trial therefore goes to the driver as finished text, which the driver keeps prepared.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

from sqlalchemy import Dialect, Executable
from sqlalchemy.sql.expression import ClauseElement

from orchestrator.registry.column_types import RunKey

_PLACEHOLDER = re.compile(r"\?|%s(::[A-Z ]+)?")


class DriverStatement:
    """One statement for one kind of database.

    Args:
        names: columns and parameters that each row gives a value for.
    """

    def __init__(self, statement: Executable, dialect: str, names: Sequence[str]) -> None:
        assert isinstance(statement, ClauseElement)
        compiled: Any = statement.compile(dialect=_driver_dialect(dialect), column_keys=list(names))
        left_out = {column.name for column in getattr(compiled, "insert_prefetch", ()) or ()} - set(names)
        assert not left_out, f"no value for {left_out}"  # a default that only SQLAlchemy would fill in
        self.sql = str(compiled)
        constants = {name: value for name, value in compiled.params.items() if name not in names}
        processors = compiled._bind_processors
        order = list(compiled.positiontup)
        self._constants = {name: _stored(value, processors.get(name)) for name, value in constants.items()}
        self._pick: Callable[[Mapping[str, Any]], Any] = itemgetter(*order)
        self._is_one = len(order) == 1
        self._dialect = dialect
        columns = compiled.statement.table.columns if compiled.isinsert else {}
        self._types = [_type_of(columns[name], compiled.dialect) if name in columns else None for name in order]
        self._conversions = [
            (place, processors[name]) for place, name in enumerate(order) if name in names and name in processors
        ]

    def for_columns(self, number: int, varying: tuple[int, ...]) -> str:
        """SQL of the same statement, which inserts rows, for several of them at once.

        Its parameters are the values that all rows share; then, on SQLite, the varying values row by row, on a server
        an array for each varying value, as `array` makes it.

        Args:
            number: how many rows; for a server, which takes any number, 0.
            varying: places in the statement's order of the values that differ from row to row.
        """
        before, _, rest = self.sql.partition(" VALUES (")
        row, _, after = rest.partition(") ON CONFLICT ")
        places = iter(range(len(self._types)))
        names = {place: f"column{1 + at}" for at, place in enumerate(varying)}  # SQLite's own names for them
        row = _PLACEHOLDER.sub(lambda found: names.get(next(places), found[0]), row)
        if self._dialect == "sqlite":
            values = f"({', '.join('?' * len(varying))})"
            rows = f"(VALUES {', '.join([values] * number)})"
        else:
            arrays = ", ".join(f"%s::{self._types[place]}[]" for place in varying)
            rows = f"unnest({arrays}) AS given ({', '.join(names.values())})"
        return f"{before} SELECT {row} FROM {rows} WHERE true ON CONFLICT {after}"

    def values(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """Values of one row in the order of the statement, as they are stored."""
        found = self._pick({**self._constants, **row} if self._constants else row)
        stored = [found] if self._is_one else list(found)
        for place, convert in self._conversions:
            stored[place] = convert(stored[place])
        return tuple(stored)


def _type_of(column: Any, dialect: Dialect) -> str:
    """Type of the values that are given for a column: of a reference to a run its id."""
    return "TEXT" if isinstance(column.type, RunKey) else str(column.type.compile(dialect))


def array(values: Sequence[Any]) -> str | list[Any]:
    """Values of a column as a server's array: numbers as its text, which takes a tenth of the driver's time."""
    if any(isinstance(value, str) for value in values):
        return list(values)
    return f"{{{','.join(['NULL' if value is None else repr(value) for value in values])}}}"


def _stored(value: Any, processor: Callable[[Any], Any] | None) -> Any:
    return value if processor is None or value is None else processor(value)


@lru_cache
def _driver_dialect(name: str) -> Dialect:
    """Dialect whose statements have parameters by their place, which is what the driver takes fastest."""
    if name == "sqlite":
        from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

        return SQLiteDialect_pysqlite(paramstyle="qmark")
    from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

    return PGDialect_psycopg(paramstyle="format")  # type: ignore[no-untyped-call]
