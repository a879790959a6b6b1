"""The tables. A trial is a run with a parent; times are UTC on the database's clock; a metric that is NULL was NaN.

experiments ─┬─< runs >── parent      runs ─┬─< attempts      runs ─┬─< metrics ─< metric_points
                                            ├─< parameters          ├─< checkpoints
                                            ├─< tags                └─< run_datasets >─ datasets
                                            └─< models
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from sqlalchemy import BigInteger, CheckConstraint, Double, ForeignKey, Index, Text, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from orchestrator.registry.column_types import FreeText, Json, UtcTime, utc_now

State = Literal["PENDING", "RUNNING", "COMPLETED", "FAILED", "STOPPED", "PRUNED"]
STATES: tuple[State, ...] = ("PENDING", "RUNNING", "COMPLETED", "FAILED", "STOPPED", "PRUNED")
"""What is stored; LOST is derived when read."""

Number = Annotated[int, mapped_column(BigInteger)]
RunKey = Annotated[str, mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))]
Moment = Annotated[datetime, mapped_column(UtcTime)]
Words = Annotated[str, mapped_column(FreeText)]


class Row(DeclarativeBase):
    """The base of every table; no row leaves this package."""

    type_annotation_map = {str: Text, float: Double, dict[str, Any]: Json, list[Any]: Json}  # noqa: RUF012


class ExperimentRow(Row):
    """A spec by name and fingerprint."""

    __tablename__ = "experiments"
    __table_args__ = (UniqueConstraint("fingerprint", "name", name="uq_experiments_fingerprint_name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[Words]
    fingerprint: Mapped[str]
    created_at: Mapped[Moment] = mapped_column(default=utc_now())


class RunRow(Row):
    """One execution of a spec; with a parent, one trial of a sweep."""

    __tablename__ = "runs"
    __table_args__ = (
        CheckConstraint(f"state IN ({', '.join(map(repr, STATES))})", name="ck_runs_state"),
        UniqueConstraint("parent_id", "trial_key", name="uq_runs_parent_id_trial_key"),
        Index("ix_runs_created_at", "created_at", "id"),
        Index("ix_runs_experiment_id", "experiment_id"),
        Index("ix_runs_task", "task"),
        Index("ix_runs_group_key", "group_key"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiments.id"))
    parent_id: Mapped[str | None] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    trial_key: Mapped[str | None]
    """A trial's natural key within its sweep."""
    number: Mapped[int | None]
    """A trial's place in its sweep."""
    kind: Mapped[str]
    name: Mapped[Words]
    state: Mapped[str] = mapped_column(default="PENDING")
    task: Mapped[Words | None]
    metric: Mapped[Words | None]
    """The score that ranks."""
    seed: Mapped[Number | None]
    group_key: Mapped[str]
    """Digest of the parameters less the seed."""
    spec: Mapped[dict[str, Any]]
    storage_path: Mapped[Words | None]
    model_folder: Mapped[Words | None]
    predictions_path: Mapped[Words | None]
    attempt: Mapped[int] = mapped_column(default=0)
    """Number of the newest attempt; an older one no longer decides the state."""
    host: Mapped[Words | None]
    pid: Mapped[Number | None]
    error: Mapped[Words | None]
    seconds: Mapped[float | None]
    created_at: Mapped[Moment] = mapped_column(default=utc_now())
    started_at: Mapped[Moment | None]
    finished_at: Mapped[Moment | None]
    heartbeat_at: Mapped[Moment | None]


class AttemptRow(Row):
    """One start of a run."""

    __tablename__ = "attempts"

    run_id: Mapped[RunKey] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(default="RUNNING")
    host: Mapped[Words | None]
    pid: Mapped[Number | None]
    error: Mapped[Words | None]
    started_at: Mapped[Moment] = mapped_column(default=utc_now())
    finished_at: Mapped[Moment | None]


class ParameterRow(Row):
    """One value of a run's spec, by its dotted path."""

    __tablename__ = "parameters"
    __table_args__ = (
        Index("ix_parameters_path", "path", "run_id"),
        Index("ix_parameters_leaf", "leaf", "run_id"),
        {"sqlite_with_rowid": False},
    )

    run_id: Mapped[RunKey] = mapped_column(primary_key=True)
    path: Mapped[Words] = mapped_column(primary_key=True)
    leaf: Mapped[Words | None]
    """The path's last part where that names one parameter of the run."""
    kind: Mapped[str]
    """text, number, boolean, null or json (a list)."""
    text: Mapped[Words]
    """The text itself, or the value as JSON."""
    number: Mapped[float | None]
    """Numbers; booleans as 0 and 1."""


class MetricRow(Row):
    """A measurement's latest value; a result's own values stand over those reported on the way."""

    __tablename__ = "metrics"
    __table_args__ = (Index("ix_metrics_split_name_value", "split", "name", "value"), {"sqlite_with_rowid": False})

    run_id: Mapped[RunKey] = mapped_column(primary_key=True)
    split: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    step: Mapped[Number]
    value: Mapped[float | None]
    final: Mapped[int] = mapped_column(default=0)
    """1: from the run's result, the score of the model that was kept."""


class MetricPointRow(Row):
    """A measurement's history."""

    __tablename__ = "metric_points"
    __table_args__ = ({"sqlite_with_rowid": False},)

    run_id: Mapped[RunKey] = mapped_column(primary_key=True)
    split: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    step: Mapped[Number] = mapped_column(primary_key=True)
    value: Mapped[float | None]
    epoch: Mapped[float | None]
    recorded_at: Mapped[Moment] = mapped_column(default=utc_now())


class CheckpointRow(Row):
    """A checkpoint that was whole on the storage."""

    __tablename__ = "checkpoints"

    run_id: Mapped[RunKey] = mapped_column(primary_key=True)
    step: Mapped[Number] = mapped_column(primary_key=True)
    path: Mapped[Words]
    digest: Mapped[str]
    num_bytes: Mapped[Number]
    recorded_at: Mapped[Moment] = mapped_column(default=utc_now())


class DatasetRow(Row):
    """Data as it was used: a token store, a task's splits, or a tokenizer."""

    __tablename__ = "datasets"

    fingerprint: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    name: Mapped[Words]
    path: Mapped[Words]
    counts: Mapped[dict[str, Any]]
    files: Mapped[list[Any]]
    recorded_at: Mapped[Moment] = mapped_column(default=utc_now())


class RunDatasetRow(Row):
    """Which run used which data."""

    __tablename__ = "run_datasets"
    __table_args__ = (Index("ix_run_datasets_fingerprint", "fingerprint"),)

    run_id: Mapped[RunKey] = mapped_column(primary_key=True)
    fingerprint: Mapped[str] = mapped_column(ForeignKey("datasets.fingerprint"), primary_key=True)


class ModelRow(Row):
    """A checkpoint under a name and version."""

    __tablename__ = "models"
    __table_args__ = (
        UniqueConstraint("name", "digest", name="uq_models_name_digest"),
        Index("ix_models_run_id", "run_id"),
    )

    name: Mapped[Words] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"))
    folder: Mapped[Words]
    digest: Mapped[str]
    head: Mapped[str]
    num_parameters: Mapped[Number]
    created_at: Mapped[Moment] = mapped_column(default=utc_now())


class TagRow(Row):
    """A word to find a run by."""

    __tablename__ = "tags"
    __table_args__ = (Index("ix_tags_tag", "tag"),)

    run_id: Mapped[RunKey] = mapped_column(primary_key=True)
    tag: Mapped[Words] = mapped_column(primary_key=True)
