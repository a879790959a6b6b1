"""Annotations of runs: notes, tags, pins, and the mark of those that are put away."""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Select, delete, select

from orchestrator.errors import InputError, NotFoundError
from orchestrator.registry.column_types import replace_unstorable
from orchestrator.registry.database import Database
from orchestrator.registry.engines.dialects import select_runs, upsert_rows
from orchestrator.registry.keeping_tables import FlagRow, NoteRow
from orchestrator.registry.place_tags import is_of_one_run
from orchestrator.registry.run_flags import Flag, flag_bearers, flagged_ids
from orchestrator.registry.run_records import load_records
from orchestrator.registry.runs.inheritance import add_tags, pass_on, take_back
from orchestrator.registry.tables import TagRow


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
        row = {"run_id": run_id, "digest": digest, "text": text, "author": author}
        with self._database.session(writing=True) as session:
            upsert_rows(session, NoteRow, ("run_id", "digest"), (), [row])

    def notes(self, run_id: str) -> list[NoteRecord]:
        """Notes on a run, the oldest first."""
        with self._database.session(writing=False) as session:
            return load_records(session, _notes(run_id), NoteRecord)

    def notes_of(self, run_ids: Collection[str]) -> dict[str, list[str]]:
        """Texts of the notes on some runs, the oldest first, by the ids of the runs that have any."""
        found: dict[str, list[str]] = {}
        with self._database.session(writing=False) as session:
            notes = select(NoteRow.run_id, NoteRow.text).where(NoteRow.run_id.in_(select_runs(session, run_ids)))
            for run_id, text in session.execute(notes.order_by(NoteRow.written_at, NoteRow.digest)):
                found.setdefault(run_id, []).append(text)
        return found

    def remove_note(self, run_id: str, number: int) -> NoteRecord:
        """Remove a note by its place, from 1 on, and return it. Raises: NotFoundError."""
        with self._database.session(writing=True) as session:
            rows = session.scalars(_notes(run_id)).all()
            if not 1 <= number <= len(rows):
                raise NotFoundError(f"run {run_id} has no note {number}; it has {len(rows)}")
            row = rows[number - 1]
            session.delete(row)
            return NoteRecord(row.run_id, row.text, row.author, row.written_at)

    def tag(self, run_id: str, tags: Sequence[str], *, by_hand: bool = True) -> None:
        """Add tags to a run, and to its trials and stages those that do not say where the run itself belongs.

        Args:
            by_hand: whether a person adds them, who may not say where a run belongs.

        Raises: InputError for a tag that is empty or reserved, where a person adds it.
        """
        if by_hand:
            _check_tags(tags)
        with self._database.session(writing=True) as session:
            pass_on(session, run_id, tags=add_tags(session, run_id, tags))

    def untag(self, run_id: str, tags: Sequence[str]) -> list[str]:
        """Take tags from a run, its trials and stages; returns those that it had. Raises: InputError, as `tag` does."""
        _check_tags(tags)
        with self._database.session(writing=True) as session:
            known = select(TagRow).where(TagRow.run_id == run_id, TagRow.tag.in_(tags)).order_by(TagRow.tag)
            rows = session.scalars(known).all()
            for row in rows:
                session.delete(row)
            gone = [row.tag for row in rows]
            take_back(session, run_id, gone)
            return gone

    def set_flag(self, run_id: str, flag: Flag) -> None:
        """Set a flag of a run, which reaches its trials and, of a pipeline, its stages."""
        with self._database.session(writing=True) as session:
            upsert_rows(session, FlagRow, ("run_id", "flag"), (), [{"run_id": run_id, "flag": flag}])

    def clear_flag(self, run_id: str, flag: Flag) -> None:
        """Take a flag from a run; what it reached has it no longer, unless by itself or through another run."""
        with self._database.session(writing=True) as session:
            session.execute(delete(FlagRow).where(FlagRow.run_id == run_id, FlagRow.flag == flag))

    def flags(self, run_id: str) -> list[str]:
        """Flags that a run has by itself, sorted."""
        with self._database.session(writing=False) as session:
            flags = select(FlagRow.flag).where(FlagRow.run_id == run_id)
            return list(session.scalars(flags.order_by(FlagRow.flag)))

    def flagged(self, flag: Flag) -> set[str]:
        """Ids of the runs that a flag reaches: those that have it, and what belongs to them (`run_flags`)."""
        with self._database.session(writing=False) as session:
            return flagged_ids(session, flag)

    def tagged(self, run_ids: Collection[str], tag: str) -> set[str]:
        """Those of some runs that have a tag themselves."""
        with self._database.session(writing=False) as session:
            of_runs = TagRow.run_id.in_(select_runs(session, run_ids))
            return set(session.scalars(select(TagRow.run_id).where(TagRow.tag == tag, of_runs)))

    def flag_bearers(self, run_id: str, flag: Flag) -> list[str]:
        """Ids of the runs whose flag reaches a run: itself first, then its sweep, then pipelines."""
        with self._database.session(writing=False) as session:
            return flag_bearers(session, run_id, flag)


def _notes(run_id: str) -> Select[NoteRow]:
    return select(NoteRow).where(NoteRow.run_id == run_id).order_by(NoteRow.written_at, NoteRow.digest)


def _check_tags(tags: Sequence[str]) -> None:
    for tag in tags:
        if not tag.strip():
            raise InputError("a tag needs some text")
        if is_of_one_run(tag):
            raise InputError(f"the tag {tag!r} says where a run belongs, and is set by the laboratory alone")
