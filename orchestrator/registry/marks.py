"""Marks of runs: tags, flags and notes.

A mark is written to the run alone that a person names, and whom it reaches is found when it is read, by the view
`marks` (`tables.MARKS`). So a stage that was archived by itself stays so whatever becomes of its pipeline, and trials
and stages that begin later are reached as well. Pipelines that have been removed reach nobody.
"""

import hashlib
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Literal

from sqlalchemy import ColumnElement, Connection, delete, select

from orchestrator.errors import InputError, NotFoundError
from orchestrator.registry.database import RegistryPart
from orchestrator.registry.dialects import replace_unstorable, select_runs, upsert_rows
from orchestrator.registry.tables import MARKS, OWN_MARKS, RUNS, STAGES, is_internal

Flag = Literal["pinned", "archived"]


@cache
def is_flagged(flag: Flag) -> ColumnElement[bool]:
    """Condition for runs that a flag reaches; made once, since making it costs as much as a page of a list."""
    return RUNS.c.key.in_(select(MARKS.c.run_id).where(MARKS.c.kind == "flag", MARKS.c.word == flag))


def add_marks(connection: Connection, run_id: str, kind: str, words: Iterable[str], **columns: str | None) -> None:
    """Add marks of a kind to a run: `tag`, `flag` or `note`; one that it has already changes nothing."""
    own = {"run_id": run_id, **columns}
    rows = [{**own, "word": word, "kind": "place" if kind == "tag" and is_internal(word) else kind} for word in words]
    upsert_rows(connection, OWN_MARKS, ("run_id", "kind", "word"), (), rows)


@dataclass(frozen=True)
class NoteRecord:
    """A remark on a run."""

    run_id: str
    text: str
    author: str | None
    written_at: datetime


class RunAnnotations(RegistryPart):
    """`registry.annotations`: writes and reads what people add to runs. Each call may be repeated."""

    def note(self, run_id: str, text: str, author: str | None = None) -> None:
        """Add a note to a run; a text that is there already stays as it is. Raises: InputError for an empty one."""
        text = replace_unstorable(text).strip()
        if not text:
            raise InputError("a note needs some text")
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        with self._database.connection(writing=True) as connection:
            add_marks(connection, run_id, "note", [digest], text=text, author=author)

    def notes(self, run_ids: str | Collection[str]) -> list[NoteRecord]:
        """Notes on a run or on several, the oldest first."""
        with self._database.connection(writing=False) as connection:
            return [note for _, note in _load_notes(connection, [run_ids] if isinstance(run_ids, str) else run_ids)]

    def remove_note(self, run_id: str, number: int) -> NoteRecord:
        """Remove a note by its place, from 1 on, and return it. Raises: NotFoundError."""
        with self._database.connection(writing=True) as connection:
            notes = _load_notes(connection, [run_id])
            if not 1 <= number <= len(notes):
                raise NotFoundError(f"run {run_id} has no note {number}; it has {len(notes)}")
            word, note = notes[number - 1]
            _take(connection, run_id, "note", [word])
            return note

    def tag(self, run_id: str, tags: Sequence[str]) -> None:
        """Add a person's tags to a run. Raises: InputError for a tag that is empty or says where a run belongs."""
        _check_tags(tags)
        with self._database.connection(writing=True) as connection:
            add_marks(connection, run_id, "tag", tags)

    def untag(self, run_id: str, tags: Sequence[str]) -> list[str]:
        """Take tags from a run; returns those that it had by itself. Raises: InputError, as `tag` does."""
        _check_tags(tags)
        with self._database.connection(writing=True) as connection:
            return _take(connection, run_id, "tag", tags)

    def set_flag(self, run_id: str, flag: Flag) -> None:
        """Set a flag of a run, which reaches its trials and, of a pipeline, its stages."""
        with self._database.connection(writing=True) as connection:
            add_marks(connection, run_id, "flag", [flag])

    def clear_flag(self, run_id: str, flag: Flag) -> None:
        """Take a flag from a run; what it reached has it no longer, unless by itself or through another run."""
        with self._database.connection(writing=True) as connection:
            _take(connection, run_id, "flag", [flag])

    def flagged(self, flag: Flag) -> set[str]:
        """Ids of the runs that a flag reaches: those that have it, and what belongs to them."""
        with self._database.connection(writing=False) as connection:
            return set(connection.scalars(select(RUNS.c.id).where(is_flagged(flag))))

    def bearers(self, run_id: str, word: str, kind: str = "flag") -> list[str]:
        """Ids of the runs whose flag or tag reaches a run: itself first, then its sweep, then pipelines.

        Empty where none reaches it, although a pipeline of several may have it.
        """
        reaches = select(MARKS.c.run_id).where(MARKS.c.run_id == run_id, MARKS.c.kind == kind, MARKS.c.word == word)
        with self._database.connection(writing=False) as connection:
            own = connection.execute(select(RUNS.c.id, RUNS.c.parent_id).where(RUNS.c.key.in_(reaches))).first()
            family = [one for one in own or () if one is not None]
            of_family = STAGES.c.run_id.in_(select_runs(connection, family))
            pipelines = select(STAGES.c.pipeline).where(of_family).order_by(STAGES.c.pipeline)
            candidates = [*family, *connection.scalars(pipelines)]
            having = select(OWN_MARKS.c.run_id).where(OWN_MARKS.c.kind == kind, OWN_MARKS.c.word == word)
            bearing = {*connection.scalars(having.where(OWN_MARKS.c.run_id.in_(select_runs(connection, candidates))))}
        return [candidate for candidate in candidates if candidate in bearing]


def _take(connection: Connection, run_id: str, kind: str, words: Sequence[str]) -> list[str]:
    """Take marks from a run; returns the words of those that it had."""
    its = OWN_MARKS.c.run_id == run_id, OWN_MARKS.c.kind == kind, OWN_MARKS.c.word.in_(words)
    return sorted(connection.scalars(delete(OWN_MARKS).where(*its).returning(OWN_MARKS.c.word)))


def _load_notes(connection: Connection, run_ids: Collection[str]) -> list[tuple[str, NoteRecord]]:
    """Notes on some runs with their words, the oldest first."""
    mark = OWN_MARKS.c
    notes = select(mark.word, mark.run_id, mark.text, mark.author, mark.at).where(mark.kind == "note")
    theirs = notes.where(mark.run_id.in_(select_runs(connection, run_ids))).order_by(mark.at, mark.word)
    return [(word, NoteRecord(*note)) for word, *note in connection.execute(theirs)]


def _check_tags(tags: Sequence[str]) -> None:
    for tag in tags:
        if not tag.strip():
            raise InputError("a tag needs some text")
        if any(unicodedata.category(sign) in ("Cc", "Zl", "Zp") for sign in tag):
            raise InputError(f"the tag {tag!r} has control characters; give words")
        if is_internal(tag):
            raise InputError(f"the tag {tag!r} says where a run belongs, and is set by the laboratory alone")
