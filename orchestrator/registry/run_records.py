"""Records of runs: runs by what a person calls them, and any row as its frozen record."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, case, func, literal, or_, select

from orchestrator.errors import NotFoundError, SeveralRunsError
from orchestrator.registry.dialects import StateText, select_items, select_runs, utc_now
from orchestrator.registry.parameters import decode_parameter
from orchestrator.registry.records import RunRecord
from orchestrator.registry.tables import NAMES, PARAMETERS, RUNS, of_whole_run
from orchestrator.run_states import RunState

R = TypeVar("R")
MAX_CANDIDATES = 5
"""Number of runs or models that a message lists where the one asked for is not there."""
MIN_ID_DIGITS = 4
"""Fewest characters that stand for the id that they begin."""


def state_as_read(lost_after_s: float) -> ColumnElement[RunState]:
    """State of a run as SQL: the stored one; of a silent running one LOST, as `orchestrator.run_states` says."""
    last_sign = func.coalesce(RUNS.c.heartbeat_at, RUNS.c.started_at, RUNS.c.created_at)
    is_silent = and_(RUNS.c.state == RunState.RUNNING, last_sign < utc_now(lost_after_s))
    return case((is_silent, literal(RunState.LOST, StateText)), else_=RUNS.c.state)


def find_run(connection: Connection, wanted: str, state: ColumnElement[RunState]) -> RunRecord:
    """Run or trial that a text means, as `Registry.run` finds it. Raises: NotFoundError, SeveralRunsError."""
    for whole in load_runs(connection, state, RUNS.c.id == wanted.lower(), limit=1):
        return whole
    named = newest_called(connection, wanted, state) if wanted else None
    begun = []
    if len(wanted) >= MIN_ID_DIGITS:
        begins = wanted.lower()
        is_near = RUNS.c.id.between(begins, begins + "z" * MIN_ID_DIGITS)  # which an index answers
        is_begun = and_(is_near, RUNS.c.id.startswith(begins, autoescape=True))
        begun = load_runs(connection, state, is_begun, limit=MAX_CANDIDATES + 1)
    others = [run for run in begun if named is None or run.id != named[0].id]
    if named is not None and not others:
        return named[0]
    if named is None and len(begun) == 1:
        return begun[0]
    if others:
        what = (
            "begins the ids of several runs" if named is None else f"is the name of run {named[0].id} and begins an id"
        )
        raise SeveralRunsError(f"{wanted!r} {what}; give a whole id: {_listed(others)}.")
    recent = load_runs(connection, state, RUNS.c.parent_id.is_(None), limit=MAX_CANDIDATES)
    known = f"the latest are: {_listed(recent)}" if recent else "the registry has no run yet"
    short = f" ({MIN_ID_DIGITS} characters are needed)" if wanted and len(wanted) < MIN_ID_DIGITS else ""
    raise NotFoundError(f"No run's id begins with {wanted!r}{short}; {known}.")


def newest_called(connection: Connection, name: str, state: ColumnElement[RunState]) -> tuple[RunRecord, int] | None:
    """Find the newest run of a name, else the newest trial, and how many are called so; None where nothing is."""
    for condition in (RUNS.c.parent_id.is_(None), RUNS.c.parent_id.is_not(None)):
        so_called = and_(RUNS.c.name == name, condition)
        for newest in load_runs(connection, state, so_called, limit=1):
            return newest, connection.scalar(select(func.count()).select_from(RUNS).where(so_called)) or 1
    return None


def load_runs(
    connection: Connection, state: ColumnElement[RunState], *conditions: ColumnElement[bool], limit: int | None = None
) -> list[RunRecord]:
    """Load the runs for which all conditions are true, the newest first."""
    read = {"state": state, "experiment": of_whole_run("name"), "fingerprint": of_whole_run("fingerprint")}
    statement: Select[Any] = select(*record_columns(RunRecord, RUNS, read)).where(*conditions)
    rows = connection.execute(statement.order_by(RUNS.c.created_at.desc(), RUNS.c.id.desc()).limit(limit))
    return [RunRecord(*row) for row in rows]


def load_kept_trials(connection: Connection, sweep_ids: Collection[str]) -> dict[str, str]:
    """Id of the trial whose model each of these sweeps kept, by the sweep's id; runs without one are left out."""
    if not sweep_ids:
        return {}
    sweep, trial = RUNS.alias(), RUNS.alias()
    is_kept = (trial.c.parent_id == sweep.c.key) & (trial.c.model_folder == sweep.c.model_folder)
    kept = (
        select(sweep.c.id, trial.c.id).join(trial, is_kept).where(sweep.c.id.in_(select_items(connection, sweep_ids)))
    )
    return {row[0]: row[1] for row in connection.execute(kept.order_by(trial.c.id))}


def load_named(connection: Connection, fields: Collection[str], except_of: Collection[str]) -> dict[str, set[str]]:
    """Load the values of fields, wherever they stand in a spec, of any run but some; each with the ids of its runs."""
    ends = (NAMES.c.text.endswith(f".{field}", autoescape=True) for field in sorted(fields))
    paths = select(NAMES.c.key).where(or_(NAMES.c.text.in_(fields), *ends))
    whole = func.coalesce(RUNS.c.parent_id, RUNS.c.key)
    rows = select(whole, PARAMETERS.c.kind, PARAMETERS.c.text).join(RUNS, RUNS.c.key == PARAMETERS.c.run_id)
    is_other = PARAMETERS.c.run_id.not_in(select_runs(connection, except_of))
    named: dict[str, set[str]] = defaultdict(set)
    for run_id, *stored in connection.execute(
        rows.where(PARAMETERS.c.path.in_(paths), is_other, PARAMETERS.c.kind != "null").distinct()
    ):
        value = decode_parameter(*stored)
        for each in value if isinstance(value, list) else [value]:
            named[str(each)].add(run_id)
    return named


def load_records(connection: Connection, statement: Select[Any], kind: type[R]) -> list[R]:
    """Run a statement that selects whole rows, and return each as its record."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return [kind(*(getattr(row, name) for name in names)) for row in connection.execute(statement)]


def record_columns(kind: type[Any], table: Table, read: Mapping[str, Any] | None = None) -> list[Any]:
    """Columns in the order of a record's fields, `read` before the table's: in half the time of whole rows."""
    columns = {**table.c, **(read or {})}
    return [columns[field.name] for field in fields(kind)]


def metric_name(series: str) -> str:
    """Name of a measurement in queries and columns; the validation split is left out of it."""
    return series.removeprefix("validation.")


def _listed(runs: Sequence[RunRecord]) -> str:
    shown = [f"{run.id} ({run.name[:40]!r})" for run in runs[:MAX_CANDIDATES]]
    return ", ".join(shown) + (", …" if len(runs) > MAX_CANDIDATES else "")
