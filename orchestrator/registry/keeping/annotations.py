"""Annotations: tags, notes and flags of runs, taken from one registry and joined with those of another.

Joining loses nothing and may be repeated: both sides' rows are kept, and of two notes with the same text, or two flags,
the older one.
"""

from collections.abc import Collection
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from orchestrator.registry.engines.dialects import select_runs
from orchestrator.registry.keeping_tables import ANNOTATIONS
from orchestrator.registry.tables import BaseRow

Annotations = dict[str, dict[tuple[Any, ...], dict[str, Any]]]
"""Rows by table and by primary key."""


def annotations_of(session: Session, run_ids: Collection[str]) -> Annotations:
    """Everything that people added to some runs."""
    found: Annotations = {}
    for name in ANNOTATIONS:
        table = BaseRow.metadata.tables[name]
        rows = session.execute(select(table).where(table.c.run_id.in_(select_runs(session, run_ids)))).mappings()
        found[name] = {tuple(row[column.name] for column in table.primary_key): dict(row) for row in rows}
    return found


def missing_annotations(ours: Annotations, theirs: Annotations) -> Annotations:
    """Rows of theirs that we lack, or have with a later time."""
    return {
        name: {key: row for key, row in rows.items() if _is_wanted(name, row, ours[name].get(key))}
        for name, rows in theirs.items()
    }


def add_annotations(session: Session, missing: Annotations) -> None:
    """Write the rows that `missing_annotations` has found."""
    for name, rows in missing.items():
        table = BaseRow.metadata.tables[name]
        for key, row in rows.items():
            is_this = [column == value for column, value in zip(table.primary_key, key, strict=True)]
            if session.execute(update(table).where(*is_this).values(row)).rowcount == 0:  # type: ignore[attr-defined]
                session.execute(insert(table), [row])


def _is_wanted(name: str, row: dict[str, Any], own: dict[str, Any] | None) -> bool:
    time = ANNOTATIONS[name]
    return own is None or (time is not None and (row[time], repr(row)) < (own[time], repr(own)))
