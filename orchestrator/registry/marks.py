"""Marks of runs: tags, flags and notes.

A mark is written to the run alone that a person names, and whom it reaches is found when it is read, by the view
`marks` (`tables.MarkRow`). So a stage that was archived by itself stays so whatever becomes of its pipeline, and trials
and stages that begin later are reached as well. Pipelines that have been removed reach nobody.
"""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Literal

from sqlalchemy import ColumnElement, Select, delete, select
from sqlalchemy.orm import Session

from orchestrator.errors import InputError, NotFoundError
from orchestrator.registry.column_types import replace_unstorable
from orchestrator.registry.database import Database
from orchestrator.registry.engines.dialects import select_runs, upsert_rows
from orchestrator.registry.place_tags import is_internal
from orchestrator.registry.tables import MarkRow, OwnMark, RunRow, StageRow

Flag = Literal["pinned", "archived"]
_KEY = ("run_id", "kind", "word")


@cache
def is_flagged(flag: Flag) -> ColumnElement[bool]:
    """Condition for runs that a flag reaches; made once, since making it costs as much as a page of a list."""
    return RunRow.key.in_(select(MarkRow.run_id).where(MarkRow.kind == "flag", MarkRow.word == flag))


def add_tags(session: Session, run_id: str, tags: Sequence[str]) -> None:
    """Add tags to a run; one that it has already changes nothing."""
    rows = [{"run_id": run_id, "kind": "place" if is_internal(tag) else "tag", "word": tag} for tag in tags]
    upsert_rows(session, OwnMark, _KEY, (), rows)


@dataclass(frozen=True)
class NoteRecord:
    """A remark on a run."""

    run_id: str
    text: str
    author: str | None
    written_at: datetime


class RunAnnotations:
    """`registry.annotations`: writes and reads what people add to runs. Each call may be repeated."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(self, run_id: str, text: str, author: str | None = None) -> None:
        """Add a note to a run; a text that is there already stays as it is. Raises: InputError for an empty one."""
        text = replace_unstorable(text).strip()
        if not text:
            raise InputError("a note needs some text")
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        row = {"run_id": run_id, "kind": "note", "word": digest, "text": text, "author": author}
        with self._database.session(writing=True) as session:
            upsert_rows(session, OwnMark, _KEY, (), [row])

    def notes(self, run_id: str) -> list[NoteRecord]:
        """Notes on a run, the oldest first."""
        with self._database.session(writing=False) as session:
            return [_record(row) for row in session.scalars(_notes().where(OwnMark.run_id == run_id))]

    def notes_of(self, run_ids: Collection[str]) -> dict[str, list[str]]:
        """Texts of the notes on some runs, the oldest first, by the ids of the runs that have any."""
        found: dict[str, list[str]] = {}
        with self._database.session(writing=False) as session:
            for row in session.scalars(_notes().where(OwnMark.run_id.in_(select_runs(session, run_ids)))):
                found.setdefault(row.run_id, []).append(_record(row).text)
        return found

    def remove_note(self, run_id: str, number: int) -> NoteRecord:
        """Remove a note by its place, from 1 on, and return it. Raises: NotFoundError."""
        with self._database.session(writing=True) as session:
            rows = session.scalars(_notes().where(OwnMark.run_id == run_id)).all()
            if not 1 <= number <= len(rows):
                raise NotFoundError(f"run {run_id} has no note {number}; it has {len(rows)}")
            session.delete(rows[number - 1])
            return _record(rows[number - 1])

    def tag(self, run_id: str, tags: Sequence[str], *, by_hand: bool = True) -> None:
        """Add tags to a run.

        Args:
            by_hand: whether a person adds them, who may not say where a run belongs.

        Raises: InputError for a tag that is empty or reserved, where a person adds it.
        """
        if by_hand:
            _check_tags(tags)
        with self._database.session(writing=True) as session:
            add_tags(session, run_id, tags)

    def untag(self, run_id: str, tags: Sequence[str]) -> list[str]:
        """Take tags from a run; returns those that it had by itself. Raises: InputError, as `tag` does."""
        _check_tags(tags)
        with self._database.session(writing=True) as session:
            gone = delete(OwnMark).where(OwnMark.run_id == run_id, OwnMark.kind == "tag", OwnMark.word.in_(tags))
            return sorted(session.scalars(gone.returning(OwnMark.word)))

    def set_flag(self, run_id: str, flag: Flag) -> None:
        """Set a flag of a run, which reaches its trials and, of a pipeline, its stages."""
        with self._database.session(writing=True) as session:
            upsert_rows(session, OwnMark, _KEY, (), [{"run_id": run_id, "kind": "flag", "word": flag}])

    def clear_flag(self, run_id: str, flag: Flag) -> None:
        """Take a flag from a run; what it reached has it no longer, unless by itself or through another run."""
        with self._database.session(writing=True) as session:
            session.execute(
                delete(OwnMark).where(OwnMark.run_id == run_id, OwnMark.kind == "flag", OwnMark.word == flag)
            )

    def flagged(self, flag: Flag) -> set[str]:
        """Ids of the runs that a flag reaches: those that have it, and what belongs to them."""
        with self._database.session(writing=False) as session:
            return set(session.scalars(select(RunRow.id).where(is_flagged(flag))))

    def bearers(self, run_id: str, word: str, kind: str = "flag") -> list[str]:
        """Ids of the runs whose flag or tag reaches a run: itself first, then its sweep, then pipelines.

        Empty where none reaches it, although a pipeline of several may have it.
        """
        reaches = select(MarkRow.run_id).where(MarkRow.run_id == run_id, MarkRow.kind == kind, MarkRow.word == word)
        with self._database.session(writing=False) as session:
            own = session.execute(select(RunRow.id, RunRow.parent_id).where(RunRow.key.in_(reaches))).first()
            family = [one for one in own or () if one is not None]
            if not family:
                return []
            pipelines = select(StageRow.pipeline).where(StageRow.run_id.in_(family)).order_by(StageRow.pipeline)
            candidates = [*family, *session.scalars(pipelines)]
            having = select(OwnMark.run_id).where(OwnMark.kind == kind, OwnMark.word == word)
            bearing = set(session.scalars(having.where(OwnMark.run_id.in_(candidates))))
        return [candidate for candidate in candidates if candidate in bearing]


def _notes() -> Select[OwnMark]:
    return select(OwnMark).where(OwnMark.kind == "note").order_by(OwnMark.at, OwnMark.word)


def _record(note: OwnMark) -> NoteRecord:
    return NoteRecord(note.run_id, note.text or "", note.author, note.at)


def _check_tags(tags: Sequence[str]) -> None:
    for tag in tags:
        if not tag.strip():
            raise InputError("a tag needs some text")
        if is_internal(tag):
            raise InputError(f"the tag {tag!r} says where a run belongs, and is set by the laboratory alone")
