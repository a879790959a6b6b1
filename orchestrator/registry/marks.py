"""Tags, flags and notes that people add to runs, and the trash, from which removed runs come back.

A mark is written to the run alone that a person names, and whom it reaches is found when it is read, by the view
`marks` (`tables.MARKS`). So trials and stages that begin later are reached as well.

Removing marks a run, its trials and the models in their folders; the views that everything reads leave them out.
Its files stay until `gc` deletes them, which claims the run first, in a transaction that a restoration cannot cross:
either the run is back by then, and its files stay, or it is claimed, and cannot be restored.
"""

import hashlib
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, delete, func, or_, select, text, update

from orchestrator.base.errors import InputError, NotFoundError
from orchestrator.registry.database import RegistryPart
from orchestrator.registry.dialects import change_row, find_row, replace_unstorable, select_runs, upsert_rows, utc_now
from orchestrator.registry.records import MAX_CANDIDATES, MIN_ID_DIGITS, Flag, is_flagged, record_columns
from orchestrator.registry.tables import ALL_MODELS, ALL_RUNS, MARKS, OWN_MARKS, PIPELINE, RUNS, STAGES, is_internal


def add_marks(connection: Connection, run_id: str, kind: str, words: Iterable[str], **columns: str | None) -> None:
    """Add marks of a kind to a run: `tag`, `flag` or `note`; one that it has already changes nothing."""
    own = {"run_id": run_id, **columns}
    rows = [{**own, "word": word, "kind": "place" if kind == "tag" and is_internal(word) else kind} for word in words]
    upsert_rows(connection, OWN_MARKS, rows)


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
        asked = [run_ids] if isinstance(run_ids, str) else run_ids
        return [note for _, note in self._database.read(_load_notes, asked)]

    def remove_note(self, run_id: str, number: int) -> NoteRecord:
        """Remove a note by its place, from 1 on, and return it. Raises: NotFoundError."""
        with self._database.connection(writing=True) as connection:
            notes = _load_notes(connection, [run_id])
            if not 1 <= number <= len(notes):
                raise NotFoundError(f"run {run_id} has no note {number}; it has {len(notes)}")
            word, note = notes[number - 1]
            _take(connection, run_id, "note", [word])
            return note

    def tags(self, run_id: str) -> list[str]:
        """Tags of a run, with those of its sweep and its pipelines, sorted."""
        tags = select(MARKS.c.word).where(MARKS.c.run_id == run_id, MARKS.c.kind == "tag")
        return [tag for (tag,) in self._database.rows(tags.distinct().order_by(MARKS.c.word))]

    def tag(self, run_id: str, tags: Sequence[str], *, reserved: bool = False) -> None:
        """Add tags to a run; queries find by them its trials as well, and a pipeline's stages.

        `reserved` tags say where a run belongs. Raises: InputError for one that is empty, or should have been reserved.
        """
        if not reserved:
            _check_tags(tags)
        with self._database.connection(writing=True) as connection:
            add_marks(connection, run_id, "tag", tags)

    def untag(self, run_id: str, tags: Sequence[str], *, reserved: bool = False) -> list[str]:
        """Take tags from a run; returns those that it had by itself. Raises: InputError, as `tag` does."""
        if not reserved:
            _check_tags(tags)
        with self._database.connection(writing=True) as connection:
            return _take(connection, run_id, "place" if reserved else "tag", tags)

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
        return {run_id for (run_id,) in self._database.rows(select(RUNS.c.id).where(is_flagged(flag)))}

    def bearers(self, run_id: str, word: str, kind: str = "flag") -> list[str]:
        """Ids of the runs whose flag or tag reaches a run: itself first, then its sweep, then pipelines.

        Empty where none reaches it, although a pipeline of several may have it.
        """
        reaches = select(MARKS.c.run_id).where(MARKS.c.run_id == run_id, MARKS.c.kind == kind, MARKS.c.word == word)
        having = select(OWN_MARKS.c.run_id).where(OWN_MARKS.c.kind == kind, OWN_MARKS.c.word == word)
        with self._database.connection(writing=False) as connection:
            own = connection.execute(select(RUNS.c.id, RUNS.c.parent_id).where(RUNS.c.key.in_(reaches))).first()
            family = [one for one in own or () if one is not None]
            of_family = STAGES.c.run_id.in_(select_runs(family))
            pipelines = select(STAGES.c.pipeline).where(of_family).order_by(STAGES.c.pipeline)
            candidates = [*family, *connection.scalars(pipelines)]
            bearing = {*connection.scalars(having.where(OWN_MARKS.c.run_id.in_(select_runs(candidates))))}
        return [candidate for candidate in candidates if candidate in bearing]


def _take(connection: Connection, run_id: str, kind: str, words: Sequence[str]) -> list[str]:
    """Take marks from a run; returns the words of those that it had."""
    its = OWN_MARKS.c.run_id == run_id, OWN_MARKS.c.kind == kind, OWN_MARKS.c.word.in_(words)
    return sorted(connection.scalars(delete(OWN_MARKS).where(*its).returning(OWN_MARKS.c.word)))


def _load_notes(connection: Connection, run_ids: Collection[str]) -> list[tuple[str, NoteRecord]]:
    """Notes on some runs with their words, the oldest first."""
    mark = OWN_MARKS.c
    notes = select(mark.word, mark.run_id, mark.text, mark.author, mark.at).where(mark.kind == "note")
    theirs = notes.where(mark.run_id.in_(select_runs(run_ids))).order_by(mark.at, mark.word)
    return [(word, NoteRecord(*note)) for word, *note in connection.execute(theirs)]


def _check_tags(tags: Sequence[str]) -> None:
    for tag in tags:
        if not tag.strip():
            raise InputError("a tag needs some text")
        if any(unicodedata.category(sign) in ("Cc", "Zl", "Zp") for sign in tag):
            raise InputError(f"the tag {tag!r} has control characters; give words")
        if is_internal(tag):
            raise InputError(f"the tag {tag!r} says where a run belongs, and is set by the laboratory alone")


@dataclass(frozen=True)
class TrashRecord:
    """A run in the trash."""

    run_id: str
    name: str
    kind: str
    num_trials: int
    storage_path: str | None
    num_bytes: int
    created_at: datetime
    removed_at: datetime
    claimed_at: datetime | None
    """Time from which on it cannot be restored: its files are being deleted."""


class Trash(RegistryPart):
    """`registry.trash`: removes runs so that they can be restored."""

    def put(self, run_id: str, num_bytes: int) -> bool:
        """Remove a run that has ended, with its trials and models; returns whether it was there. Its files stay."""
        with self._database.connection(writing=True) as connection:
            run = find_row(connection, RUNS, id=run_id, for_update=True)
            if run is None or run.parent_id or not run.state.is_final:
                return False
            change_row(connection, ALL_RUNS, {"num_bytes": num_bytes}, id=run_id)
            _move(connection, run_id, None, connection.scalar(select(utc_now())))
            return True

    def records(self, *conditions: ColumnElement[bool]) -> list[TrashRecord]:
        """Runs in the trash, the newest first; those alone for which all conditions are true."""
        trial = ALL_RUNS.alias()
        num_trials = select(func.count()).where(trial.c.parent_id == ALL_RUNS.c.key).scalar_subquery()
        columns = record_columns(TrashRecord, ALL_RUNS, run_id=ALL_RUNS.c.id, num_trials=num_trials)
        found = select(*columns).where(ALL_RUNS.c.removed_at.is_not(None), ALL_RUNS.c.parent_id.is_(None), *conditions)
        newest_first = found.order_by(ALL_RUNS.c.removed_at.desc(), ALL_RUNS.c.id)
        return [TrashRecord(*row) for row in self._database.rows(newest_first)]

    def called(self, wanted: str) -> list[TrashRecord]:
        """Runs in the trash with that id, else those of that name and those whose id begins so, the newest first."""
        begins = ALL_RUNS.c.id.startswith(wanted.lower(), autoescape=True)
        is_begun = [begins] if len(wanted) >= MIN_ID_DIGITS else []
        return self.records(ALL_RUNS.c.id == wanted.lower()) or self.records(or_(ALL_RUNS.c.name == wanted, *is_begun))

    def find(self, wanted: str) -> TrashRecord:
        """Run in the trash that a text means alone: by its id, its name, or the beginning of its id.

        Raises: NotFoundError, which lists those that are there.
        """
        found = self.called(wanted)
        if len(found) == 1:
            return found[0]
        listed = ", ".join(f"{one.run_id} ({one.name[:40]!r})" for one in (found or self.records())[:MAX_CANDIDATES])
        what = "stands for several runs in the trash; give the id of one" if found else "is no run in the trash"
        raise NotFoundError(f"{wanted!r} {what}; there are: {listed or 'none'}")

    def stages_of(self, pipeline_id: str) -> list[TrashRecord]:
        """Stages of a pipeline that are in the trash and can be restored, the oldest first."""
        of_pipeline = select(OWN_MARKS.c.run_id).where(OWN_MARKS.c.word == f"{PIPELINE}{pipeline_id}")
        found = self.records(ALL_RUNS.c.key.in_(of_pipeline), ALL_RUNS.c.claimed_at.is_(None))
        return sorted(found, key=lambda stage: (stage.created_at, stage.run_id))

    def restore(self, run_id: str) -> None:
        """Bring a run back as it was, with its trials and models. Raises: NotFoundError; InputError if claimed."""
        with self._database.connection(writing=True) as connection:
            run = find_row(connection, ALL_RUNS, id=run_id, for_update=True)
            if run is None or run.removed_at is None:
                raise NotFoundError(f"run {run_id} is not in the trash")
            if run.claimed_at is not None:
                why = f"gc has deleted its files, or does so, since {run.claimed_at:%Y-%m-%d %H:%M} UTC"
                raise InputError(f"run {run_id} cannot be restored: {why}; what is left goes with: orchestrator gc")
            change_row(connection, ALL_RUNS, {"num_bytes": None}, id=run_id)
            _move(connection, run_id, run.removed_at, None)

    @contextmanager
    def claiming(self) -> Iterator[Callable[[str], bool]]:
        """Hold off whoever writes runs until the end of the block, to see what may go and to claim it.

        The block gets a function that claims a run in the trash, and returns whether its files may be deleted: not
        where the run is back, or gone. A claim may be repeated. The block reads by another `Registry`, and writes
        nothing else.
        """
        with self._database.connection(writing=True) as connection:
            if self._database.dialect == "postgresql":  # SQLite has one lock, which the transaction holds
                connection.execute(text("LOCK TABLE all_runs IN EXCLUSIVE MODE"))

            def claim(run_id: str) -> bool:
                run = find_row(connection, ALL_RUNS, id=run_id)
                if run is None or run.removed_at is None:
                    return False
                change_row(connection, ALL_RUNS, {"claimed_at": run.claimed_at or utc_now()}, id=run_id)
                return True

            yield claim


def _move(connection: Connection, run_id: str, before: datetime | None, after: datetime | None) -> None:
    """Change the time at which a run, its trials and those of their models were removed that have the time before."""
    from orchestrator.registry.roll_up import (  # numpy is of no use to who reads
        keys_of_runs,
        roll_up_again,
        roll_up_tests,
    )

    family = or_(ALL_RUNS.c.id == run_id, ALL_RUNS.c.parent_id == run_id)
    keys, folders = (select(column).where(family) for column in (ALL_RUNS.c.key, ALL_RUNS.c.model_folder))
    # The same weights may be those of another run, too; then they are where the newest run has them.
    elsewhere = select(RUNS.c.model_folder).where(RUNS.c.key.not_in(keys), RUNS.c.model_folder.is_not(None))
    are_own = ALL_MODELS.c.run_id.in_(keys) & ALL_MODELS.c.folder.not_in(elsewhere)
    models = or_(ALL_MODELS.c.folder.in_(folders), are_own)
    for table, are_its in ((ALL_MODELS, models), (ALL_RUNS, family)):
        marked = update(table).where(are_its, table.c.removed_at.is_not_distinct_from(before)).values(removed_at=after)
        connection.execute(marked)
    roll_up_again(connection, keys_of_runs(connection, [run_id]))
    roll_up_tests(connection)
