"""`Registry`: the SQL record of runs, for the driver, the command line and notebooks."""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import ColumnElement, select

from orchestrator.registry.database import Database
from orchestrator.registry.leaderboard import leaderboard_frame
from orchestrator.registry.lifecycle import RunLifecycle, add_tags
from orchestrator.registry.records import AttemptRecord, RunRecord
from orchestrator.registry.registered_models import RegisteredModels
from orchestrator.registry.run_checkpoints import RunCheckpoints
from orchestrator.registry.run_datasets import RunDatasets
from orchestrator.registry.run_frames import runs_frame
from orchestrator.registry.run_metrics import RunMetrics
from orchestrator.registry.run_parameters import load_parameters
from orchestrator.registry.run_records import find_run, load_records, state_as_read
from orchestrator.registry.run_transfers import RunTransfers
from orchestrator.registry.tables import AttemptRow, TagRow
from orchestrator.registry.trials import SweepTrials
from orchestrator.run_states import RunState

if TYPE_CHECKING:
    import pandas


class Registry:
    """SQL record of runs: what was asked, what happened, what came out. On SQLite or PostgreSQL.

    Runs are read with the methods below. Each attribute writes and reads one subject:

        lifecycle     create a run, start an attempt, send heartbeats, finish
        trials        trials of a sweep
        metrics       measurements: latest values and histories
        checkpoints   training checkpoints
        datasets      data that runs made or used
        models        registered models, by name and version
        transfers     runs of another registry, brought here

    A method named `frame`, and `runs`, `leaderboard` and `metrics.history`, return a `pandas.DataFrame`; other methods
    return frozen records (`records.py`) or plain values.

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
        self._database = Database(location, read_only=read_only)
        self._lost_after_s = lost_after_s
        self.lifecycle = RunLifecycle(self._database)
        self.trials = SweepTrials(self._database, lost_after_s)
        self.metrics = RunMetrics(self._database)
        self.checkpoints = RunCheckpoints(self._database)
        self.datasets = RunDatasets(self._database)
        self.models = RegisteredModels(self._database)
        self.transfers = RunTransfers(self._database)

    def run(self, prefix: str) -> RunRecord:
        """Run or trial whose id begins with `prefix`; a whole id wins over longer ones that begin with it.

        Raises: NotFoundError where there is none or there are several.
        """
        with self._database.session(writing=False) as session:
            return find_run(session, prefix, self._state())

    def runs(
        self, filter: str = "", *, sort: str = "-created_at", limit: int | None = None, trials: bool = True
    ) -> pandas.DataFrame:
        """Runs and trials that a query selects, a row each, newest first unless sorted otherwise.

        Columns: those of `RUN_COLUMNS`, `tags`, then a `metrics.…` and a `params.…` column for each metric and
        parameter that any of these runs has.

        Args:
            filter: a query, such as `metrics.f1 > 0.9 and params.size = 'tiny'`; all runs when empty.
            sort: a field, `-field` or `field desc` for descending order; runs without the field come last.
            limit: number of rows at most.
            trials: whether trials are included, beside runs without a parent.

        Raises: InputError with a caret under the place that is wrong.
        """
        with self._database.session(writing=False) as session:
            return runs_frame(session, self._state(), filter, sort, limit, trials=trials)

    def leaderboard(self, task: str | None = None) -> pandas.DataFrame:
        """Groups of completed trials that differ only in their seed, best mean first, for each task, score and data.

        Trials that were trained on other data or with another number of threads are another group. Groups that were
        scored on other validation data are ranked apart, the newest data first; `data` is the beginning of its digest,
        None for trials that were recorded without one.

        Columns: `mean`, `sd` (of a sample) and `best` over `n` seeds; `baseline`, the score of guessing the majority;
        `test`, the score of the group's trial that was scored on the test split; `recipe`, the values in which the
        groups of a task differ; `run`, the trial of the best seed, and `model`, its registered name or else its folder.
        Of two trials with the same seed the newer one counts.
        """
        with self._database.session(writing=False) as session:
            return leaderboard_frame(session, task)

    def attempts(self, run_id: str) -> list[AttemptRecord]:
        """Attempts of a run, in order; one that waits for its turn on a cluster is QUEUED."""
        statement = select(AttemptRow).where(AttemptRow.run_id == run_id).order_by(AttemptRow.number)
        with self._database.session(writing=False) as session:
            attempts = load_records(session, statement, AttemptRecord)
        return [replace(one, state=RunState.QUEUED) if one.state == RunState.PENDING else one for one in attempts]

    def parameters(self, run_id: str) -> dict[str, Any]:
        """Parameters of a run by dotted path: the values of its spec, or the whole recipe of a trial."""
        with self._database.session(writing=False) as session:
            return load_parameters(session, run_id)

    def tags(self, run_id: str) -> list[str]:
        """Tags of a run, sorted."""
        with self._database.session(writing=False) as session:
            return list(session.scalars(select(TagRow.tag).where(TagRow.run_id == run_id).order_by(TagRow.tag)))

    def tag(self, run_id: str, *tags: str) -> None:
        """Add tags to a run, by which queries find it."""
        with self._database.session(writing=True) as session:
            add_tags(session, run_id, tags)

    def open(self) -> None:
        """Connect, and create or check the tables, now rather than on first use: for who wants to know at once."""
        self._database.open()

    def upgrade(self) -> str:
        """Bring the tables to the newest revision and return it; of several processes one does the work."""
        return self._database.upgrade()

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

    def _state(self) -> ColumnElement[RunState]:
        return state_as_read(self._lost_after_s)

    def __repr__(self) -> str:
        return f"Registry({self.place!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
