"""What the registry hands out: frozen, plain, detached from any session."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class RunRecord:
    """A run or a trial. `state` is LOST where the driver's heartbeat has been silent for too long."""

    id: str
    name: str
    kind: str
    state: str
    experiment: str
    fingerprint: str
    """Of the spec."""
    parent_id: str | None
    number: int | None
    """A trial's place in its sweep."""
    task: str | None
    metric: str | None
    """The score that ranks."""
    seed: int | None
    group_key: str
    """Digest of the parameters less the seed: equal for trials that differ only in their seed."""
    spec: Mapping[str, Any]
    storage_path: str | None
    """The run's folder."""
    model_folder: str | None
    """The model it left, in Hugging Face layout."""
    predictions_path: str | None
    attempt: int
    host: str | None
    pid: int | None
    error: str | None
    seconds: float | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    heartbeat_at: datetime | None


@dataclass(frozen=True)
class AttemptRecord:
    """One start of a run."""

    run_id: str
    number: int
    state: str
    host: str | None
    pid: int | None
    error: str | None
    started_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True)
class CheckpointRecord:
    """A checkpoint that was whole on the storage when recorded."""

    run_id: str
    step: int
    path: str
    digest: str
    num_bytes: int
    recorded_at: datetime


@dataclass(frozen=True)
class ModelRecord:
    """A registered model."""

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
        """`name@version`."""
        return f"{self.name}@{self.version}"
