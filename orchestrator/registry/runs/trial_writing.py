"""Trials of a sweep, written in one transaction: their rows, recipes, measurements and what became of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Any

from orchestrator.errors import NotFoundError
from orchestrator.registry.engines.dialects import list_value
from orchestrator.registry.engines.write_transactions import Prepared, WriteTransaction
from orchestrator.registry.group_tables import open_statement
from orchestrator.registry.parameter_values import group_digest, told_task_fields
from orchestrator.registry.runs.inheritance import inherit
from orchestrator.registry.runs.run_metrics import metric_curves, write_metrics
from orchestrator.registry.runs.run_parameters import read_parameters, write_parameters
from orchestrator.registry.runs.trial_statements import (
    NEVER_STARTED,
    STARTED,
    RunColumns,
    end_statement,
    folder_statement,
    insert_statement,
    run_statement,
    start_statement,
    states_statement,
)
from orchestrator.registry.trial_rows import trial_id
from orchestrator.results import MetricEvent, TrialChange, TrialEvents, TrialResult, TrialStart
from orchestrator.run_states import RunState

DATA = "data."
"""Beginning of the parameters that say which data a sweep's trials learn from and are scored on."""
_RECIPE = "recipe."
_THREADS = "threads_per_trial"
_TASK = "task."


def read_run(transaction: WriteTransaction, run_id: str) -> RunColumns:
    """Read the columns of a run by which its trials and data are written. Raises: NotFoundError."""
    found = transaction.read(run_statement(transaction.dialect), {"row": run_id})
    if not found:
        raise NotFoundError(f"No run {run_id} in the registry.")
    return RunColumns(run_id, *found[0])


class TrialWriter:
    """Writes trials of a sweep in a transaction, with the values that all of them share."""

    def __init__(self, transaction: WriteTransaction, run_id: str) -> None:
        self._transaction = transaction
        self._dialect = transaction.dialect
        self._run = read_run(transaction, run_id)

    @cached_property
    def _parameters(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Parameters of the sweep: its recipe, its task, and what else its trials share; read for new trials alone."""
        parameters = read_parameters(self._transaction, self._run.key)
        recipe, task, shared = (
            {path: value for path, value in parameters.items() if path.startswith(beginning)}
            for beginning in (_RECIPE, _TASK, (DATA, _THREADS))
        )
        return recipe, task, shared | told_task_fields(task)

    def write(self, changes: Sequence[TrialChange]) -> None:
        """Write what became of trials; the result of each is the last of its changes."""
        if RunState(self._run.state).is_final:
            self._transaction.run(open_statement(self._dialect), {"run_id": self._run.id})
        starts = [change for change in changes if isinstance(change, TrialStart)]
        results = [change for change in changes if isinstance(change, TrialResult)]
        own: list[TrialStart | TrialResult] = [*starts, *results]
        recorded = self._recorded({self._id(change) for change in own})
        states = {row: state for row, (_, state) in recorded.items()}
        recipes = {self._id(change): self._recipe_of(change) for change in own if self._id(change) not in states}
        self._run_many(start_statement, [self._row(start) | STARTED for start in starts])
        for start in starts:
            before = states.get(self._id(start), RunState.PENDING)
            states[self._id(start)] = RunState.RUNNING if before.may_become(RunState.RUNNING) else before
        known, ends = set(states), []
        for each in results:  # one of several results of a trial follows those before it, as in calls of their own
            if states.get(self._id(each), RunState.PENDING).may_become(each.state):
                states[self._id(each)] = each.state
                ends.append(each)
        begun = [end for end in ends if self._id(end) in known]
        unknown = [end for end in ends if self._id(end) not in known]
        self._run_many(end_statement, [{"row": self._id(end)} | self._end_values(end) for end in begun])
        self._run_many(insert_statement, [self._row(end) | NEVER_STARTED | self._end_values(end) for end in unknown])
        kept = [{"row": self._id(each), "folder": each.model.folder} for each in results if each.model is not None]
        self._run_many(folder_statement, kept)
        new = {row: key for row, (key, _) in self._recorded(recipes).items()}
        write_parameters(self._transaction, {new[row]: recipe for row, recipe in recipes.items()})
        inherit(self._transaction, self._run.key, new.values())
        measured = [(self._id(change), change.events) for change in changes if isinstance(change, TrialEvents)]
        self._write_metrics(measured, final=False)
        self._write_metrics([(self._id(result), _result_events(result)) for result in ends], final=True)

    def _recorded(self, ids: Collection[str]) -> dict[str, tuple[int, RunState]]:
        """Key and state of each of these trials that is recorded already."""
        if not ids:
            return {}
        given = {"ids": list_value(self._dialect, ids)}
        rows = self._transaction.read(states_statement(self._dialect), given)
        return {row: (key, RunState(state)) for row, key, state in rows}

    def _run_many(self, statement: Callable[[str], Prepared], rows: Sequence[dict[str, Any]]) -> None:
        if rows:
            prepared = statement(self._dialect)
            self._transaction.run_many(prepared, [prepared.values(row) for row in rows])

    def _write_metrics(self, measured: Sequence[tuple[str, Sequence[MetricEvent]]], *, final: bool) -> None:
        curves = metric_curves(measured)
        if curves:
            write_metrics(self._transaction, curves, final=final)

    def _id(self, change: TrialChange) -> str:
        return trial_id(self._run.id, change.key)

    def _recipe_of(self, trial: TrialStart | TrialResult) -> dict[str, Any]:
        """Parameters of a trial: the sweep's recipe, with the trial's own values and seed in their places.

        The data, the task's fields and the number of threads are the sweep's; they change scores too, so that they are
        part of the group.
        """
        own = {path if "." in path else f"{_RECIPE}{path}": value for path, value in trial.parameters.items()}
        recipe, _, shared = self._parameters
        return recipe | own | {f"{_RECIPE}seed": trial.seed} | shared

    def _row(self, trial: TrialStart | TrialResult) -> dict[str, Any]:
        """Row of a trial."""
        return {
            "id": self._id(trial),
            "parent_id": self._run.id,
            "trial_key": trial.key,
            "number": trial.number,
            "kind": "trial",
            "name": f"{self._run.name} #{trial.number}",
            "task": self._run.task,
            "metric": self._run.metric,
            "seed": trial.seed,
            "group_key": group_digest(self._recipe_of(trial) | self._parameters[1]),
            "spec": dict(trial.parameters),
            "host": self._run.host,
            "code_version": self._run.code_version,
        }

    def _end_values(self, result: TrialResult) -> dict[str, Any]:
        """Values of a trial's row that are known when it has ended; one that does not say its host is its sweep's."""
        return {
            "state": result.state,
            "error": result.error,
            "seconds": result.seconds,
            "model_folder": result.model.folder if result.model else None,
            "predictions_path": result.predictions_path,
            "host": result.host or self._run.host,
        }


def _result_events(result: TrialResult) -> list[MetricEvent]:
    """Scores of a result as the measurements of its best step."""
    return [MetricEvent(result.best_step, "validation", result.metrics)]
