"""`Registry`: the SQL record of runs, for the driver, the command line and notebooks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import ColumnElement, func, or_, select, union

from orchestrator.base.errors import NotFoundError
from orchestrator.base.nearest import nearest
from orchestrator.base.run_states import LOST_AFTER_S, RunState
from orchestrator.registry import records
from orchestrator.registry.database import Database
from orchestrator.registry.dialects import select_items
from orchestrator.registry.fields import Test, list_runs, read_in_order
from orchestrator.registry.parameters import load_parameters
from orchestrator.registry.selection import Selection
from orchestrator.registry.tables import ATTEMPTS, CODE_DIFFS, OPEN_RUNS, RANKED_GROUPS, RUNS, STAGES

if TYPE_CHECKING:
    import pandas

    from orchestrator.base.results import Split
    from orchestrator.registry.group_comparison import Comparison
    from orchestrator.registry.group_records import GroupRecord
    from orchestrator.registry.leaderboard import Order
    from orchestrator.registry.lifecycle import RunLifecycle
    from orchestrator.registry.lineage import Lineage
    from orchestrator.registry.marks import RunAnnotations, Trash
    from orchestrator.registry.registered_models import RegisteredModels
    from orchestrator.registry.run_results import RunCheckpoints, RunCosts, RunDatasets, RunMetrics
    from orchestrator.registry.trials import SweepTrials
    from orchestrator.significance.ranking import SeedNoise


def _part(module: str, kind: str) -> Any:
    """Part for one subject, loaded when it is first asked for: who only lists runs needs none."""
    module = f"orchestrator.registry.{module}"
    return cached_property(lambda registry: getattr(import_module(module), kind)(registry._database))


class Registry:
    """SQL record of runs: what was asked, what happened, what came out. On SQLite or PostgreSQL.

    Runs, and groups of runs that differ only in the seed, are read with the methods below. Each attribute writes and
    reads one subject: `lifecycle`, `trials`, `metrics`, `checkpoints`, `datasets`, `costs`, `models`, `lineage` (what
    was made of what), `annotations` (notes, tags, flags) and `trash`. Methods return frozen records (`records.py`),
    plain values, or a `RecordTable`, whose `frame()` is a DataFrame.

    **Opening.** Making a `Registry` opens nothing. The first use connects, gives an empty database its tables, and
    refuses tables of another revision. After `close`, or the end of a `with` block, the next use connects again.

    **Threads and processes.** Threads may share a registry. Each process makes its own: a registry cannot be pickled
    and must not be carried over a fork. Any number of processes may read and write one database. In a run only the
    driver writes; workers and trials send it events and results (`orchestrator.base.results`).

    **Transactions.** Each method is one transaction: committed when it returns, rolled back when it raises. What a
    returned call wrote survives the death of the process. Rows have natural keys and writes are upserts: a call whose
    outcome is unknown may be repeated, and changes nothing more. Only `lifecycle.create` without an id and
    `lifecycle.start_attempt` without a number make something new each time.

    **States.** `orchestrator.base.run_states` says which state may follow which. A change that it does not allow is
    ignored by `lifecycle.finish` and `trials`, which makes late reports harmless, and refused by
    `lifecycle.start_attempt`.

    **Attempts.** The newest attempt of a run owns it. An older one that wakes up changes neither the state nor the
    heartbeat of the run: `lifecycle.heartbeat` returns False to it. Measurements and checkpoints are not fenced: an
    exact resume computes the same values for the same steps.

    **Times.** They are the database's, so that drivers on different machines agree, in UTC, and carry the time zone.

    Raises:
        RegistryError: from every method, where the database cannot be opened, read or written, or a run that a row
            belongs to is not there. A RegistryUnavailableError may go away by itself: server down, file locked.
        NotFoundError: no run, sweep or model of that name or id; the message lists candidates.
        InputError: a query with an error, or an attempt of a run that has completed.

    Args:
        location: path of a .sqlite file, `sqlite:///PATH`, `postgresql://…`, or `file:PATH` of a private file that
            holds such a URL. Anything else raises RegistryError.
        read_only: open it for reading alone. A registry that is not there reads as an empty one, and one in a folder
            that cannot be written can be read.
        lost_after_s: age in seconds at which the last heartbeat of a running run is too old, so that it reads as LOST.
    """

    def __init__(self, location: str, *, read_only: bool = False, lost_after_s: float = LOST_AFTER_S) -> None:
        self._database = Database(location, read_only=read_only, lost_after_s=lost_after_s)

    lifecycle: RunLifecycle = _part("lifecycle", "RunLifecycle")
    trials: SweepTrials = _part("trials", "SweepTrials")
    metrics: RunMetrics = _part("run_results", "RunMetrics")
    checkpoints: RunCheckpoints = _part("run_results", "RunCheckpoints")
    datasets: RunDatasets = _part("run_results", "RunDatasets")
    costs: RunCosts = _part("run_results", "RunCosts")
    models: RegisteredModels = _part("registered_models", "RegisteredModels")
    lineage: Lineage = _part("lineage", "Lineage")
    annotations: RunAnnotations = _part("marks", "RunAnnotations")
    trash: Trash = _part("marks", "Trash")

    def runs(
        self, filter: str = "", *, sort: str = "-created_at", limit: int | None = None, trials: bool = True
    ) -> pandas.DataFrame:
        """Runs and trials that a query selects, as a DataFrame: columns and arguments are those of `run_table`."""
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
    ) -> records.RecordTable:
        """Runs and trials that a query selects, a record each.

        Columns: those of `RUN_COLUMNS`, `tags`, then a `metrics.…` and a `params.…` column for each metric and
        parameter that any of these runs has. A parameter is called by the last part of its path, by the whole path
        where several in the table end so. NaN in a record was measured; what was not is not there.

        Args:
            filter: a query, such as `metrics.f1 > 0.9 and params.recipe.size = 'tiny'`; all runs when empty.
            sort: a field, `-field` or `field desc` for descending order; runs without the field come last.
            limit: number of rows at most, after the first `offset` ones.
            trials: whether trials are included.
            archived: whether archived runs and their trials are included.

        Raises: InputError with a caret under the place that is wrong.
        """
        with self._selection(filter, trials, archived) as (selection, conditions):
            keys = read_in_order(selection.connection, RUNS.c.key, conditions, selection.order(sort), limit, offset)
            return list_runs(selection.connection, selection.state, keys)

    def run_ids(self, filter: str = "", *, sort: str = "-created_at", archived: bool = True) -> list[str]:
        """Ids of the runs and trials that a query selects, in the order of `run_table`."""
        with self._selection(filter, True, archived) as (selection, conditions):
            return read_in_order(selection.connection, RUNS.c.id, conditions, selection.order(sort))

    def find_records(self, filter: str) -> list[records.RunRecord]:
        """Records of the runs, without trials, that a query selects, the newest first."""
        with self._selection(filter, False) as (selection, conditions):
            return records.load_runs(selection.connection, selection.state, *conditions)

    def num_runs(self, filter: str = "", *, trials: bool = True, archived: bool = True) -> int:
        """Number of the runs and trials that a query selects."""
        with self._selection(filter, trials, archived) as (selection, conditions):
            return selection.connection.scalar(select(func.count()).select_from(RUNS).where(*conditions)) or 0

    def unmatched(self, filter: str) -> list[str]:
        """Tell what a query asks for that no run has: why it finds nothing. Raises: InputError."""
        with self._selection() as (selection, _):
            return selection.unmatched(filter)

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
    ) -> records.RecordTable:
        """Groups of the runs that a query selects, a row each: `grouped("params.recipe.size", "task = 'mrpc'")`.

        Scores of different measurements or tasks are never taken together: where runs have several, `metric` and `task`
        become fields of `by`. Aggregates of the score take completed runs alone, without sweeps whose trials are
        selected as well; `notes` tell how many are left out. A run with several tags is in the group of each.

        Args:
            by: fields whose values make a group, as one text with commas or several.
            aggregates: of `AGGREGATES`, of the score or a field: `max(seconds)`, `mean(best(metrics.loss))`. When empty
                count, n, mean, sd, min and max of the score; with a pivot the mean.
            pivot: field each of whose values becomes a column, such as `seed`.
            sort: a column of the table, `-mean` from the largest down; groups stand in the order of `by` when None.

        Raises: InputError.
        """
        from orchestrator.registry.run_grouping import group_runs

        with self._selection(filter, trials, archived) as (selection, conditions):
            return group_runs(selection, conditions, by, aggregates, pivot, sort)

    @contextmanager
    def _selection(
        self, filter: str = "", trials: bool = True, archived: bool = True
    ) -> Iterator[tuple[Selection, list[Test]]]:
        """Conditions for the runs that a query selects, in a connection."""
        with self._database.connection(writing=False) as connection:
            selection = Selection(connection, self._state())
            yield selection, selection.conditions(filter, trials=trials, archived=archived)

    def _state(self) -> ColumnElement[RunState]:
        """State of a run as it reads now: one that is silent for long reads as LOST."""
        return records.state_as_read(self._database.lost_after_s)

    def run(self, wanted: str, *, or_task: bool = False) -> records.RunRecord:
        """Run or trial by its whole id, its exact name (the newest), or the beginning of its id, four characters of it.

        Raises: NotFoundError with the run, or the task (`or_task`), that was nearly meant; SeveralRunsError for the
            beginning of several ids, and for a name that another run's id begins with.
        """
        with self._database.connection(writing=False) as connection:
            if (run := records.find_run(connection, wanted, self._state())) is not None:
                return run
            from orchestrator.registry.registered_models import named_version

            is_model = "@" in wanted and connection.execute(named_version(wanted)).first() is not None
            newest = select(RUNS.c.name).where(RUNS.c.parent_id.is_(None)).order_by(RUNS.c.created_at.desc())
            names = dict.fromkeys(connection.scalars(newest.limit(1000)))
            no_run = records.no_run(connection, wanted, self._state())
        for removed in (one for one in self.trash.called(wanted) if one.claimed_at is None):
            back = f"orchestrator runs restore {removed.run_id}"
            raise NotFoundError(f"Run {removed.run_id} ({removed.name}) is in the trash; to bring it back: {back}")
        if is_model:
            raise NotFoundError(f"{wanted} is a model: `orchestrator models show {wanted}`")
        close = nearest(wanted, [*names, *(self.ranked_tasks() if or_task else ())], 1) if wanted else []
        raise NotFoundError(f"{no_run}{f'; did you mean {close[0]}?' if close else '.'}")

    def num_called(self, run: records.RunRecord) -> int:
        """Number of the runs that are called as a run is, or of a trial of the trials."""
        is_alike = RUNS.c.parent_id.is_(None) if run.parent_id is None else RUNS.c.parent_id.is_not(None)
        so_called = select(func.count()).select_from(RUNS).where(RUNS.c.name == run.name, is_alike)
        return int(self._database.scalar(so_called))

    def run_records(self, run_ids: Collection[str]) -> list[records.RunRecord]:
        """Records of the runs with these ids, the newest first; without those that are not there."""
        are_asked = RUNS.c.id.in_(select_items(run_ids))
        return self._database.read(records.load_runs, self._state(), are_asked)

    def newest_completed(self, fingerprints: Collection[str]) -> records.RunRecord | None:
        """Newest completed run of a spec, by the fingerprints that it may have."""
        is_done = RUNS.c.fingerprint.in_(fingerprints), RUNS.c.state == RunState.COMPLETED, RUNS.c.parent_id.is_(None)
        return next(iter(self._database.read(records.load_runs, self._state(), *is_done, limit=1)), None)

    def stages(self, run_id: str) -> list[records.RunRecord]:
        """Stages of a pipeline that have begun, or were done before, the newest first; none of any other run."""
        of_pipeline = select(STAGES.c.run_id).where(STAGES.c.pipeline == run_id)
        are_stages = RUNS.c.key.in_(of_pipeline), RUNS.c.parent_id.is_(None)
        return self._database.read(records.load_runs, self._state(), *are_stages)

    def named_in_specs(self, fields: Collection[str], *, except_of: Collection[str] = ()) -> dict[str, set[str]]:
        """Values of fields in specs of any run or trial but `except_of`, each with the ids of the runs, or sweeps."""
        return self._database.read(records.load_named, fields, except_of)

    def attempts(self, run_id: str) -> list[records.AttemptRecord]:
        """Attempts of a run, in order."""
        found = select(*records.record_columns(records.AttemptRecord, ATTEMPTS)).where(ATTEMPTS.c.run_id == run_id)
        return [records.AttemptRecord(*row) for row in self._database.rows(found.order_by(ATTEMPTS.c.number))]

    def code_diff(self, run_id: str, attempt: int) -> str | None:
        """Changes of an attempt's code that were in no commit; None where there were none, or too many to keep."""
        diffs = select(CODE_DIFFS.c.diff).join(ATTEMPTS, ATTEMPTS.c.diff_digest == CODE_DIFFS.c.digest)
        diff: str | None = self._database.scalar(diffs.where(ATTEMPTS.c.run_id == run_id, ATTEMPTS.c.number == attempt))
        return diff

    def parameters(self, run_id: str) -> dict[str, Any]:
        """Parameters of a run by dotted path: the values of its spec, or the whole recipe of a trial."""
        return self._database.read(load_parameters, run_id)

    def leaderboard(
        self,
        task: str | None = None,
        *,
        by: Order = "lower",
        limit: int | None = None,
        archived: bool = False,
        across_code: bool = False,
    ) -> records.RecordTable:
        """Groups of runs that differ only in their seed, ranked for each task, score, split and data.

        They are trials of sweeps and probes, students, and evaluations of models. Another recipe, other data, another
        number of threads or other code make another group. The noise of seeds is estimated over all groups of a ranking
        together (`SeedNoise`), so that a group of one seed has an interval, too.

        Columns: `rank` among `num_ranked` groups, none without a score, as `num_scored` have; `may_be_best`, whether
        the best mean is not significantly better (the truly best group is among these with a probability of 95 %);
        `data`, the beginning of their digest; `mean`, `sd`, the 95 % interval of the mean from `low` to `high`,
        `median`, `worst` and `best` over `n` distinct seeds; numbers of runs that `completed`, `failed`, were `pruned`,
        `collapsed` to the baseline, gave `nan` for a score, or are `unfinished`; `baseline`, the score of guessing the
        majority; `test`, the score on the test split of the run `test_run`; `recipe`, the values in which the groups of
        a task differ; `notes`, all that the mean does not say; `origin`, the earlier use of the data of the score,
        which flatters it (`model_origins.Origin`); `run`, the best seed's, and `model`, its registered name or folder.

        Args:
            by: number that ranks: the worse end of the mean's interval (`lower`), which ranks few seeds and noisy ones
                lower; the `mean`; the `median`; or the `best` seed, which is the luckiest of n.
            limit: number of the first places of each ranking that are asked for; None for all.
            archived: whether archived runs and their trials are ranked, too; `num_ranked_archived` counts them.
            across_code: whether runs that differ in the version of the code are one group; `notes` name the versions.
        """
        from orchestrator.registry.leaderboard import rank_groups

        with self._database.connection(writing=False) as connection:
            return rank_groups(connection, task, by, archived=archived, across_code=across_code, limit=limit)

    def seed_noise(self, group: GroupRecord) -> SeedNoise | None:
        """Noise of seeds in the ranking that a group belongs to; None where no group of it has seeds that differ."""
        from orchestrator.registry.leaderboard import load_noise

        return self._database.read(load_noise, group)

    def check_groups(self, *, mend: bool = False) -> list[str]:
        """Keys of the groups whose numbers do not follow from their runs: none, ever. `mend` makes all of them anew."""
        from orchestrator.registry.roll_up import check_roll_up

        with self._database.connection(writing=mend) as connection:
            return check_roll_up(connection, mend=mend)

    def ranked_tasks(self) -> list[str]:
        """Names of the tasks that have groups, of archived runs too, in their order."""
        opened = select(OPEN_RUNS.c.run_id)
        of_open = or_(RUNS.c.key.in_(opened), RUNS.c.parent_id.in_(opened))
        tasks = union(select(RANKED_GROUPS.c.task), select(RUNS.c.task).where(records.is_ranked(), of_open))
        return sorted(task for (task,) in self._database.rows(tasks))

    def num_ranked_archived(self, task: str | None = None) -> int:
        """Number of the runs that the leaderboard leaves out since they, or their sweeps, are archived."""
        of_task = [] if task is None else [RUNS.c.task == task]
        are_left_out = records.is_ranked(), records.is_flagged("archived"), *of_task
        return int(self._database.scalar(select(func.count()).select_from(RUNS).where(*are_left_out)))

    def groups_of(self, run_ids: Collection[str], *, archived: bool = True) -> list[GroupRecord]:
        """Groups of some runs, each with all of its runs, or without archived ones."""
        from orchestrator.registry.group_records import load_groups

        keys = select(RUNS.c.group_key).where(RUNS.c.id.in_(select_items(run_ids)), records.is_ranked())
        return self._database.read(load_groups, RUNS.c.group_key.in_(keys.correlate(None)), archived=archived)

    def test_refusals(self, run_ids: Collection[str]) -> dict[str, str]:
        """Reason for each of these runs and trials whose score on the test split is refused, by its id.

        A score on data that a model, or one that it was made of, was trained or chosen on flatters it.
        """
        from orchestrator.registry.model_origins import load_test_refusals

        return self._database.read(load_test_refusals, run_ids)

    def earlier_use(self, model: str, data: Mapping[str, str], split: Split) -> str | None:
        """Sentence on the use that a model, or one that it was made of, made of data; None where none is known.

        `model` is a folder, or another name as specs have it; `data` are digests as `SweepTrials.set_data` takes.
        """
        from orchestrator.registry.model_origins import sentence_on_use

        return self._database.read(sentence_on_use, model, data, split)

    def group(self, name: str) -> GroupRecord:
        """Group whose digest begins with `name` (four characters), or the part of its group that a run or trial is.

        A group that a digest names has its archived runs only where it has no others, as the leaderboard.

        Raises: NotFoundError; InputError for a run without a score that ranks, or with several groups.
        """
        from orchestrator.registry.group_records import find_group

        return self._database.read(find_group, name, self._state())

    def compare(self, *names: str) -> list[Comparison]:
        """Compare groups, runs or trials, each two of them, over their seeds and over kept predictions.

        p-values are corrected for the number of comparisons by Holm's method. `Comparison.words` is the answer.

        Raises: as `group`; InputError for less than two, or where they were not scored alike on the same data.
        """
        from orchestrator.registry.group_comparison import compare_groups

        return compare_groups(names, [self.group(name) for name in names])

    def open(self) -> None:
        """Connect, and create or check the tables, now rather than on first use: for who wants to know at once."""
        self._database.open()

    def upgrade(self, backups: Path | None = None, *, with_backup: bool = True) -> str:
        """Bring the tables to the newest revision and return it; of several processes one does the work.

        A SQLite file is copied beside itself before, a server's tables by `pg_dump` into `backups`.
        """
        from orchestrator.registry.backups import back_up_before_migration  # what it needs is long in loading

        back_up = partial(back_up_before_migration, self._database.url, folder=backups) if with_backup else None
        return self._database.upgrade(back_up)

    def refuse_missing(self) -> None:
        """Raise a RegistryError where there is no registry yet, which otherwise reads as an empty one."""
        self._database.refuse_missing()

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

    def __exit__(self, *error: object) -> None:
        self.close()
