"""Trials of a sweep: runs with a parent, known by (sweep, key), each with its whole recipe as parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

from sqlalchemy import Connection, Integer, Text, bindparam, case, delete, or_, select, update

from orchestrator.base.errors import NotFoundError
from orchestrator.base.results import MetricEvent, TrialChange, TrialEvents, TrialResult, TrialStart
from orchestrator.base.run_states import RunState
from orchestrator.registry.connections import Prepared, WriteTransaction
from orchestrator.registry.database import RegistryPart
from orchestrator.registry.dialects import FreeText, change_row, select_list, upsert, utc_now
from orchestrator.registry.fields import list_trials
from orchestrator.registry.parameters import (
    DATA,
    RECIPE,
    TAKEN_DIGEST,
    TASK,
    group_digest,
    load_parameters,
    read_parameters,
    run_group_digest,
    told_task_fields,
    trial_id,
    write_parameters,
)
from orchestrator.registry.records import RecordTable, load_kept_trials, state_as_read
from orchestrator.registry.run_results import open_statement, write_metrics
from orchestrator.registry.tables import ALL_RUNS, RUNS

_SHARED = ("task", "metric", "host", "code_version")
"""Columns that a trial has from its sweep."""
_ROW = ("id", "parent_id", "trial_key", "number", "kind", "name", "seed", "group_key", "spec", "state", *_SHARED)
_END = ("state", "error", "seconds", "model_folder", "predictions_path", "host")


class SweepTrials(RegistryPart):
    """`registry.trials`: writes and reads the trials of sweeps. Natural key: (sweep, key)."""

    def record(self, sweep_id: str, changes: Sequence[TrialChange]) -> list[str]:
        """Record what became of trials, all in one transaction, and return the trial's id for each change.

        A trial that completed or was pruned does not run again. One that ended keeps its end, unless it now turns out
        to have completed; one that failed or was stopped may turn out to have been pruned, too. Raises: NotFoundError.
        """
        with self._database.transaction() as transaction:
            _TrialWriter(transaction, sweep_id).write(changes)
        return [trial_id(sweep_id, change.key) for change in changes]

    def states(self, sweep_id: str) -> dict[str, RunState]:
        """State of each trial of a sweep by its key, as it was recorded."""
        return dict(self._database.rows(select(RUNS.c.trial_key, RUNS.c.state).where(RUNS.c.parent_id == sweep_id)))

    def kept(self, sweep_id: str) -> str | None:
        """Id of the trial whose model a sweep kept; None of one that kept none, and of another run."""
        return self._database.read(load_kept_trials, [sweep_id]).get(sweep_id)

    def drop(self, sweep_id: str) -> None:
        """Delete the trials of a sweep with all that is recorded of them: what they have read is no longer there."""
        with self._database.connection(writing=True) as connection:
            _open_run(connection, sweep_id)
            connection.execute(delete(ALL_RUNS).where(ALL_RUNS.c.parent_id == sweep_id))

    def set_data(self, sweep_id: str, digests: Mapping[str, str]) -> None:
        """Set which data the trials of a sweep, or a run itself, learn from and are scored on: digests by name.

        A split's name stands for the examples that are used; `train_file` for its file and `train_whole` for all of its
        examples without a limit, which make no groups. They become parameters, such as `data.train_digest`, also of
        trials that are recorded from then on.
        """
        data = {f"{DATA}{name}{TAKEN_DIGEST}": value for name, value in digests.items()}
        with self._database.connection(writing=True) as connection:
            _open_run(connection, sweep_id)
            key, kind = connection.execute(select(ALL_RUNS.c.key, ALL_RUNS.c.kind).filter_by(id=sweep_id)).one()
            write_parameters(WriteTransaction.within(connection), {key: data})
            group = run_group_digest(kind, load_parameters(connection, sweep_id))
            change_row(connection, ALL_RUNS, {"group_key": group}, id=sweep_id)

    def set_metric(self, sweep_id: str, task: str, metric: str) -> None:
        """Set the task of a sweep and of its trials, and the score that ranks them."""
        with self._database.connection(writing=True) as connection:
            _open_run(connection, sweep_id)
            theirs = or_(ALL_RUNS.c.id == sweep_id, ALL_RUNS.c.parent_id == sweep_id)
            connection.execute(update(ALL_RUNS).where(theirs).values(task=task, metric=metric))

    def table(self, sweep_id: str) -> RecordTable:
        """Trials of a sweep by number, a record each, with the columns of `Registry.runs`."""
        return self._database.read(list_trials, state_as_read(self._database.lost_after_s), sweep_id)


def _open_run(connection: Connection, run_id: str) -> None:
    from orchestrator.registry.roll_up import open_run  # numpy is of no use to who reads trials

    open_run(connection, run_id)


class _TrialWriter:
    """Writes trials of a sweep in a transaction. Raises: NotFoundError."""

    def __init__(self, transaction: WriteTransaction, sweep_id: str) -> None:
        self._transaction, self._sweep_id = transaction, sweep_id
        self._statements = _statements(transaction.dialect)
        found = transaction.read(self._statements["sweep"], {"row": sweep_id})
        if not found:
            raise NotFoundError(f"No run {sweep_id} in the registry.")
        self._state, self._name, *shared = found[0]
        self._shared = dict(zip(_SHARED, shared, strict=True))

    @cached_property
    def _parameters(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Parameters of the sweep: its recipe, its task, and what else its trials share; read for new trials alone."""
        parameters = read_parameters(self._transaction, self._sweep_id)
        recipe, task, shared = (
            {path: value for path, value in parameters.items() if path.startswith(beginning)}
            for beginning in (RECIPE, TASK, (DATA, "threads_per_trial"))
        )
        return recipe, task, shared | told_task_fields(task)

    def write(self, changes: Sequence[TrialChange]) -> None:
        """Write what became of trials, in the order in which it did; other writers of these trials wait."""
        transaction, statements = self._transaction, self._statements
        if RunState(self._state).is_final:
            transaction.run(open_statement(transaction.dialect), {"run_id": self._sweep_id})
        ids = {self._id(change) for change in changes if not isinstance(change, TrialEvents)}
        found = transaction.read(statements["states"], {"ids": list(ids)}) if ids else ()
        states, recipes, measured, scores = {row: RunState(state) for row, state in found}, {}, [], []
        for change in changes:
            row = self._id(change)
            if isinstance(change, TrialEvents):
                measured.append((row, change.events))
                continue
            if row not in states:
                recipe = self._recipe_of(change)
                ((key, state),) = transaction.read(statements["insert"], self._row(change, recipe))
                states[row], recipes[key] = RunState(state), recipe
                if isinstance(change, TrialStart) and states[row] is RunState.RUNNING:  # from its first moment
                    continue
            new = RunState.RUNNING if isinstance(change, TrialStart) else change.state
            counts = states[row].may_become(new)
            states[row] = new if counts else states[row]
            if isinstance(change, TrialResult):
                if counts:
                    transaction.run(statements["end"], self._end_values(change))
                    scores.append((row, [MetricEvent(change.best_step, "validation", change.metrics)]))
                # Where the model of a completed trial is kept is known only when the sweep ends.
                elif change.model is not None and states[row] is RunState.COMPLETED:
                    transaction.run(statements["folder"], {"row": row, "folder": change.model.folder})
            elif counts:
                transaction.run(statements["start"], {"row": row, "code": self._shared["code_version"]})
        write_parameters(transaction, recipes)
        write_metrics(transaction, measured, final=False)
        write_metrics(transaction, scores, final=True)

    def _id(self, change: TrialChange) -> str:
        return trial_id(self._sweep_id, change.key)

    def _recipe_of(self, trial: TrialStart | TrialResult) -> dict[str, Any]:
        """Parameters of a trial: the sweep's recipe, with the trial's own values and seed in their places.

        The data, the task's fields and the number of threads are the sweep's; they change scores too, so that they are
        part of the group.
        """
        own = {path if "." in path else f"{RECIPE}{path}": value for path, value in trial.parameters.items()}
        recipe, _, shared = self._parameters
        return recipe | own | {f"{RECIPE}seed": trial.seed} | shared

    def _row(self, trial: TrialStart | TrialResult, recipe: dict[str, Any]) -> dict[str, Any]:
        place = {"id": self._id(trial), "parent_id": self._sweep_id, "trial_key": trial.key, "number": trial.number}
        own = {"kind": "trial", "name": f"{self._name} #{trial.number}", "seed": trial.seed}
        own |= {"group_key": group_digest(recipe | self._parameters[1]), "spec": dict(trial.parameters)}
        begins = isinstance(trial, TrialStart)
        state = {"state": RunState.RUNNING if begins else RunState.PENDING, "begins": int(begins)}
        return {**place, **own, **self._shared, **state}

    def _end_values(self, result: TrialResult) -> dict[str, Any]:
        place = {"row": self._id(result), "host": result.host or self._shared["host"]}
        files = {"model_folder": result.model and result.model.folder, "predictions_path": result.predictions_path}
        return {**place, **files, "state": result.state, "error": result.error, "seconds": result.seconds}


@lru_cache
def _statements(dialect: str) -> dict[str, Prepared]:
    """Statements about one run, the sweep or a trial, by what they do."""
    is_row = ALL_RUNS.c.id == bindparam("row", type_=Text)
    sweep = select(*(ALL_RUNS.c[name] for name in ("state", "name", *_SHARED))).where(is_row)
    asked = select(ALL_RUNS.c.id, ALL_RUNS.c.state).where(ALL_RUNS.c.id.in_(select_list("ids")))
    states = asked.order_by(ALL_RUNS.c.id).with_for_update(key_share=True)
    # Another process may have inserted it just now: then its state is read.
    begins = bindparam("begins", type_=Integer)
    begun_at = case((begins == 1, utc_now()))
    insert = upsert(dialect, ALL_RUNS, ("id",), ("id",))
    insert = insert.values(attempt=begins, started_at=begun_at, heartbeat_at=begun_at)
    # A trial that had ended is timed anew; one at work only says so again.
    started_at = case((ALL_RUNS.c.state == RunState.RUNNING, ALL_RUNS.c.started_at), else_=utc_now())
    begun = {"state": RunState.RUNNING, "attempt": 1, "started_at": started_at, "heartbeat_at": utc_now()}
    begun |= dict.fromkeys(("error", "seconds", "finished_at")) | {"code_version": bindparam("code", type_=Text)}
    ended = {name: bindparam(name, type_=ALL_RUNS.c[name].type) for name in _END} | {"finished_at": utc_now()}
    change = update(ALL_RUNS).where(is_row)
    folder = change.values(model_folder=bindparam("folder", type_=FreeText))
    return {
        "sweep": Prepared(sweep, dialect, ["row"]),
        "states": Prepared(states, dialect, ["ids"]),
        "insert": Prepared(insert.returning(ALL_RUNS.c.key, ALL_RUNS.c.state), dialect, (*_ROW, "begins")),
        "start": Prepared(change.values(begun), dialect, ["row", "code"]),
        "end": Prepared(change.values(ended), dialect, ["row", *_END]),
        "folder": Prepared(folder, dialect, ["row", "folder"]),
    }
