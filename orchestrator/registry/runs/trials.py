"""Trials of a sweep: runs with a parent, known by (sweep, key), each with its whole recipe as parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import delete, or_, select, update
from sqlalchemy.orm import Session

from orchestrator.registry.database import Database
from orchestrator.registry.parameter_values import TAKEN_DIGEST, run_group_digest
from orchestrator.registry.queries.run_listing import list_trials
from orchestrator.registry.record_table import RecordTable
from orchestrator.registry.run_records import state_as_read
from orchestrator.registry.runs.run_parameters import read_parameters, write_parameters
from orchestrator.registry.runs.trial_statements import group_statement
from orchestrator.registry.runs.trial_writing import DATA, TrialWriter, read_run
from orchestrator.registry.tables import RunRow, StoredRun
from orchestrator.registry.trial_rows import load_kept_trials, trial_id
from orchestrator.results import TrialChange
from orchestrator.run_states import RunState

if TYPE_CHECKING:
    import pandas

_CHANGES_PER_STATEMENT = 500
"""Changes of trials that are written at once: a statement has no room for the ids of any number."""


class SweepTrials:
    """`registry.trials`: writes and reads the trials of sweeps. Natural key: (sweep, key).

    Args:
        lost_after_s: as `Registry` takes it.
    """

    def __init__(self, database: Database, lost_after_s: float) -> None:
        self._database = database
        self._lost_after_s = lost_after_s

    def record(self, sweep_id: str, changes: Sequence[TrialChange]) -> list[str]:
        """Record what became of trials, all in one transaction, and return the trial's id for each change.

        A trial that completed or was pruned does not run again. One that ended keeps its end, unless it now turns out
        to have completed; one that failed or was stopped may turn out to have been pruned, too.

        Raises: NotFoundError where there is no such sweep.
        """
        with self._database.transaction() as transaction:
            writer = TrialWriter(transaction, sweep_id)
            for begin in range(0, len(changes), _CHANGES_PER_STATEMENT):
                writer.write(changes[begin : begin + _CHANGES_PER_STATEMENT])
        return [trial_id(sweep_id, change.key) for change in changes]

    def states(self, sweep_id: str) -> dict[str, RunState]:
        """State of each trial of a sweep by its key, as it was recorded."""
        with self._database.session(writing=False) as session:
            rows = session.execute(select(RunRow.trial_key, RunRow.state).where(RunRow.parent_id == sweep_id))
            return {str(key): state for key, state in rows}

    def kept(self, sweep_id: str) -> str | None:
        """Id of the trial whose model a sweep kept; None of one that kept none, and of another run."""
        with self._database.session(writing=False) as session:
            return load_kept_trials(session, [sweep_id]).get(sweep_id)

    def drop(self, sweep_id: str) -> None:
        """Delete the trials of a sweep with all that is recorded of them: what they have read is no longer there."""
        with self._database.session(writing=True) as session:
            _open_run(session, sweep_id)
            session.execute(delete(StoredRun).where(StoredRun.parent_id == sweep_id))

    def set_data(self, sweep_id: str, digests: Mapping[str, str]) -> None:
        """Set which data the trials of a sweep, or a run itself, learn from and are scored on: digests by name.

        A split's name stands for the examples that are used; `train_file` for its file and `train_whole` for all of its
        examples without a limit, which make no groups. Trials that are recorded from then on have these as parameters,
        as the sweep does: `data.train_digest`. Trials with different examples are no group, whatever the paths in the
        spec say.
        """
        data = {f"{DATA}{name}{TAKEN_DIGEST}": value for name, value in digests.items()}
        with self._database.session(writing=True) as session:
            _open_run(session, sweep_id)
        with self._database.transaction() as transaction:
            run = read_run(transaction, sweep_id)
            parameters = read_parameters(transaction, run.key) | data
            write_parameters(transaction, {run.key: parameters})
            group = {"row": sweep_id, "group": run_group_digest(run.kind, parameters)}
            transaction.run(group_statement(transaction.dialect), group)

    def set_metric(self, sweep_id: str, task: str, metric: str) -> None:
        """Set the task of a sweep and of its trials, and the score that ranks them."""
        with self._database.session(writing=True) as session:
            _open_run(session, sweep_id)
            session.execute(
                update(StoredRun)
                .where(or_(StoredRun.id == sweep_id, StoredRun.parent_id == sweep_id))
                .values(task=task, metric=metric)
                .execution_options(synchronize_session=False)
            )

    def table(self, sweep_id: str) -> RecordTable:
        """Trials of a sweep by number, a record each, with the columns of `Registry.runs`."""
        with self._database.session(writing=False) as session:
            return list_trials(session, state_as_read(self._lost_after_s), sweep_id)

    def frame(self, sweep_id: str) -> pandas.DataFrame:
        """`table` as a DataFrame."""
        return self.table(sweep_id).frame()


def _open_run(session: Session, run_id: str) -> None:
    from orchestrator.registry.groups.roll_up import open_run  # numpy is of no use to who reads trials

    open_run(session, run_id)
