"""Records that the registry returns: frozen, made of plain values, independent of any connection; tables of them; and
how runs are found and loaded as records.

Pandas is imported where a person's own code asks for a DataFrame: importing it takes longer than reading the registry.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import ColumnElement, Connection, Table, and_, case, func, literal, or_, select

from orchestrator.base.errors import InputError, SeveralRunsError
from orchestrator.base.run_states import RunState
from orchestrator.registry.dialects import StateText, json_object, name_of_key, select_items, select_runs, utc_now
from orchestrator.registry.parameters import decode_parameter, ids_of_path
from orchestrator.registry.tables import MARKS, NAMES, PARAMETERS, RUNS, of_whole_run

if TYPE_CHECKING:
    import pandas

Flag = Literal["pinned", "archived"]
MAX_CANDIDATES = 5
"""Number of runs or models that a message lists where the one asked for is not there."""
MIN_ID_DIGITS = 4
"""Fewest characters that stand for the id that they begin."""
RANKED_KINDS = ("distill", "evaluate")
"""Kinds of runs without trials whose own scores are ranked."""
_MOST_ROWS = 2**31 - 1
"""Rows that a page may begin with or have: more than any registry."""


@dataclass(frozen=True)
class RunRecord:
    """A run or a trial. `state` is as read: LOST is a state of running runs."""

    id: str
    name: str
    kind: str
    state: RunState
    experiment: str
    fingerprint: str
    """Digest of the spec."""
    parent_id: str | None
    number: int | None
    """Place of a trial in its sweep."""
    task: str | None
    metric: str | None
    """Score that ranks the runs of the task."""
    seed: int | None
    group_key: str
    """Digest of the parameters without the seed: equal for trials that differ only in their seed."""
    spec: Mapping[str, Any]
    storage_path: str | None
    model_folder: str | None
    predictions_path: str | None
    attempt: int
    """Number of the newest one; 0 before the first."""
    host: str | None
    pid: int | None
    error: str | None
    seconds: float | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    heartbeat_at: datetime | None
    code_version: str | None = None
    """Code of the newest attempt in one word: `0.1.0+g1f2e3d4c5b6a.d0a1b2c3d`; None where it is not known."""

    def folder(self, storage: str) -> str:
        """Folder of the run's files, also one that was moved to this storage; that of a new run where none is known."""
        from orchestrator.storage import join, moved_path  # the storage's libraries are of no use to who reads records

        return moved_path(self.storage_path or join(storage, "runs", self.id), storage)

    def stage_in(self, whole: RunRecord) -> str | None:
        """Name that the run has among the stages of a pipeline's spec; None where it has none."""
        for key, stage in whole.spec.get("stages", {}).items():
            if self.name == (stage.get("name") or f"{whole.name}/{key}"):
                return str(key)
        return None


@dataclass(frozen=True)
class AttemptRecord:
    """One start of a run."""

    run_id: str
    number: int
    state: RunState
    host: str | None
    pid: int | None
    error: str | None
    started_at: datetime
    finished_at: datetime | None
    job_id: str | None = None
    """Id of the job on a cluster that carries it out; None for one that was started by hand."""
    workers: Sequence[Mapping[str, Any]] | None = None
    """Groups of training workers with steps that were kept, in order: `first_step`, the steps that had ended before,
    `hosts`, by rank, and `machine`, that of rank 0, where it is not the driver's."""
    code: Mapping[str, Any] | None = None
    """Code of the driver: the fields of `provenance.capture.SourceCode` but for the changes themselves."""
    diff_digest: str | None = None
    """Digest of the changes that are in no commit, where they are kept: `Registry.code_diff` returns them."""
    command: str | None = None
    """Command line as it was typed, secrets masked, as the `overrides`: its KEY=VALUE words."""
    overrides: Sequence[str] | None = None
    environment: Mapping[str, Any] | None = None
    """Versions and machine of the driver: the fields of `provenance.capture.Machine`."""


@dataclass(frozen=True)
class AttemptCostRecord:
    """Costs of one start of a run, as they were last recorded; of CPUs and GPUs the number held, times the seconds."""

    run_id: str
    number: int
    seconds: float
    cpu_seconds: float
    gpu_seconds: float
    gpu_type: str | None = None


@dataclass(frozen=True)
class CheckpointRecord:
    """A training checkpoint that was complete on the storage when it was recorded."""

    run_id: str
    step: int
    path: str
    digest: str
    num_bytes: int
    recorded_at: datetime


@dataclass(frozen=True)
class ModelRecord:
    """A model folder registered under a name and version."""

    name: str
    version: int
    run_id: str | None
    folder: str
    digest: str
    head: str
    num_parameters: int
    created_at: datetime

    @property
    def label(self) -> str:
        """Name and version as specs and commands have them: `name@version`."""
        return f"{self.name}@{self.version}"


def check_page(limit: int | None, offset: int) -> None:
    """Raise InputError for a number of rows that no page has."""
    for name, number in (("limit", limit), ("offset", offset)):
        if number is not None and not 0 <= number <= _MOST_ROWS:
            raise InputError(f"{name} is {number}; give a number from 0 to {_MOST_ROWS}")


@dataclass(frozen=True)
class RecordTable:
    """Records with the same columns, in order; a value that is not there is None."""

    columns: Sequence[str]
    records: Sequence[dict[str, Any]]
    """Plain values by column; a record may lack a column, and then has no value there."""
    dtypes: Mapping[str, str] = field(default_factory=dict)
    """Dtypes of a DataFrame's columns that do not follow from the values, as in a table without records."""
    notes: Sequence[str] = ()
    """Sentences on what the values leave out."""

    def values(self, column: str) -> list[Any]:
        """Values of a column, one for each record."""
        return [record.get(column) for record in self.records]

    def frame(self) -> pandas.DataFrame:
        """Make a DataFrame; columns whose names end in `_at` are timestamps in UTC, even without records."""
        import pandas

        frame = pandas.DataFrame.from_records(list(self.records), columns=list(self.columns))
        for name in self.columns:
            if name.endswith("_at"):
                frame[name] = pandas.to_datetime(frame[name], utc=True)
        return frame.astype(dict(self.dtypes))


def record_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], **dtypes: str) -> RecordTable:
    """Make a table of rows whose values stand in the order of the columns."""
    return RecordTable(columns, [dict(zip(columns, row, strict=True)) for row in rows], dtypes)


@contextmanager
def paused_collection() -> Iterator[None]:
    """Keep the collector of cycles from running: it takes half of the time where many rows become objects that stay.

    Also a decorator.
    """
    was_enabled = gc.isenabled()
    if was_enabled:  # else another pause ends after this one has looked, and nothing would end this one
        gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def record_columns(kind: type[Any], table: Table, **read: Any) -> list[Any]:
    """Columns in the order of a record's fields, `read` before the table's: in half the time of whole rows."""
    columns = {**table.c, **read}
    return [columns[field.name] for field in fields(kind)]


def state_as_read(lost_after_s: float) -> ColumnElement[RunState]:
    """State of a run as SQL: the stored one; of a silent running one LOST, as `orchestrator.base.run_states` says."""
    last_sign = func.coalesce(RUNS.c.heartbeat_at, RUNS.c.started_at, RUNS.c.created_at)
    is_silent = and_(RUNS.c.state == RunState.RUNNING, last_sign < utc_now(lost_after_s))
    return case((is_silent, literal(RunState.LOST, StateText)), else_=RUNS.c.state)


@cache
def is_flagged(flag: Flag) -> ColumnElement[bool]:
    """Condition for runs that a flag reaches; made once, since making it costs as much as a page of a list."""
    return RUNS.c.key.in_(select(MARKS.c.run_id).where(MARKS.c.kind == "flag", MARKS.c.word == flag))


@cache
def is_ranked() -> ColumnElement[bool]:
    """Condition for runs that belong to a group."""
    is_of_its_own = or_(RUNS.c.parent_id.is_not(None), RUNS.c.kind.in_(RANKED_KINDS))
    return and_(RUNS.c.task.is_not(None), RUNS.c.metric.is_not(None), is_of_its_own)


def load_runs(
    connection: Connection, state: ColumnElement[RunState], *conditions: ColumnElement[bool], limit: int | None = None
) -> list[RunRecord]:
    """Load the runs for which all conditions are true, the newest first."""
    read = {"state": state, "experiment": of_whole_run("name"), "fingerprint": of_whole_run("fingerprint")}
    statement = select(*record_columns(RunRecord, RUNS, **read)).where(*conditions)
    rows = connection.execute(statement.order_by(RUNS.c.created_at.desc(), RUNS.c.id.desc()).limit(limit))
    return [RunRecord(*row) for row in rows]


def find_run(connection: Connection, wanted: str, state: ColumnElement[RunState]) -> RunRecord | None:
    """Run or trial that a text means, as `Registry.run` finds it; None for none. Raises: SeveralRunsError."""
    begins = wanted.lower()
    for whole in load_runs(connection, state, RUNS.c.id == begins, limit=1):
        return whole
    named, begun = newest_called(connection, wanted, state) if wanted else None, list[RunRecord]()
    if len(wanted) >= MIN_ID_DIGITS:
        is_near = RUNS.c.id.between(begins, begins + "z" * MIN_ID_DIGITS)  # which an index answers
        is_begun = and_(is_near, RUNS.c.id.startswith(begins, autoescape=True))
        begun = load_runs(connection, state, is_begun, limit=MAX_CANDIDATES + 1)
    meant = [*{run.id: run for run in (*([named] if named else []), *begun)}.values()]
    if len(meant) > 1:
        what = f"is the name of run {named.id} and begins an id" if named else "begins the ids of several runs"
        others = _listed(meant[1:] if named else meant)
        raise SeveralRunsError(f"{wanted!r} {what}; give a whole id: {others}.")
    return meant[0] if meant else None


def no_run(connection: Connection, wanted: str, state: ColumnElement[RunState]) -> str:
    """Words on a text that means no run: which runs there are."""
    recent = load_runs(connection, state, RUNS.c.parent_id.is_(None), limit=MAX_CANDIDATES)
    known = f"the latest are: {_listed(recent)}" if recent else "the registry has no run yet"
    short = f" ({MIN_ID_DIGITS} characters are needed)" if wanted and len(wanted) < MIN_ID_DIGITS else ""
    return f"No run's id begins with {wanted!r}{short}; {known}"


def _listed(runs: Sequence[RunRecord]) -> str:
    shown = [f"{run.id} ({run.name[:40]!r})" for run in runs[:MAX_CANDIDATES]]
    return ", ".join(shown) + (", …" if len(runs) > MAX_CANDIDATES else "")


def newest_called(connection: Connection, name: str, state: ColumnElement[RunState]) -> RunRecord | None:
    """Find the newest run of a name, else the newest trial; None where nothing is called so."""
    for condition in (RUNS.c.parent_id.is_(None), RUNS.c.parent_id.is_not(None)):
        for newest in load_runs(connection, state, RUNS.c.name == name, condition, limit=1):
            return newest
    return None


def load_kept_trials(connection: Connection, sweep_ids: Collection[str]) -> dict[str, str]:
    """Id of the trial whose model each of these sweeps kept, by the sweep's id; runs without one are left out."""
    if not sweep_ids:
        return {}
    sweep, trial = RUNS.alias(), RUNS.alias()
    is_kept = (trial.c.parent_id == sweep.c.key) & (trial.c.model_folder == sweep.c.model_folder)
    kept = select(sweep.c.id, trial.c.id).join(trial, is_kept).order_by(trial.c.id)
    return dict(connection.execute(kept.where(sweep.c.id.in_(select_items(sweep_ids)))).all())


def load_parameters_of(
    connection: Connection, run_ids: Collection[str], paths: Collection[str] = ()
) -> dict[str, dict[str, Any]]:
    """Load the parameters of several runs, those with some paths or all; a run without any has none."""
    if not run_ids:
        return {}
    stored = json_object(name_of_key(PARAMETERS.c.path), PARAMETERS.c.kind + _KIND_END + PARAMETERS.c.text)
    asked = select(PARAMETERS.c.run_id, stored).where(PARAMETERS.c.run_id.in_(select_runs(run_ids)))
    if paths:
        asked = asked.where(PARAMETERS.c.path.in_(select(NAMES.c.key).where(NAMES.c.text.in_(paths))))
    parameters: dict[str, dict[str, Any]] = {run_id: {} for run_id in run_ids}
    for run_id, own in connection.execute(asked.group_by(PARAMETERS.c.run_id)).all():
        parameters[run_id] = {path: _decode(value) for path, value in own.items()}
    return parameters


_KIND_END = ":"  # which no kind has
_decode = lru_cache(maxsize=10_000)(lambda stored: decode_parameter(*stored.split(_KIND_END, 1)))
"""A few values stand in most recipes, and each is decoded once."""


def load_named(connection: Connection, fields: Collection[str], except_of: Collection[str]) -> dict[str, set[str]]:
    """Load the values of fields, wherever they stand in a spec, of any run but some; each with the ids of its runs.

    A path in the folder of a run, or of a trial, is its id, too.
    """
    from orchestrator.specs.references import split_starts  # and pydantic with it, for whoever collects garbage

    ends = (NAMES.c.text.endswith(f".{field}", autoescape=True) for field in sorted(fields))
    paths = select(NAMES.c.key).where(or_(NAMES.c.text.in_(fields), *ends))
    whole, stored = func.coalesce(RUNS.c.parent_id, RUNS.c.key), PARAMETERS.c
    rows = select(whole, stored.kind, stored.text).join(RUNS, RUNS.c.key == stored.run_id).distinct()
    are_others = stored.run_id.not_in(select_runs(except_of)), stored.kind != "null"
    named: dict[str, set[str]] = defaultdict(set)
    for run_id, *value in connection.execute(rows.where(stored.path.in_(paths), *are_others)):
        decoded = decode_parameter(*value)
        for each in decoded if isinstance(decoded, list) else [decoded]:
            for name in split_starts(str(each)):
                for one in (name, *ids_of_path(name)):
                    named[one].add(run_id)
    return named
