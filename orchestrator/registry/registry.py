"""`Registry`: the SQL record of runs, for the driver, the command line and notebooks."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import select

from orchestrator.errors import NotFoundError, SeveralRunsError
from orchestrator.nearest import nearest
from orchestrator.registry.attempt_tables import AttemptRow, CodeDiffRow
from orchestrator.registry.database import Database
from orchestrator.registry.groups.seed_groups import SeedGroups
from orchestrator.registry.queries.queried_runs import QueriedRuns
from orchestrator.registry.records import AttemptRecord, RunRecord
from orchestrator.registry.registered_models import RegisteredModels
from orchestrator.registry.run_records import find_run, load_records, load_runs, newest_called, newest_completed
from orchestrator.registry.runs.run_annotations import RunAnnotations
from orchestrator.registry.runs.run_costs import RunCosts
from orchestrator.registry.runs.run_datasets import RunCheckpoints, RunDatasets
from orchestrator.registry.runs.run_metrics import RunMetrics
from orchestrator.registry.runs.run_parameters import load_parameters
from orchestrator.registry.runs.trials import SweepTrials
from orchestrator.registry.tables import TagRow

if TYPE_CHECKING:
    from orchestrator.registry.keeping.trash import Trash
    from orchestrator.registry.lineage import Lineage
    from orchestrator.registry.runs.lifecycle import RunLifecycle


_NUM_COMPARED = 1000
"""Newest runs whose names are compared with one that is not there."""


class Registry(QueriedRuns, SeedGroups):
    """SQL record of runs: what was asked, what happened, what came out. On SQLite or PostgreSQL.

    Runs are read with the methods below. Each attribute writes and reads one subject:

        lifecycle     create a run, start an attempt, send heartbeats, finish
        trials        trials of a sweep
        metrics       measurements: latest values and histories
        checkpoints   training checkpoints
        datasets      data that runs made or used
        models        registered models, by name and version
        lineage       what was made of what
        costs         time of attempts, and what they held of CPUs and GPUs
        annotations   notes, tags and flags that people add to runs
        trash         runs that were removed and can be restored

    Methods that take a query are those of `QueriedRuns`; those about groups that differ in the seed, of `SeedGroups`.

    A method named `frame`, and `runs`, `grouped`, `leaderboard` and `metrics.history`, return a `pandas.DataFrame`.
    Each has a twin that returns the same as plain values, without pandas: `table`, `run_table`, `grouped_table`,
    `leaderboard_table` and `metrics.history_table`. Other methods return frozen records (`records.py`) or plain values.

    **Opening.** Making a `Registry` opens nothing. The first use connects, gives an empty database its tables, and
    refuses tables of another revision. After `close`, or the end of a `with` block, the next use connects again.

    **Threads and processes.** Threads may share a registry. Each process makes its own: a registry cannot be pickled
    and must not be carried over a fork. Any number of processes may read and write one database. In a run only the
    driver writes; workers and trials send it events and results (`orchestrator.results`).

    **Transactions.** Each method is one transaction: committed when it returns, rolled back when it raises. So other
    readers see all of a call or nothing of it, and what a returned call wrote survives the death of the process.

    **Idempotence.** Rows have natural keys and writes are upserts, so that a call may be repeated: it changes nothing
    more. This is how a caller recovers from a call whose outcome is unknown because the connection broke. Two calls
    make something new each time, unless the id or the number is given: `lifecycle.create` and
    `lifecycle.start_attempt`.

    **States.** `orchestrator.run_states` says which state may follow which. A change that it does not allow is ignored
    by `lifecycle.finish` and `trials`, which makes repeated and late reports harmless, and refused by
    `lifecycle.start_attempt`.

    **Attempts.** Attempts of a run are numbered, and the newest one owns the run. An older attempt that wakes up
    changes neither the state nor the heartbeat of the run: `lifecycle.heartbeat` returns False to it, and
    `lifecycle.finish` ends its own row alone. Measurements and checkpoints are not fenced: an exact resume computes the
    same values for the same steps, so an older attempt can only repeat them; it should end at its next heartbeat.

    **Times.** They are taken from the clock of the database, so that drivers on different machines agree. Times in
    records and frames are in UTC and carry the time zone; a query's time without a zone is in UTC.

    Raises:
        RegistryError: from every method, where the database cannot be opened, read or written, or a run that a row
            belongs to is not there.
        RegistryUnavailableError: a RegistryError that may go away by itself: server down, file locked. Calls may be
            repeated until it does.
        NotFoundError: no run, sweep or model of that name or id; the message lists candidates.
        InputError: a query with an error, or an attempt of a run that has completed.

    Args:
        location: path of a .sqlite file, `sqlite:///PATH`, `postgresql://…`, or `file:PATH` of a private file that
            holds such a URL. Anything else raises RegistryError.
        read_only: open it for reading alone: nothing is created, upgraded or written. A registry that is not there
            reads as an empty one, and one in a folder that cannot be written can be read.
        lost_after_s: age in seconds at which the last heartbeat of a running run is too old, so that it reads as LOST.
    """

    def __init__(self, location: str, *, read_only: bool = False, lost_after_s: float = 60.0) -> None:
        super().__init__(Database(location, read_only=read_only), lost_after_s)
        self.trials = SweepTrials(self._database, lost_after_s)
        self.metrics = RunMetrics(self._database)
        self.checkpoints = RunCheckpoints(self._database)
        self.datasets = RunDatasets(self._database)
        self.models = RegisteredModels(self._database)
        self.costs = RunCosts(self._database)
        self.annotations = RunAnnotations(self._database)

    # What writes is imported when it is asked for: a command that only reads would load it for a tenth of a second.

    @cached_property
    def lifecycle(self) -> RunLifecycle:
        """Writer of runs: creates them, starts attempts, sends heartbeats, finishes."""
        from orchestrator.registry.runs.lifecycle import RunLifecycle

        return RunLifecycle(self._database)

    @cached_property
    def lineage(self) -> Lineage:
        """Record of what was made of what."""
        from orchestrator.registry.lineage import Lineage

        return Lineage(self._database)

    @cached_property
    def trash(self) -> Trash:
        """Runs that were removed and can be restored."""
        from orchestrator.registry.keeping.trash import Trash

        return Trash(self._database)

    def run(self, wanted: str) -> RunRecord:
        """Run or trial by its whole id, its exact name (the newest), or the beginning of its id, four characters of it.

        Raises: NotFoundError where there is none; SeveralRunsError for the beginning of several ids, and for a name
            that another run's id begins with.
        """
        with self._database.session(writing=False) as session:
            return find_run(session, wanted, self._state())

    def newest_called(self, name: str) -> tuple[RunRecord, int] | None:
        """Newest run of a name, else the newest trial, and how many are called so; None where nothing is."""
        with self._database.session(writing=False) as session:
            return newest_called(session, name, self._state())

    def find_run(self, wanted: str, *, or_task: bool = False) -> RunRecord:
        """Run or trial as `run` finds it. Raises: NotFoundError, as `run`, with what was nearly meant.

        Args:
            or_task: whether a task may have been meant, too.
        """
        try:
            return self.run(wanted)
        except SeveralRunsError:
            raise
        except NotFoundError as error:
            removed = [one for one in self.trash.called(wanted) if one.claimed_at is None]
            if removed:
                where = f"Run {removed[0].run_id} ({removed[0].name}) is in the trash"
                raise NotFoundError(
                    f"{where}; to bring it back: orchestrator runs restore {removed[0].run_id}"
                ) from None
            if "@" in wanted and self._is_model(wanted):
                raise NotFoundError(f"{wanted} is a model: `orchestrator models show {wanted}`") from None
            newest = self.run_table("", limit=_NUM_COMPARED, trials=False).values("name")
            names = [*dict.fromkeys([*newest, *(self.ranked_tasks() if or_task else ())])]
            close = nearest(wanted, names, 1) if wanted else []
            hint = f"; did you mean {close[0]}?" if close else ", and none is called so." if names else "."
            raise NotFoundError(f"{str(error).rstrip('.')}{hint}") from None

    def _is_model(self, name: str) -> bool:
        try:
            self.models.get(name)
        except NotFoundError:
            return False
        return True

    def run_records(self, run_ids: Collection[str]) -> list[RunRecord]:
        """Records of the runs with these ids, the newest first; without those that are not there."""
        with self._database.session(writing=False) as session:
            return load_runs(session, self._state(), run_ids)

    def newest_completed(self, fingerprint: str) -> RunRecord | None:
        """Newest completed run of a spec, by its fingerprint; None where there is none."""
        with self._database.session(writing=False) as session:
            return newest_completed(session, fingerprint, self._state())

    def attempts(self, run_id: str) -> list[AttemptRecord]:
        """Attempts of a run, in order."""
        statement = select(AttemptRow).where(AttemptRow.run_id == run_id).order_by(AttemptRow.number)
        with self._database.session(writing=False) as session:
            return load_records(session, statement, AttemptRecord)

    def code_diff(self, run_id: str, attempt: int) -> str | None:
        """Changes of an attempt's code that were in no commit; None where there were none, or too many to keep."""
        statement = select(CodeDiffRow.diff).join(AttemptRow, AttemptRow.diff_digest == CodeDiffRow.digest)
        with self._database.session(writing=False) as session:
            return session.scalar(statement.where(AttemptRow.run_id == run_id, AttemptRow.number == attempt))

    def parameters(self, run_id: str) -> dict[str, Any]:
        """Parameters of a run by dotted path: the values of its spec, or the whole recipe of a trial."""
        with self._database.session(writing=False) as session:
            return load_parameters(session, run_id)

    def tags(self, run_id: str) -> list[str]:
        """Tags of a run, sorted."""
        with self._database.session(writing=False) as session:
            return list(session.scalars(select(TagRow.tag).where(TagRow.run_id == run_id).order_by(TagRow.tag)))

    def tag(self, run_id: str, *tags: str) -> None:
        """Add tags to a run, by which queries find it and, of a sweep, its trials, reserved ones too."""
        self.annotations.tag(run_id, tags, by_hand=False)

    def open(self) -> None:
        """Connect, and create or check the tables, now rather than on first use: for who wants to know at once."""
        self._database.open()

    def upgrade(self, backups: Path | None = None, *, with_backup: bool = True) -> str:
        """Bring the tables to the newest revision and return it; of several processes one does the work.

        Before tables are changed, unless `with_backup` is False, a SQLite file is copied beside itself, a server's
        tables by `pg_dump` into the folder `backups`.

        Raises: RegistryError where no copy can be made, or a server's has no folder to go to.
        """
        from orchestrator.registry.keeping.backups import back_up_before_migration  # what it needs is long in loading

        back_up = partial(back_up_before_migration, self._database.url, folder=backups)
        return self._database.upgrade(back_up if with_backup else None)

    def current_revision(self) -> str | None:
        """Revision of the tables; None where there are no tables yet."""
        return self._database.current_revision()

    @property
    def place(self) -> str:
        """Path of the file, or URL of the server without its password: for messages."""
        return str(self._database)

    def close(self) -> None:
        """Close every connection; the next use opens new ones."""
        self._database.close()

    def __repr__(self) -> str:
        return f"Registry({self.place!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
