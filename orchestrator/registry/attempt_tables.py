"""Tables for the attempts of runs: each start, the code that it ran, and what it took.

runs ──< attempts >── code_diffs
"""

from typing import Any

from sqlalchemy.orm import Mapped, mapped_column

from orchestrator.registry.column_types import utc_now
from orchestrator.registry.tables import BaseRow, BigInt, FreeTextStr, RunId, UtcDatetime
from orchestrator.run_states import RunState


class AttemptRow(BaseRow):
    """One start of a run."""

    __tablename__ = "attempts"

    run_id: Mapped[RunId] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[RunState] = mapped_column(default=RunState.RUNNING)
    host: Mapped[FreeTextStr | None]
    pid: Mapped[BigInt | None]
    error: Mapped[FreeTextStr | None]
    started_at: Mapped[UtcDatetime] = mapped_column(default=utc_now())
    finished_at: Mapped[UtcDatetime | None]
    job_id: Mapped[FreeTextStr | None]
    """Job on a cluster that carries the attempt out."""
    workers: Mapped[list[Any] | None]
    """Groups of training workers, in order: the number of steps before each, and its hosts by rank."""
    code: Mapped[dict[str, Any] | None]
    """Version, commit and changes of the driver's code, without the changes themselves."""
    diff_digest: Mapped[str | None]
    """Digest of the changes that are in no commit, where `code_diffs` keeps them."""
    command: Mapped[FreeTextStr | None]
    """Command line as it was typed, secrets masked."""
    overrides: Mapped[list[Any] | None]
    environment: Mapped[dict[str, Any] | None]
    """Versions and machine of the driver."""
    seconds: Mapped[float | None]
    """Duration so far; None before its costs are recorded."""
    cpu_seconds: Mapped[float | None]
    gpu_seconds: Mapped[float | None]
    """GPUs that the attempt held, times the seconds."""
    gpu_type: Mapped[FreeTextStr | None]


class CodeDiffRow(BaseRow):
    """Changes of code that are in no commit, kept once for all attempts that ran it."""

    __tablename__ = "code_diffs"

    digest: Mapped[str] = mapped_column(primary_key=True)
    """SHA-256 of the changes before secrets were masked."""
    diff: Mapped[FreeTextStr]
    recorded_at: Mapped[UtcDatetime] = mapped_column(default=utc_now())
