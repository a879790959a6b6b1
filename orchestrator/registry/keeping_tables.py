"""Tables for the upkeep of runs that are done: notes, flags, and names of models.

runs ─┬─< run_notes        models ──< model_aliases
      └─< run_flags
"""

from sqlalchemy import ForeignKeyConstraint, Index
from sqlalchemy.orm import Mapped, mapped_column

from orchestrator.registry.column_types import utc_now
from orchestrator.registry.tables import BaseRow, FreeTextStr, RunId, TagRow, UtcDatetime


class NoteRow(BaseRow):
    """A remark on a run. The same text is one note, however often it is written."""

    __tablename__ = "run_notes"

    run_id: Mapped[RunId] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(primary_key=True)
    """Digest of the text."""
    text: Mapped[FreeTextStr]
    author: Mapped[FreeTextStr | None]
    written_at: Mapped[UtcDatetime] = mapped_column(default=utc_now())


class FlagRow(BaseRow):
    """A mark on a run: `pinned` or `archived`."""

    __tablename__ = "run_flags"
    __table_args__ = (Index("ix_run_flags_flag", "flag"),)

    run_id: Mapped[RunId] = mapped_column(primary_key=True)
    flag: Mapped[str] = mapped_column(primary_key=True)
    set_at: Mapped[UtcDatetime] = mapped_column(default=utc_now())


class AliasRow(BaseRow):
    """A name for one version of a model, such as `production`; it can be moved to another version."""

    __tablename__ = "model_aliases"
    __table_args__ = (
        ForeignKeyConstraint(["name", "version"], ["all_models.name", "all_models.version"], ondelete="CASCADE"),
        Index("ix_model_aliases_name_version", "name", "version"),
    )

    name: Mapped[FreeTextStr] = mapped_column(primary_key=True)
    alias: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int]
    set_at: Mapped[UtcDatetime] = mapped_column(default=utc_now())


ANNOTATIONS: dict[str, str | None] = {TagRow.__tablename__: None, "run_notes": "written_at", "run_flags": "set_at"}
"""Tables of what people add to runs, by name, and the column that says when; None where nothing does."""
