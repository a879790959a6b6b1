"""Trials of a sweep: runs with a parent, known by (sweep, key), each with its whole recipe as parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Text,
    and_,
    bindparam,
    case,
    delete,
    literal_column,
    null,
    or_,
    select,
    update,
)

from orchestrator.errors import NotFoundError
from orchestrator.registry.column_types import FreeText, utc_now
from orchestrator.registry.database import Database
from orchestrator.registry.dialects import select_list, upsert
from orchestrator.registry.parameters import (
    TAKEN_DIGEST,
    group_digest,
    read_parameters,
    run_group_digest,
    told_task_fields,
    trial_id,
    write_parameters,
)
from orchestrator.registry.records import RecordTable
from orchestrator.registry.run_metrics import metric_curves, open_statement, write_metrics
from orchestrator.registry.run_records import load_kept_trials, state_as_read
from orchestrator.registry.selection import list_trials
from orchestrator.registry.tables import ALL_RUNS, RUNS
from orchestrator.registry.write_transactions import Prepared, WriteTransaction
from orchestrator.results import MetricEvent, TrialChange, TrialEvents, TrialResult, TrialStart
from orchestrator.run_states import RunState

_CHANGES_PER_STATEMENT = 500
"""Changes of trials that are written at once: a statement has no room for the ids of any number."""


_DATA = "data."
"""Beginning of the parameters that say which data a sweep's trials learn from and are scored on."""
_RECIPE = "recipe."
_THREADS = "threads_per_trial"
_TASK = "task."


_STARTED = {"state": RunState.RUNNING, "attempt": 1}
_NEVER_STARTED = {"attempt": 0}
"""Values of the row of a trial that begins, and of one that was not recorded before its end."""
_ROW_COLUMNS = (
    "id",
    "parent_id",
    "trial_key",
    "number",
    "kind",
    "name",
    "task",
    "metric",
    "seed",
    "group_key",
    "spec",
    "host",
    "code_version",
)
_END_COLUMNS = ("state", "error", "seconds", "model_folder", "predictions_path", "host")


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
            writer = _TrialWriter(transaction, sweep_id)
            for begin in range(0, len(changes), _CHANGES_PER_STATEMENT):
                writer.write(changes[begin : begin + _CHANGES_PER_STATEMENT])
        return [trial_id(sweep_id, change.key) for change in changes]

    def states(self, sweep_id: str) -> dict[str, RunState]:
        """State of each trial of a sweep by its key, as it was recorded."""
        with self._database.connection(writing=False) as connection:
            rows = connection.execute(select(RUNS.c.trial_key, RUNS.c.state).where(RUNS.c.parent_id == sweep_id))
            return {str(key): state for key, state in rows}

    def kept(self, sweep_id: str) -> str | None:
        """Id of the trial whose model a sweep kept; None of one that kept none, and of another run."""
        with self._database.connection(writing=False) as connection:
            return load_kept_trials(connection, [sweep_id]).get(sweep_id)

    def drop(self, sweep_id: str) -> None:
        """Delete the trials of a sweep with all that is recorded of them: what they have read is no longer there."""
        with self._database.connection(writing=True) as connection:
            _open_run(connection, sweep_id)
            connection.execute(delete(ALL_RUNS).where(ALL_RUNS.c.parent_id == sweep_id))

    def set_data(self, sweep_id: str, digests: Mapping[str, str]) -> None:
        """Set which data the trials of a sweep, or a run itself, learn from and are scored on: digests by name.

        A split's name stands for the examples that are used; `train_file` for its file and `train_whole` for all of its
        examples without a limit, which make no groups. Trials that are recorded from then on have these as parameters,
        as the sweep does: `data.train_digest`. Trials with different examples are no group, whatever the paths in the
        spec say.
        """
        data = {f"{_DATA}{name}{TAKEN_DIGEST}": value for name, value in digests.items()}
        with self._database.connection(writing=True) as connection:
            _open_run(connection, sweep_id)
        with self._database.transaction() as transaction:
            run = _read_run(transaction, sweep_id)
            parameters = read_parameters(transaction, run.key) | data
            write_parameters(transaction, {run.key: parameters})
            group = {"row": sweep_id, "group": run_group_digest(run.kind, parameters)}
            transaction.run(_group_statement(transaction.dialect), group)

    def set_metric(self, sweep_id: str, task: str, metric: str) -> None:
        """Set the task of a sweep and of its trials, and the score that ranks them."""
        with self._database.connection(writing=True) as connection:
            _open_run(connection, sweep_id)
            connection.execute(
                update(ALL_RUNS)
                .where(or_(ALL_RUNS.c.id == sweep_id, ALL_RUNS.c.parent_id == sweep_id))
                .values(task=task, metric=metric)
            )

    def table(self, sweep_id: str) -> RecordTable:
        """Trials of a sweep by number, a record each, with the columns of `Registry.runs`."""
        with self._database.connection(writing=False) as connection:
            return list_trials(connection, state_as_read(self._lost_after_s), sweep_id)


def _open_run(connection: Connection, run_id: str) -> None:
    from orchestrator.registry.roll_up import open_run  # numpy is of no use to who reads trials

    open_run(connection, run_id)


def _read_run(transaction: WriteTransaction, run_id: str) -> _RunColumns:
    """Read the columns of a run by which its trials and data are written. Raises: NotFoundError."""
    found = transaction.read(_run_statement(transaction.dialect), {"row": run_id})
    if not found:
        raise NotFoundError(f"No run {run_id} in the registry.")
    return _RunColumns(run_id, *found[0])


class _TrialWriter:
    """Writes trials of a sweep in a transaction, with the values that all of them share."""

    def __init__(self, transaction: WriteTransaction, run_id: str) -> None:
        self._transaction = transaction
        self._dialect = transaction.dialect
        self._run = _read_run(transaction, run_id)

    @cached_property
    def _parameters(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Parameters of the sweep: its recipe, its task, and what else its trials share; read for new trials alone."""
        parameters = read_parameters(self._transaction, self._run.key)
        recipe, task, shared = (
            {path: value for path, value in parameters.items() if path.startswith(beginning)}
            for beginning in (_RECIPE, _TASK, (_DATA, _THREADS))
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
        self._run_many(_start_statement, [self._row(start) | _STARTED for start in starts])
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
        self._run_many(_end_statement, [{"row": self._id(end)} | self._end_values(end) for end in begun])
        self._run_many(_insert_statement, [self._row(end) | _NEVER_STARTED | self._end_values(end) for end in unknown])
        kept = [{"row": self._id(each), "folder": each.model.folder} for each in results if each.model is not None]
        self._run_many(_folder_statement, kept)
        new = {row: key for row, (key, _) in self._recorded(recipes).items()}
        write_parameters(self._transaction, {new[row]: recipe for row, recipe in recipes.items()})
        measured = [(self._id(change), change.events) for change in changes if isinstance(change, TrialEvents)]
        self._write_metrics(measured, final=False)
        self._write_metrics([(self._id(result), _result_events(result)) for result in ends], final=True)

    def _recorded(self, ids: Collection[str]) -> dict[str, tuple[int, RunState]]:
        """Key and state of each of these trials that is recorded already."""
        if not ids:
            return {}
        given = {"ids": ids}
        rows = self._transaction.read(_states_statement(self._dialect), given)
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


class _RunColumns(NamedTuple):
    """Columns of a sweep that its trials take over, its key and its kind."""

    id: str
    key: int
    kind: str
    name: str
    task: str | None
    metric: str | None
    host: str | None
    code_version: str | None
    state: str


@lru_cache
def _run_statement(dialect: str) -> Prepared:
    """Read the columns of a sweep that its trials take over."""
    columns = [ALL_RUNS.c[name] for name in _RunColumns._fields[1:]]
    return Prepared(select(*columns).where(ALL_RUNS.c.id == bindparam("row", type_=Text)), dialect, ("row",))


@lru_cache
def _group_statement(dialect: str) -> Prepared:
    """Set the digest of the group that a run is of."""
    statement = update(ALL_RUNS).where(ALL_RUNS.c.id == bindparam("row", type_=Text))
    return Prepared(statement.values(group_key=bindparam("group", type_=Text)), dialect, ("row", "group"))


@lru_cache
def _states_statement(dialect: str) -> Prepared:
    """Read the keys and states of those trials that are recorded."""
    statement = select(ALL_RUNS.c.id, ALL_RUNS.c.key, ALL_RUNS.c.state).where(
        ALL_RUNS.c.id.in_(select_list(dialect, "ids"))
    )
    return Prepared(statement, dialect, ("ids",))


@lru_cache
def _start_statement(dialect: str) -> Prepared:
    """Insert a trial that begins, or let one that is there begin again, if its state allows that."""
    statement = upsert(
        dialect,
        ALL_RUNS,
        ("id",),
        ("state", "error", "heartbeat_at", "finished_at", "code_version"),
        _may_change,
        _time_from_now,
    )
    statement = statement.values(started_at=utc_now(), heartbeat_at=utc_now(), error=None, finished_at=None)
    return Prepared(statement, dialect, (*_ROW_COLUMNS, *_STARTED))


@lru_cache
def _insert_statement(dialect: str) -> Prepared:
    """Insert a trial that was not recorded before its end; a later one of its ends finds it there."""
    changing = (*_END_COLUMNS, "finished_at")
    statement = upsert(dialect, ALL_RUNS, ("id",), changing, _may_change).values(finished_at=utc_now())
    return Prepared(statement, dialect, tuple(dict.fromkeys((*_ROW_COLUMNS, *_NEVER_STARTED, *_END_COLUMNS))))


@lru_cache
def _end_statement(dialect: str) -> Prepared:
    """End a trial that is recorded."""
    state = bindparam("state", type_=Text)
    changed = {name: bindparam(name, type_=ALL_RUNS.c[name].type) for name in _END_COLUMNS}
    statement = update(ALL_RUNS).where(ALL_RUNS.c.id == bindparam("row", type_=Text), _reachable(state))
    return Prepared(statement.values(**changed, finished_at=utc_now()), dialect, ("row", *_END_COLUMNS))


@lru_cache
def _folder_statement(dialect: str) -> Prepared:
    """Set the model folder of a completed trial; where its model is kept is known only when the sweep ends."""
    folder = bindparam("folder", type_=FreeText)
    statement = update(ALL_RUNS).where(
        ALL_RUNS.c.id == bindparam("row", type_=Text),
        ALL_RUNS.c.state == literal_column(f"'{RunState.COMPLETED}'"),
        ALL_RUNS.c.model_folder.is_distinct_from(folder),
    )
    return Prepared(statement.values(model_folder=folder), dialect, ("row", "folder"))


def _time_from_now(new: Any) -> dict[str, Any]:
    """Columns by which a trial that begins again, after its end, is timed anew; one at work only says so again."""
    is_at_work = ALL_RUNS.c.state == _constant(RunState.RUNNING)
    return {"started_at": case((is_at_work, ALL_RUNS.c.started_at), else_=new.started_at), "seconds": null()}


def _may_change(new: Any) -> ColumnElement[bool]:
    """Condition under which the row that is there may come to the state of the new row."""
    return _reachable(new.state)


def _reachable(state: Any) -> ColumnElement[bool]:
    reachable = [each for each in RunState if each.predecessors]
    return or_(
        *(and_(state == _constant(each), ALL_RUNS.c.state.in_(map(_constant, each.predecessors))) for each in reachable)
    )


def _constant(state: RunState) -> ColumnElement[str]:
    """State as a constant of the SQL text: bound parameters would cost time in every trial's statements."""
    return literal_column(f"'{state}'")
