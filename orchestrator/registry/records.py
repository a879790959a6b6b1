"""Records that the registry returns: frozen, made of plain values, independent of any connection; and tables of them.

Commands show the plain values. Pandas is imported where a person's own code asks for a DataFrame: importing it takes
longer than reading the registry.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from orchestrator.errors import InputError
from orchestrator.run_states import RunState

if TYPE_CHECKING:
    import pandas


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
    """Code of the driver: the fields of `provenance.source_code.SourceCode` but for the changes themselves."""
    diff_digest: str | None = None
    """Digest of the changes that are in no commit, where they are kept: `Registry.code_diff` returns them."""
    command: str | None = None
    """Command line as it was typed, secrets masked."""
    overrides: Sequence[str] | None = None
    """KEY=VALUE words as they were typed, secrets masked."""
    environment: Mapping[str, Any] | None = None
    """Versions and machine of the driver: the fields of `provenance.machine.Machine`."""


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


MOST_ROWS = 2**31 - 1
"""Rows that a page may begin with or have: more than any registry."""


def check_page(limit: int | None, offset: int) -> None:
    """Raise InputError for a number of rows that no page has."""
    for name, number in (("limit", limit), ("offset", offset)):
        if number is not None and not 0 <= number <= MOST_ROWS:
            raise InputError(f"{name} is {number}; give a number from 0 to {MOST_ROWS}")


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
