"""Tables of the roll-up of groups (`groups/roll_up.py`), which follow from those of runs: a merge brings no rows.

runs ──< open_runs      ranked_groups: the numbers of groups, many of a ranking in a row
"""

from functools import lru_cache

from sqlalchemy import Index, LargeBinary
from sqlalchemy.orm import Mapped, mapped_column

from orchestrator.registry.engines.dialects import upsert
from orchestrator.registry.engines.write_transactions import Prepared
from orchestrator.registry.tables import BaseRow, FreeTextStr, RunId

_DERIVED = {"info": {"is_derived": True}}


class OpenRunRow(BaseRow):
    """A run whose groups are read from the runs themselves: it has not ended, or has changed since."""

    __tablename__ = "open_runs"
    __table_args__ = _DERIVED | {"sqlite_with_rowid": False}  # with one SQLite takes NULL for a new key

    run_id: Mapped[RunId] = mapped_column(primary_key=True)


class RankedGroupsRow(BaseRow):
    """Groups of a ranking whose keys begin alike."""

    __tablename__ = "ranked_groups"
    __table_args__ = (Index("ix_ranked_groups_beginning", "beginning"), _DERIVED)

    task: Mapped[FreeTextStr] = mapped_column(primary_key=True)
    metric: Mapped[FreeTextStr] = mapped_column(primary_key=True)
    split: Mapped[str] = mapped_column(primary_key=True)
    data: Mapped[str] = mapped_column(primary_key=True)
    """Digest of the data that were scored; empty where it was not recorded."""
    beginning: Mapped[str] = mapped_column(primary_key=True)
    """First digits of the groups' keys."""
    numbers: Mapped[bytes] = mapped_column(LargeBinary)
    """An array of `NUMBERS`, a record for each group, in the order of their keys."""


@lru_cache
def open_statement(dialect: str) -> Prepared:
    """Open a run again whose trials or scores change after its end."""
    return Prepared(upsert(dialect, OpenRunRow.__table__, ("run_id",)), dialect, ("run_id",))
