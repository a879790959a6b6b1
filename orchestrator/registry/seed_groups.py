"""Methods of `Registry` about groups of runs that differ only in their seed: leaderboard, lookup, comparison."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, func, or_, select, union

from orchestrator.registry.database import Database
from orchestrator.registry.dialects import select_items
from orchestrator.registry.records import RecordTable, is_flagged, is_ranked, state_as_read
from orchestrator.registry.tables import OPEN_RUNS, RANKED_GROUPS, RUNS
from orchestrator.run_states import RunState

if TYPE_CHECKING:
    from orchestrator.registry.group_comparison import Comparison
    from orchestrator.registry.group_records import GroupRecord
    from orchestrator.registry.leaderboard import Order
    from orchestrator.results import Split
    from orchestrator.significance.ranking import SeedNoise


class SeedGroups:
    """Groups of runs that differ only in their seed: the part of `Registry` that ranks and compares them.

    What its methods need is loaded by them: statistics and numpy are of no use to other readings.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def _state(self) -> ColumnElement[RunState]:
        """State of a run as it reads now: one that is silent for long reads as LOST."""
        return state_as_read(self._database.lost_after_s)

    def leaderboard(
        self,
        task: str | None = None,
        *,
        by: Order = "lower",
        limit: int | None = None,
        archived: bool = False,
        across_code: bool = False,
    ) -> RecordTable:
        """Groups of runs that differ only in their seed, ranked for each task, score, split and data.

        They are trials of sweeps and probes, students, and evaluations of models. Another recipe, other data, another
        number of threads or other code make another group. A score that falls as models get better, as a loss, is
        ranked that way. The noise of seeds is estimated over all groups of a ranking together (`SeedNoise`), so that a
        group of one seed has an interval, too; where no group has seeds that differ, there is none.

        Columns: `rank` among `num_ranked` groups, none without a score; `may_be_best`, whether the group with the best
        mean is not significantly better (the truly best group is among these with a probability of 95 %); `data`, the
        beginning of their digest; `mean`, `sd`, the 95 % interval of the mean from `low` to `high`, `median`, `worst`
        and `best` over `n` distinct seeds; numbers of runs that `completed`, `failed`, were `pruned`, `collapsed` to
        the baseline, gave `nan` for a score, or are `unfinished`; `baseline`, the score of guessing the majority;
        `test`, the score on the test split of the run `test_run`; `recipe`, the values in which the groups of a task
        differ; `notes`, all that the mean does not say; `origin`, the earlier use of the data of the score, which
        flatters it (`model_origins.Origin`); `run`, the best seed's, and `model`, its registered name or its folder.

        Args:
            by: number that ranks: the worse end of the mean's interval (`lower`), which ranks few seeds and noisy ones
                lower; the `mean`, which finds the best a little more often where groups do not differ in either, and
                much less often where they do; the `median`; or the `best` seed, which is the luckiest of n.
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

        with self._database.connection(writing=False) as connection:
            return load_noise(connection, group)

    def check_groups(self, *, mend: bool = False) -> list[str]:
        """Keys of the groups whose numbers on the leaderboard are not those that follow from their runs: none, ever.

        Args:
            mend: whether all of these numbers are made anew.
        """
        from orchestrator.registry.roll_up import check_roll_up

        with self._database.connection(writing=mend) as connection:
            return check_roll_up(connection, mend=mend)

    def ranked_tasks(self) -> list[str]:
        """Names of the tasks that have groups, of archived runs too, in their order."""
        opened = select(OPEN_RUNS.c.run_id)
        of_open = or_(RUNS.c.key.in_(opened), RUNS.c.parent_id.in_(opened))
        tasks = union(select(RANKED_GROUPS.c.task), select(RUNS.c.task).where(is_ranked(), of_open))
        with self._database.connection(writing=False) as connection:
            return sorted(connection.scalars(tasks))

    def num_ranked_archived(self, task: str | None = None) -> int:
        """Number of the runs that the leaderboard leaves out since they, or their sweeps, are archived."""
        archived = select(func.count()).select_from(RUNS).where(is_ranked(), is_flagged("archived"))
        with self._database.connection(writing=False) as connection:
            return connection.scalar(archived if task is None else archived.where(RUNS.c.task == task)) or 0

    def groups_of(self, run_ids: Collection[str], *, archived: bool = True) -> list[GroupRecord]:
        """Groups of some runs, each with all of its runs, or without archived ones."""
        from orchestrator.registry.group_records import load_groups

        with self._database.connection(writing=False) as connection:
            are_own = RUNS.c.id.in_(select_items(connection, run_ids)), is_ranked()
            keys = connection.scalars(select(RUNS.c.group_key).where(*are_own).distinct()).all()
            return load_groups(connection, RUNS.c.group_key.in_(select_items(connection, keys)), archived=archived)

    def test_refusals(self, run_ids: Collection[str]) -> dict[str, str]:
        """Reason for each of these runs and trials whose score on the test split is refused, by its id.

        A score on data that a model, or one that it was made of, was trained or chosen on, or on some of them, flatters
        it: the leaderboard does not show it.
        """
        from orchestrator.registry.model_origins import load_test_refusals

        with self._database.connection(writing=False) as connection:
            return load_test_refusals(connection, run_ids)

    def earlier_use(self, model: str, data: Mapping[str, str], split: Split) -> str | None:
        """Sentence on the use that a model, or one that it was made of, made of data; None where none is known.

        Args:
            model: its folder, or another name by which a spec calls it.
            data: digests of the split, as `SweepTrials.set_data` takes them.
        """
        from orchestrator.registry.model_origins import sentence_on_use

        with self._database.connection(writing=False) as connection:
            return sentence_on_use(connection, model, data, split)

    def group(self, name: str) -> GroupRecord:
        """Group whose digest begins with `name` (four characters), or the part of its group that a run or trial is.

        Raises: NotFoundError where nothing is called so, or several are; InputError for a run without a score that
            ranks, or with several groups.
        """
        from orchestrator.registry.group_records import find_group

        with self._database.connection(writing=False) as connection:
            return find_group(connection, name, self._state())

    def compare(self, *names: str) -> list[Comparison]:
        """Compare groups, runs or trials, each two of them, over their seeds and over kept predictions.

        p-values are corrected for the number of comparisons by Holm's method. `Comparison.words` is the answer.

        Raises: NotFoundError, InputError, as `group` does; InputError for less than two, or where they were not scored
            on the same data by the same score.
        """
        from orchestrator.registry.group_comparison import compare_groups
        from orchestrator.registry.group_records import find_group

        with self._database.connection(writing=False) as connection:
            groups = [find_group(connection, name, self._state()) for name in names]
        return compare_groups(names, groups)
