"""`RecordTable`: what a reading of the registry returned, as plain values; and the one place that makes it a DataFrame.

Commands show the plain values. Pandas is imported where a person's own code asks for a DataFrame: importing it takes
longer than reading the registry.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.errors import InputError

if TYPE_CHECKING:
    import pandas


MOST_ROWS = 2**31 - 1
"""Rows that a page may begin with or have: more than any registry."""


def check_page(limit: int | None, offset: int) -> None:
    """Raise InputError for a number of rows that no page has."""
    for name, number in (("limit", limit), ("offset", offset)):
        if number is not None and not 0 <= number <= MOST_ROWS:
            raise InputError(f"{name} is {number}; give a number from 0 to {MOST_ROWS}")


@dataclass(frozen=True)
class RecordTable:
    """Records with the same columns, in order; a value that is not there is None."""

    columns: Sequence[str]
    records: Sequence[dict[str, Any]]
    """Plain values by column; times are in UTC. A record may lack a column, and then has no value there."""
    dtypes: Mapping[str, str] = field(default_factory=dict)
    """Dtypes of a DataFrame's columns, where those do not follow from the values, as in a table without records."""
    notes: Sequence[str] = ()
    """Sentences on what the values leave out."""

    def values(self, column: str) -> list[Any]:
        """Values of a column, one for each record."""
        return [record.get(column) for record in self.records]

    def frame(self) -> pandas.DataFrame:
        """Make a DataFrame; columns whose names end in `_at` are timestamps in UTC, even without records."""
        import pandas

        frame = pandas.DataFrame.from_records(list(self.records), columns=list(self.columns))
        for name in self.columns:
            if name.endswith("_at"):
                frame[name] = pandas.to_datetime(frame[name], utc=True)
        return frame.astype(dict(self.dtypes))


def record_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], **dtypes: str) -> RecordTable:
    """Make a table of rows whose values stand in the order of the columns."""
    return RecordTable(columns, [dict(zip(columns, row, strict=True)) for row in rows], dtypes)


@contextmanager
def paused_collection() -> Iterator[None]:
    """Keep the collector of cycles from running; also a decorator.

    It looks for garbage each time some hundreds of objects have been made, and then again among all that are still
    held. Where a hundred thousand rows become objects that are all held, it finds nothing and takes up to half of the
    time. What is not part of a cycle is freed at once all the same.
    """
    was_enabled = gc.isenabled()
    if was_enabled:  # else another pause ends after this one has looked, and nothing would end this one
        gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
