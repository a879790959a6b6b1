"""Runs of another registry, brought into this one: each with its trials and all that is recorded of them, or not.

A run that came from elsewhere has a tag `pulled:WHERE`. It is known here by its id: one that came before is replaced
by what it has become, one of this registry's own is never touched.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Select, Table, delete, func, insert, or_, select, update
from sqlalchemy.orm import Session

from orchestrator.errors import InputError
from orchestrator.registry.database import Database
from orchestrator.registry.dialects import lock_until_commit, upsert_rows
from orchestrator.registry.lifecycle import add_tags
from orchestrator.registry.tables import (
    AttemptRow,
    BaseRow,
    CheckpointRow,
    DatasetRow,
    ExperimentRow,
    MetricPointRow,
    MetricRow,
    ModelRow,
    ParameterRow,
    RunDatasetRow,
    RunRow,
    TagRow,
)

PULLED = "pulled:"
"""Beginning of the tag of a run that came from elsewhere; the place follows."""
_ROWS_AT_ONCE = 5_000
_OF_RUNS = (AttemptRow, ParameterRow, MetricRow, MetricPointRow, CheckpointRow, RunDatasetRow)
"""Tables whose rows belong to one run."""


@dataclass(frozen=True)
class Transfer:
    """Outcome of bringing a run here."""

    run_id: str
    change: str
    """One of new, updated and unchanged."""
    renamed: dict[str, str] = field(default_factory=dict)
    """Models whose version was taken here by other weights: the label that each has here."""


def origin_of(tags: Collection[str]) -> str | None:
    """Name the place that a run with these tags came from; None for one of this registry's own."""
    return next((tag.removeprefix(PULLED) for tag in tags if tag.startswith(PULLED)), None)


class RunTransfers:
    """`registry.transfers`: tells what a run consists of, and brings runs of another registry here."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def digest(self, run_id: str) -> str:
        """Digest of all that is recorded of a run and its trials: the same in every registry that has the same."""
        with self._database.session(writing=False) as session:
            return _digest(session, run_id)

    def count_points(self, run_id: str) -> int:
        """Number of measurements in the histories of a run and its trials."""
        points = select(func.count()).select_from(MetricPointRow).join(RunRow, RunRow.id == MetricPointRow.run_id)
        with self._database.session(writing=False) as session:
            return session.scalar(points.where((RunRow.id == run_id) | (RunRow.parent_id == run_id))) or 0

    def begun_since(self, since: datetime | None) -> list[str]:
        """Ids of the runs that were begun, or went on, at a time or later, the oldest first; of all when None."""
        statement = select(RunRow.id).where(RunRow.parent_id.is_(None)).order_by(RunRow.created_at, RunRow.id)
        if since is not None:
            times = (RunRow.created_at, RunRow.heartbeat_at, RunRow.finished_at)
            statement = statement.where(or_(*(time >= since for time in times)))
        with self._database.session(writing=False) as session:
            return list(session.scalars(statement))

    def pulled(self) -> dict[str, str]:
        """Name the place that each run came from that is not this registry's own, by the run's id."""
        with self._database.session(writing=False) as session:
            rows = session.execute(select(TagRow.run_id, TagRow.tag).where(TagRow.tag.startswith(PULLED)))
            return {run_id: tag.removeprefix(PULLED) for run_id, tag in rows}

    def bring(self, run_id: str, source: "RunTransfers", origin: str) -> Transfer:
        """Bring a run of another registry here, in one transaction, in place of what came of it before.

        Args:
            origin: name of the place that it comes from.

        Raises: InputError, telling both, where this registry has another run of that id.
        """
        with source._database.session(writing=False) as there, self._database.session(writing=True) as here:
            known, tags, their_tags = here.get(RunRow, run_id), _tags(here, run_id), _tags(there, run_id, own=True)
            if known is not None:
                is_equal = _digest(here, run_id) == _digest(there, run_id)
                is_pulled = origin_of(tags) is not None
                if is_equal and (not is_pulled or tags >= their_tags):
                    return Transfer(run_id, "unchanged")
                _refuse_another(known, there.get_one(RunRow, run_id), origin, is_pulled=is_pulled)
            here.execute(delete(RunRow).where(RunRow.id == run_id))
            here.expunge_all()
            family = _family(there, run_id)
            _copy_family(there, here, family)
            add_tags(here, run_id, sorted(tags | their_tags | {f"{PULLED}{origin}"}))
            return Transfer(run_id, "new" if known is None else "updated", _bring_models(there, here, family))


def _refuse_another(known: RunRow, other: RunRow, origin: str, *, is_pulled: bool) -> None:
    """Refuse to replace a run by one that is not what has become of it. Raises: InputError."""
    if is_pulled and all(
        getattr(known, name) == getattr(other, name) for name in ("kind", "name", "created_at", "spec")
    ):
        return
    raise InputError(
        f"run {known.id} stays as it is: here it is {_told(known)}, {'' if is_pulled else 'not pulled from anywhere, '}"
        f"and at {origin} it is {_told(other)}; pull into another --home to have both"
    )


def _told(run: RunRow) -> str:
    return f"{run.kind} {run.name} of {run.created_at:%Y-%m-%d %H:%M} ({run.state}, attempt {run.attempt})"


def _family(session: Session, run_id: str) -> list[str]:
    """Ids of a run and its trials, the run first."""
    return [run_id, *session.scalars(select(RunRow.id).where(RunRow.parent_id == run_id).order_by(RunRow.id))]


def _tags(session: Session, run_id: str, *, own: bool = False) -> set[str]:
    """Tags of a run; `own` leaves out the one that says where it came from."""
    tags = set(session.scalars(select(TagRow.tag).where(TagRow.run_id == run_id)))
    return {tag for tag in tags if not tag.startswith(PULLED)} if own else tags


def _digest(session: Session, run_id: str) -> str:
    digest = hashlib.sha256()
    for row_id in _family(session, run_id):
        run = {**_values(session.get_one(RunRow, row_id)), "experiment_id": None}
        digest.update(repr(sorted(run.items())).encode())
        for table in _OF_RUNS:
            for part in session.execute(_rows(table, row_id)).partitions(_ROWS_AT_ONCE):
                digest.update(repr([tuple(row) for row in part]).encode())
        models = select(ModelRow.name, ModelRow.digest).where(ModelRow.run_id == row_id)
        digest.update(repr(sorted(tuple(row) for row in session.execute(models))).encode())
    return digest.hexdigest()[:16]


def _values(row: BaseRow) -> dict[str, Any]:
    return {column.key: getattr(row, column.key) for column in row.__table__.columns}


def _rows(table: type[BaseRow], run_id: str) -> Select[Any]:
    """Statement that selects the rows of a table that belong to a run, by their key."""
    columns = table.__table__
    assert isinstance(columns, Table)
    ordered = select(columns).where(columns.c.run_id == run_id).order_by(*columns.primary_key)
    return ordered.execution_options(yield_per=_ROWS_AT_ONCE)


def _copy_family(there: Session, here: Session, family: list[str]) -> None:
    """Insert a run, its trials and their rows."""
    for run_id in family:
        run = there.get_one(RunRow, run_id)
        experiment = there.get_one(ExperimentRow, run.experiment_id)
        key = {"fingerprint": experiment.fingerprint, "name": experiment.name}
        upsert_rows(here, ExperimentRow, tuple(key), (), [{**key, "created_at": experiment.created_at}])
        experiment_id = here.scalars(select(ExperimentRow.id).filter_by(**key)).one()
        here.execute(insert(RunRow), [{**_values(run), "experiment_id": experiment_id}])
        for link in there.execute(_rows(RunDatasetRow, run_id)):
            data = _values(there.get_one(DatasetRow, link.fingerprint))
            upsert_rows(here, DatasetRow, ("fingerprint",), (), [data])
        for table in _OF_RUNS:
            for part in there.execute(_rows(table, run_id)).mappings().partitions(_ROWS_AT_ONCE):
                here.execute(insert(table), [dict(row) for row in part])
        there.expunge_all()


def _bring_models(there: Session, here: Session, family: list[str]) -> dict[str, str]:
    """Bring the records of a family's models; weights that are known here by this name keep their version.

    Returns the new labels of those whose version other weights have here.
    """
    renamed = {}
    for run_id in family:
        for model in there.scalars(select(ModelRow).where(ModelRow.run_id == run_id).order_by(ModelRow.version)):
            lock_until_commit(here.connection(), f"models/{model.name}")
            same = (ModelRow.name == model.name) & (ModelRow.digest == model.digest)
            if here.scalar(select(ModelRow.version).where(same)) is not None:
                relink = update(ModelRow).where(same, ModelRow.run_id.is_(None)).values(run_id=run_id)
                here.execute(relink.execution_options(synchronize_session=False))
                continue
            taken = set(here.scalars(select(ModelRow.version).where(ModelRow.name == model.name)))
            version = max(taken) + 1 if model.version in taken else model.version
            here.execute(insert(ModelRow), [{**_values(model), "version": version}])
            if version != model.version:
                renamed[f"{model.name}@{model.version}"] = f"{model.name}@{version}"
    return renamed
