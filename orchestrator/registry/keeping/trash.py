"""The trash: runs that were removed and can be restored, until `gc` deletes their files.

Removing a run takes its record out of every other table, and keeps it here as a small registry of its own, a SQLite
file, in the same transaction. So nothing that reads runs needs to know of the trash. The files stay where they are
until then.

Whoever deletes the files claims the run first, in a transaction that a restoration cannot cross: either the run is back
by then, and its files stay, or it is claimed, and cannot be restored any more.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import zstandard
from sqlalchemy import delete, select, text
from sqlalchemy.orm import Session

from orchestrator.errors import InputError, NotFoundError
from orchestrator.registry.column_types import utc_now
from orchestrator.registry.database import Database
from orchestrator.registry.engines.dialects import select_items
from orchestrator.registry.keeping.merging import Merged, copy_run, merge_registry
from orchestrator.registry.keeping.run_families import family_of
from orchestrator.registry.keeping_tables import TrashRow
from orchestrator.registry.place_tags import PIPELINE
from orchestrator.registry.run_records import MAX_CANDIDATES, MIN_ID_DIGITS, load_records
from orchestrator.registry.tables import ModelRow, RunRow, TagRow


@dataclass(frozen=True)
class TrashRecord:
    """A run in the trash."""

    run_id: str
    name: str
    kind: str
    num_trials: int
    storage_path: str | None
    """Folder in which its files still lie."""
    num_bytes: int
    created_at: datetime
    removed_at: datetime
    claimed_at: datetime | None
    """Time at which a garbage collection began to delete its files, so that it cannot be restored any more."""


class Trash:
    """`registry.trash`: removes runs so that they can be restored."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, run_id: str, num_bytes: int) -> bool:
        """Take a run that has ended out of the record, with its trials and models; returns whether it was there.

        Args:
            num_bytes: size of its files, which stay where they are.
        """
        with self._database.session(writing=True) as session:
            run = session.get(RunRow, run_id, with_for_update=True)
            if run is None or not run.state.is_final:
                return False
            family, record = family_of(session, run_id), _record_of(session, run_id)
            session.merge(
                TrashRow(
                    run_id=run_id,
                    name=run.name,
                    kind=run.kind,
                    num_trials=len(family) - 1,
                    storage_path=run.storage_path,
                    num_bytes=num_bytes,
                    record=record,
                    created_at=run.created_at,
                )
            )
            session.flush()
            session.expunge_all()
            session.execute(delete(ModelRow).where(ModelRow.run_id.in_(select_items(session, family))))
            session.execute(delete(RunRow).where(RunRow.id == run_id))
        return True

    def records(self) -> list[TrashRecord]:
        """Runs in the trash, the newest first."""
        newest_first = select(TrashRow).order_by(TrashRow.removed_at.desc(), TrashRow.run_id)
        with self._database.session(writing=False) as session:
            return load_records(session, newest_first, TrashRecord)

    def called(self, wanted: str) -> list[TrashRecord]:
        """Runs in the trash with that id, else those of that name and those whose id begins so, the newest first."""
        records = self.records() if wanted else []
        is_long = len(wanted) >= MIN_ID_DIGITS
        whole = [one for one in records if one.run_id == wanted.lower()]
        return whole or [
            one for one in records if one.name == wanted or (is_long and one.run_id.startswith(wanted.lower()))
        ]

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
        tag = f"{PIPELINE}{pipeline_id}"
        rows = select(TrashRow).where(TrashRow.claimed_at.is_(None)).order_by(TrashRow.created_at, TrashRow.run_id)
        with self._database.session(writing=False) as session:
            stages = {row.run_id for row in session.scalars(rows) if _has_tag(row, tag)}
            return [one for one in load_records(session, rows, TrashRecord) if one.run_id in stages]

    def restore(self, run_id: str) -> list[Merged]:
        """Bring a run back as it was; returns what could not come back as it was, such as an alias that moved since.

        Raises: NotFoundError; InputError where another run has its id by now, or its files are being deleted.
        """
        with self._database.session(writing=False) as session:
            row = _restorable(session, run_id)
        with _opened(row) as source:
            merge = merge_registry(
                self._database,
                source,
                unfinished=True,
                from_trash=True,
                before_run=lambda here: _restorable(here, run_id, lock=True),
            )
            merged = list(merge)
        for one in merged:
            if one.what == "run" and one.change == "conflict":
                raise InputError(f"run {run_id} cannot be restored: the registry has another run of that id")
        self.drop(run_id)
        return [one for one in merged if one.remark and (one.what == "run" or one.change == "conflict")]

    @contextmanager
    def claiming(self) -> Iterator[Callable[[str], bool]]:
        """Hold off whoever writes runs until the end of the block, to see what may go and to claim it.

        The block gets a function that claims a run in the trash, whose files are about to be deleted, and returns
        whether they may be: not where the run is not in the trash, or back in the record. Whoever finds a claim may
        claim again, to finish what another has begun. The block reads by another `Registry`, and writes nothing else.
        """
        with self._database.session(writing=True) as session:
            if self._database.dialect == "postgresql":
                session.execute(text("LOCK TABLE runs, trash IN EXCLUSIVE MODE"))
            else:
                session.connection()  # which begins the transaction, and takes SQLite's one lock

            def claim(run_id: str) -> bool:
                row = session.get(TrashRow, run_id)
                if row is None or session.get(RunRow, run_id) is not None:
                    return False
                row.claimed_at = row.claimed_at or utc_now()
                return True

            yield claim

    def drop(self, run_id: str) -> None:
        """Forget a run in the trash for good."""
        with self._database.session(writing=True) as session:
            session.execute(delete(TrashRow).where(TrashRow.run_id == run_id))


def _record_of(session: Session, run_id: str) -> bytes:
    """A registry of a run alone, as a compressed SQLite file."""
    with TemporaryDirectory(prefix="orchestrator-trash-") as folder:
        path = Path(folder) / "registry.sqlite"
        with closing(Database(str(path))) as record, record.session(writing=True) as here:
            copy_run(session, here, run_id)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
        return zstandard.ZstdCompressor().compress(path.read_bytes())


@contextmanager
def _opened(row: TrashRow) -> Iterator[Database]:
    """Open the registry of a removed run."""
    with TemporaryDirectory(prefix="orchestrator-trash-") as folder:
        path = Path(folder) / "registry.sqlite"
        path.write_bytes(zstandard.ZstdDecompressor().decompress(row.record))
        with closing(Database(str(path), read_only=True)) as record:
            yield record


def _has_tag(row: TrashRow, tag: str) -> bool:
    with _opened(row) as record, record.session(writing=False) as session:
        return session.get(TagRow, (row.run_id, tag)) is not None


def _restorable(session: Session, run_id: str, *, lock: bool = False) -> TrashRow:
    """Row of a run in the trash that can be restored. Raises: NotFoundError, InputError.

    Args:
        lock: whether nobody may claim the run until the session's transaction ends.
    """
    row = session.get(TrashRow, run_id, with_for_update=lock)
    if row is None:
        raise NotFoundError(f"run {run_id} is not in the trash")
    if row.claimed_at is not None:
        raise InputError(
            f"run {run_id} cannot be restored: a garbage collection has deleted its files, or does so, since "
            f"{row.claimed_at:%Y-%m-%d %H:%M} UTC; what is left of it goes with: orchestrator gc"
        )
    return row
