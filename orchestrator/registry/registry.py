"""`Registry`: the SQL record of runs, for the driver, the command line and notebooks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import ColumnElement, select

from orchestrator.errors import NotFoundError, SeveralRunsError
from orchestrator.registry.attempt_columns import load_code_diff
from orchestrator.registry.database import Database
from orchestrator.registry.finding_groups import find_group
from orchestrator.registry.group_records import GroupRecord
from orchestrator.registry.groups import count_archived, load_groups_of, load_task_groups
from orchestrator.registry.leaderboard import Order, rank_groups, ranked_groups
from orchestrator.registry.lifecycle import RunLifecycle
from orchestrator.registry.lineage import Lineage
from orchestrator.registry.record_table import RecordTable
from orchestrator.registry.records import AttemptRecord, RunRecord
from orchestrator.registry.registered_models import RegisteredModels
from orchestrator.registry.run_annotations import RunAnnotations
from orchestrator.registry.run_checkpoints import RunCheckpoints
from orchestrator.registry.run_costs import RunCosts
from orchestrator.registry.run_datasets import RunDatasets
from orchestrator.registry.run_listing import count_runs, list_runs, selecting
from orchestrator.registry.run_metrics import RunMetrics
from orchestrator.registry.run_parameters import load_names, load_parameters
from orchestrator.registry.run_records import (
    find_run,
    load_records,
    load_runs,
    load_selected,
    newest_called,
    newest_completed,
    state_as_read,
)
from orchestrator.registry.run_transfers import RunTransfers
from orchestrator.registry.selection import Selection
from orchestrator.registry.tables import AttemptRow, TagRow
from orchestrator.registry.trials import SweepTrials
from orchestrator.run_states import RunState

if TYPE_CHECKING:
    import pandas

    from orchestrator.registry.group_comparison import Comparison
    from orchestrator.registry.trash import Trash


class Registry:
    """SQL record of runs: what was asked, what happened, what came out. On SQLite or PostgreSQL.

    Runs are read with the methods below. Each attribute writes and reads one subject:

        lifecycle     create a run, start an attempt, send heartbeats, finish
        trials        trials of a sweep
        metrics       measurements: latest values and histories
        checkpoints   training checkpoints
        datasets      data that runs made or used
        models        registered models, by name and version
        lineage       what was made of what
        costs         processor time, GPU time and energy of attempts
        transfers     runs of another registry, brought here
        annotations   notes, tags and flags that people add to runs
        trash         runs that were removed and can be restored

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
        self._database = Database(location, read_only=read_only)
        self._lost_after_s = lost_after_s
        self.lifecycle = RunLifecycle(self._database)
        self.trials = SweepTrials(self._database, lost_after_s)
        self.metrics = RunMetrics(self._database)
        self.checkpoints = RunCheckpoints(self._database)
        self.datasets = RunDatasets(self._database)
        self.models = RegisteredModels(self._database)
        self.lineage = Lineage(self._database)
        self.costs = RunCosts(self._database)
        self.transfers = RunTransfers(self._database)
        self.annotations = RunAnnotations(self._database)

    @cached_property
    def trash(self) -> Trash:
        """Runs that were removed and can be restored."""
        from orchestrator.registry.trash import Trash  # what it needs is long in loading

        return Trash(self._database)

    def run(self, prefix: str) -> RunRecord:
        """Run or trial whose id begins with `prefix`; a whole id wins over longer ones that begin with it.

        Raises: NotFoundError where there is none or there are several.
        """
        with self._database.session(writing=False) as session:
            return find_run(session, prefix, self._state())

    def newest_called(self, name: str) -> tuple[RunRecord, int] | None:
        """Newest run of a name, else the newest trial, and how many are called so; None where nothing is."""
        with self._database.session(writing=False) as session:
            return newest_called(session, name, self._state())

    def find_run(self, wanted: str) -> RunRecord:
        """Run or trial whose id begins with `wanted`, else the newest of that name. Raises: NotFoundError, as `run`."""
        try:
            return self.run(wanted)
        except SeveralRunsError:
            raise
        except NotFoundError:
            called = self.newest_called(wanted)
            if called is None:
                raise
            return called[0]

    def run_records(self, run_ids: Collection[str]) -> list[RunRecord]:
        """Records of the runs with these ids, the newest first; without those that are not there."""
        with self._database.session(writing=False) as session:
            return load_runs(session, self._state(), run_ids)

    def newest_completed(self, fingerprint: str) -> RunRecord | None:
        """Newest completed run of a spec, by its fingerprint; None where there is none."""
        with self._database.session(writing=False) as session:
            return newest_completed(session, fingerprint, self._state())

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
        return self.run_table(filter, sort=sort, limit=limit, trials=trials).frame()

    def run_table(
        self,
        filter: str = "",
        *,
        sort: str = "-created_at",
        limit: int | None = None,
        offset: int = 0,
        trials: bool = True,
        archived: bool = True,
    ) -> RecordTable:
        """The table that `runs` makes a DataFrame of: plain values, without pandas.

        Args:
            offset: number of rows that are left out before the first.
            archived: whether archived runs and their trials are included.
        """
        with self._database.session(writing=False) as session:
            return list_runs(session, self._state(), filter, sort, limit, offset, trials=trials, archived=archived)

    def selected(self, filter: str, *, trials: bool = True) -> list[RunRecord]:
        """Records of the runs that a query selects, the newest first; nothing else is read of them."""
        with self._database.session(writing=False) as session:
            state = self._state()
            conditions = selecting(session, state, filter, trials=trials, archived=True, whole=True)
            return load_selected(session, state, conditions)

    def named_in_specs(self, fields: Collection[str], *, except_of: Collection[str] = ()) -> set[str]:
        """Values that these fields have, wherever they stand in a spec, in any run but some."""
        with self._database.session(writing=False) as session:
            return load_names(session, fields, except_of)

    def unmatched(self, filter: str) -> list[str]:
        """Tell what a query asks for that no run has: why it finds nothing. Raises: InputError."""
        with self._database.session(writing=False) as session:
            return Selection(session, self._state()).unmatched(filter)

    def grouped(
        self,
        by: str | Sequence[str],
        filter: str = "",
        *,
        aggregates: str | Sequence[str] = (),
        pivot: str | None = None,
        sort: str | None = None,
        trials: bool = True,
        archived: bool = True,
    ) -> pandas.DataFrame:
        """Groups of the runs that a query selects, a row each: `grouped("params.learning_rate", "task = 'mrpc'")`.

        Columns: the fields of `by`, then the aggregates. Scores of different measurements are never taken together:
        where runs have several, `metric` becomes a field of `by`. A run with several tags is in the group of each.

        Args:
            by: fields whose values make a group, as one text with commas or several.
            filter: a query, as `runs` takes it; all runs when empty.
            aggregates: `count`, `n` (how many have a value), `mean`, `sd`, `min`, `max`, `median`, `sum`, `best` and
                `worst`, of the score; or of a field: `max(seconds)`, `mean(best(metrics.loss))`. When empty count, n,
                mean, sd, min and max of the score; with a pivot the mean.
            pivot: field each of whose values becomes a column, such as `seed`.
            sort: a column of the table, `-mean` from the largest down; groups stand in the order of `by` when None.
            trials: whether trials are included, beside runs without a parent.
            archived: whether archived runs and their trials are included.

        Raises: InputError.
        """
        table = self.grouped_table(
            by, filter, aggregates=aggregates, pivot=pivot, sort=sort, trials=trials, archived=archived
        )
        return table.frame()

    def grouped_table(
        self,
        by: str | Sequence[str],
        filter: str = "",
        *,
        aggregates: str | Sequence[str] = (),
        pivot: str | None = None,
        sort: str | None = None,
        trials: bool = True,
        archived: bool = True,
    ) -> RecordTable:
        """The table that `grouped` makes a DataFrame of: plain values, without pandas."""
        from orchestrator.registry.run_grouping import Grouping, group_runs

        grouping = Grouping.of(by, aggregates, pivot, sort)
        with self._database.session(writing=False) as session:
            return group_runs(session, self._state(), filter, grouping, trials=trials, archived=archived)

    def stages(self, run_id: str) -> list[RunRecord]:
        """Stages of a pipeline that have begun, or were done before, the newest first; none of any other run."""
        return self.selected(f"tag = 'pipeline:{run_id}'", trials=False)

    def num_runs(self, filter: str = "", *, trials: bool = True, archived: bool = True) -> int:
        """Number of the runs and trials that a query selects. Raises: InputError, as `runs` does."""
        with self._database.session(writing=False) as session:
            return count_runs(session, self._state(), filter, trials=trials, archived=archived)

    def leaderboard(self, task: str | None = None, *, by: Order = "lower", archived: bool = False) -> pandas.DataFrame:
        """Groups of runs that differ only in their seed, ranked for each task, score, split and data.

        They are trials of sweeps and probes, students, and evaluations of models. Runs with another recipe, on other
        data, with another number of threads or other code are another group. Groups that were scored on other data are
        ranked apart, the newest data first; `data` is the beginning of its digest, None where none was recorded.

        A score that falls as models get better, as a loss, is ranked that way. Groups of one seed, or
        of two that score the same, come after all others unless `by` says otherwise: how much seeds matter is not
        known. What completed without a score comes
        last. `tie`: whether a group cannot be told from the one above it (Welch's test); None where noise is not known.

        Columns: `mean`, `sd`, the 95 % interval of the mean from `low` to `high`, `median`, `worst` and `best` over `n`
        distinct seeds, of which one that ran again counts once; numbers of runs that `completed`, `failed`, were
        `pruned`, `collapsed` to the baseline, gave `nan` for a score, or are `unfinished`; `baseline`, the score of
        guessing the majority; `test`, the score on the test split of the run `test_run`; `recipe`, the values in which
        the groups of a task differ; `notes`, all that the mean does not say; `origin`, `chosen` where the model was
        chosen on the very data of the score, which flatters it; `run`, the best seed's, and `model`, its registered
        name or else its folder.

        Args:
            by: number that ranks: the worse end of the interval (`lower`), `mean`, `median`, or the `best` seed, which
                is the luckiest of n.
            archived: whether archived runs and their trials are ranked, too; `num_ranked_archived` counts them.
        """
        return self.leaderboard_table(task, by=by, archived=archived).frame()

    def leaderboard_table(self, task: str | None = None, *, by: Order = "lower", archived: bool = False) -> RecordTable:
        """The table that `leaderboard` makes a DataFrame of: plain values, without pandas."""
        with self._database.session(writing=False) as session:
            return rank_groups(session, task, by, archived=archived)

    def num_ranked_archived(self, task: str | None = None) -> int:
        """Number of the runs that the leaderboard leaves out since they, or their sweeps, are archived."""
        with self._database.session(writing=False) as session:
            return count_archived(session, task)

    def groups(self, task: str | None = None, *, archived: bool = False) -> list[GroupRecord]:
        """Groups of runs that differ only in their seed, of a task or of all, in the order of the leaderboard.

        Args:
            archived: whether archived runs and their trials belong to them.
        """
        with self._database.session(writing=False) as session:
            found = load_task_groups(session, task, archived=archived)
        return [ranked.group for ranked in ranked_groups(found)]

    def groups_of(self, run_ids: Collection[str]) -> list[GroupRecord]:
        """Groups of some runs, each with all of its runs, archived ones too."""
        with self._database.session(writing=False) as session:
            return load_groups_of(session, run_ids)

    def group(self, name: str) -> GroupRecord:
        """Group whose digest begins with `name`, or the part of its group that a run or trial of that id is.

        Raises: NotFoundError where there is none or there are several; InputError for a run with several groups.
        """
        with self._database.session(writing=False) as session:
            return find_group(session, name, self._state())

    def compare(self, *names: str) -> list[Comparison]:
        """Compare groups, runs or trials, each two of them, over their seeds and over kept predictions.

        p-values are corrected for the number of comparisons by Holm's method. `Comparison.words` is the answer.

        Raises: NotFoundError, InputError, as `group` does; InputError for less than two, or where they were not scored
            on the same data by the same score.
        """
        from orchestrator.registry.comparing import compare_named  # numpy is of use to no other reading

        with self._database.session(writing=False) as session:
            return compare_named(session, names, self._state())

    def attempts(self, run_id: str) -> list[AttemptRecord]:
        """Attempts of a run, in order; one that waits for its turn on a cluster is QUEUED."""
        statement = select(AttemptRow).where(AttemptRow.run_id == run_id).order_by(AttemptRow.number)
        with self._database.session(writing=False) as session:
            attempts = load_records(session, statement, AttemptRecord)
        return [replace(one, state=RunState.QUEUED) if one.state == RunState.PENDING else one for one in attempts]

    def code_diff(self, run_id: str, attempt: int) -> str | None:
        """Changes of an attempt's code that were in no commit; None where there were none, or too many to keep."""
        with self._database.session(writing=False) as session:
            return load_code_diff(session, run_id, attempt)

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

    def upgrade(self, *, with_backup: bool = True) -> str:
        """Bring the tables to the newest revision and return it; of several processes one does the work.

        Before the tables of a SQLite file are changed, a copy of it is laid beside it, unless `with_backup` is False.
        The lineage of the runs that are there is recorded afterwards.
        """
        from orchestrator.registry.backups import before_migration  # what it needs is long in loading

        revision = self._database.upgrade(before_migration(self._database) if with_backup else None)
        self.lineage.record_all()
        return revision

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
