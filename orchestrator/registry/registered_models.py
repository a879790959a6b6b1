"""Registered models: model folders under a name and a version."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from sqlalchemy import and_, func, select

from orchestrator.errors import NotFoundError
from orchestrator.registry.database import Database
from orchestrator.registry.dialects import lock_until_commit
from orchestrator.registry.records import ModelRecord
from orchestrator.registry.run_frames import make_frame
from orchestrator.registry.run_records import MAX_CANDIDATES, load_records
from orchestrator.registry.tables import ModelRow, RunRow
from orchestrator.results import ModelResult

if TYPE_CHECKING:
    import pandas


class RegisteredModels:
    """`registry.models`: writes and reads registered models. Natural key: (name, digest of the weights)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def register(self, name: str, model: ModelResult, run_id: str | None = None) -> int:
        """Register a model folder under a name and return its version.

        The same weights under the same name keep their version; from then on they are looked for in the folder that
        was given last, since an older one may be deleted.
        """
        with self._database.session(writing=True) as session:
            lock_until_commit(session.connection(), f"models/{name}")
            known = select(ModelRow).where(ModelRow.name == name, ModelRow.digest == model.digest)
            row = session.scalar(known)
            if row is None:
                newest = session.scalar(select(func.max(ModelRow.version)).where(ModelRow.name == name))
                row = ModelRow(name=name, version=(newest or 0) + 1, run_id=run_id, **asdict(model))
                session.add(row)
            row.folder = model.folder
            return row.version

    def get(self, name: str) -> ModelRecord:
        """Newest version of a registered model, or the version that `name@version` gives.

        Raises: NotFoundError, which lists models that are registered.
        """
        plain, at, version = name.rpartition("@")
        exact = at and version.isdecimal() and len(version) < 10
        condition = and_(ModelRow.name == plain, ModelRow.version == int(version)) if exact else ModelRow.name == name
        newest = select(ModelRow).where(condition).order_by(ModelRow.version.desc()).limit(1)
        recent = select(ModelRow).order_by(ModelRow.created_at.desc(), ModelRow.name).limit(MAX_CANDIDATES)
        with self._database.session(writing=False) as session:
            for record in load_records(session, newest, ModelRecord):
                return record
            labels = ", ".join(record.label for record in load_records(session, recent, ModelRecord))
        raise NotFoundError(
            f"No model {name!r} is registered; " + (f"the latest are: {labels}." if labels else "there is none yet.")
        )

    def of_run(self, run_id: str) -> list[ModelRecord]:
        """Models that a run registered, newest first."""
        statement = select(ModelRow).where(ModelRow.run_id == run_id)
        with self._database.session(writing=False) as session:
            ordered = statement.order_by(ModelRow.created_at.desc(), ModelRow.name)
            return load_records(session, ordered, ModelRecord)

    def frame(self) -> pandas.DataFrame:
        """All registered models, newest first, each with the task of the run that registered it."""
        model = ModelRow
        columns = [model.name, model.version, model.head, RunRow.task, model.num_parameters, model.run_id]
        columns += [model.folder, model.digest, model.created_at]
        statement = select(*columns).outerjoin(RunRow, RunRow.id == model.run_id)
        statement = statement.order_by(model.created_at.desc(), model.name, model.version.desc())
        with self._database.session(writing=False) as session:
            return make_frame(session.execute(statement).all(), [column.key for column in columns])
