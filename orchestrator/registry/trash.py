"""The trash: runs that were removed and can be restored, until `gc` deletes their files.

Removing marks a run, its trials and the models that they registered; the views that everything reads leave them out.
Its files stay where they are until then. Whoever deletes the files claims the run first, in a transaction that a
restoration cannot cross: either the run is back by then, and its files stay, or it is claimed, and cannot be restored.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, func, or_, select, text, update

from orchestrator.errors import InputError, NotFoundError
from orchestrator.registry.database import Database
from orchestrator.registry.dialects import change_row, find_row, utc_now
from orchestrator.registry.roll_up import roll_up_runs, roll_up_tests
from orchestrator.registry.run_records import MAX_CANDIDATES, MIN_ID_DIGITS, record_columns
from orchestrator.registry.tables import ALL_MODELS, ALL_RUNS, OWN_MARKS, PIPELINE, RUNS


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
    """Time from which on it cannot be restored: a garbage collection began to delete its files."""


class Trash:
    """`registry.trash`: removes runs so that they can be restored."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, run_id: str, num_bytes: int) -> bool:
        """Remove a run that has ended, with its trials and models; returns whether it was there. Its files stay."""
        with self._database.connection(writing=True) as connection:
            run = find_row(connection, RUNS, id=run_id, for_update=True)
            if run is None or run.parent_id or not run.state.is_final:
                return False
            change_row(connection, ALL_RUNS, {"num_bytes": num_bytes}, id=run_id)
            _mark(connection, run_id, None, connection.scalar(select(utc_now())))
            return True

    def records(self, *conditions: ColumnElement[bool]) -> list[TrashRecord]:
        """Runs in the trash, the newest first; those alone for which all conditions are true."""
        trial = ALL_RUNS.alias()
        num_trials = select(func.count()).where(trial.c.parent_id == ALL_RUNS.c.key).scalar_subquery()
        columns = record_columns(TrashRecord, ALL_RUNS, {"run_id": ALL_RUNS.c.id, "num_trials": num_trials})
        are_removed = ALL_RUNS.c.removed_at.is_not(None), ALL_RUNS.c.parent_id.is_(None)
        found = select(*columns).where(*are_removed, *conditions)
        with self._database.connection(writing=False) as connection:
            rows = connection.execute(found.order_by(ALL_RUNS.c.removed_at.desc(), ALL_RUNS.c.id))
            return [TrashRecord(*row) for row in rows]

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
                raise InputError(
                    f"run {run_id} cannot be restored: a garbage collection has deleted its files, or does so, since "
                    f"{run.claimed_at:%Y-%m-%d %H:%M} UTC; what is left goes with: orchestrator gc"
                )
            change_row(connection, ALL_RUNS, {"num_bytes": None}, id=run_id)
            _mark(connection, run_id, run.removed_at, None)

    @contextmanager
    def claiming(self) -> Iterator[Callable[[str], bool]]:
        """Hold off whoever writes runs until the end of the block, to see what may go and to claim it.

        The block gets a function that claims a run in the trash, and returns whether its files may be deleted: not
        where the run is back, or gone. A claim may be claimed again, to finish what another has begun. The block reads
        by another `Registry`, and writes nothing else.
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


def _mark(connection: Connection, run_id: str, before: datetime | None, after: datetime | None) -> None:
    """Change the time at which a run, its trials and those of their models were removed that have the time before."""
    family = or_(ALL_RUNS.c.id == run_id, ALL_RUNS.c.parent_id == run_id)
    models = ALL_MODELS.c.run_id.in_(select(ALL_RUNS.c.key).where(family))
    for table, are_its in ((ALL_MODELS, models), (ALL_RUNS, family)):
        marked = update(table).where(are_its, table.c.removed_at.is_not_distinct_from(before)).values(removed_at=after)
        connection.execute(marked)
    roll_up_runs(connection, [run_id])
    roll_up_tests(connection)
