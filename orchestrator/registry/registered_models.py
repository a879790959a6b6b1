"""Registered models: model folders under a name and a version."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import asdict
from datetime import datetime

from sqlalchemy import Select, and_, func, or_, select, update
from sqlalchemy.orm import Session

from orchestrator.errors import InputError, NotFoundError
from orchestrator.nearest import nearest
from orchestrator.registry.column_types import utc_now
from orchestrator.registry.database import Database
from orchestrator.registry.engines.dialects import lock_until_commit, select_runs
from orchestrator.registry.keeping_tables import AliasRow
from orchestrator.registry.record_table import RecordTable, check_page, record_table
from orchestrator.registry.records import ModelRecord, RunRecord
from orchestrator.registry.run_records import MAX_CANDIDATES, load_records
from orchestrator.registry.tables import ModelRow, RunRow, StoredModel
from orchestrator.results import ModelResult

_NEWEST_FIRST = (ModelRow.created_at.desc(), ModelRow.name)
_ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,59}")


class RegisteredModels:
    """`registry.models`: writes and reads registered models. Natural key: (name, digest of the weights)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def register(self, name: str, model: ModelResult, run_id: str | None = None) -> int:
        """Register a model folder under a name and return its version.

        The same weights under the same name keep their version, and get it back after they were removed; no other
        weights ever get it. They are looked for in the folder that was given last, since an older one may be deleted.
        """
        with self._database.session(writing=True) as session:
            lock_until_commit(session.connection(), f"models/{name}")
            known = select(StoredModel).where(StoredModel.name == name, StoredModel.digest == model.digest)
            row = session.scalar(known)
            if row is None:
                row = StoredModel(name=name, version=free_version(session, name), run_id=run_id, **asdict(model))
                session.add(row)
            elif row.removed_at is not None:
                row.removed_at, row.run_id, row.created_at = None, run_id, utc_now()
            row.folder = model.folder
            return row.version

    def get(self, name: str) -> ModelRecord:
        """Newest version of a registered model, or the version that `name@version` or `name@alias` gives.

        Raises: NotFoundError, which lists models that are registered.
        """
        with self._database.session(writing=False) as session:
            return _find_model(session, name)

    def set_alias(self, model: str, alias: str) -> tuple[ModelRecord, int | None]:
        """Let an alias mean a version of a model; returns that, and the version that it meant before.

        Args:
            model: the model, as `get` takes it.

        Raises: NotFoundError; InputError for a word that cannot be an alias.
        """
        if not _ALIAS.fullmatch(alias):
            raise InputError(f"{alias!r} is no alias: a letter, then letters, digits, `-`, `_` or `.`, 60 at most")
        with self._database.session(writing=True) as session:
            record = _find_model(session, model)
            row = session.get(AliasRow, (record.name, alias))
            before = None if row is None else row.version
            if before != record.version:
                session.merge(AliasRow(name=record.name, alias=alias, version=record.version, set_at=utc_now()))
            return record, before

    def remove_alias(self, name: str, alias: str) -> None:
        """Forget an alias of a model. Raises: NotFoundError."""
        with self._database.session(writing=True) as session:
            row = session.get(AliasRow, (name, alias))
            if row is None:
                raise NotFoundError(f"{name} has no alias {alias!r}; see: orchestrator models list")
            session.delete(row)

    def aliases(self) -> dict[tuple[str, int], list[str]]:
        """Aliases of each version, sorted, by the model's name and version."""
        found: dict[tuple[str, int], list[str]] = {}
        with self._database.session(writing=False) as session:
            is_there = (ModelRow.name == AliasRow.name) & (ModelRow.version == AliasRow.version)
            for row in session.scalars(select(AliasRow).join(ModelRow, is_there).order_by(AliasRow.alias)):
                found.setdefault((row.name, row.version), []).append(row.alias)
        return found

    def of_run(self, run_id: str) -> list[ModelRecord]:
        """Models that a run registered, newest first."""
        return self.of_runs([run_id])

    def left_by(self, run: RunRecord) -> list[ModelRecord]:
        """Models that a run left, newest first: also one that another run had registered with the same weights.

        That one is known by its folder, so that it is told of the first run and of the newest one that came to it. Of a
        trial it is none unless it was registered itself; its sweep registers the best one.
        """
        has_own_folder = run.model_folder is not None and run.parent_id is None
        in_folder = [ModelRow.folder == run.model_folder] if has_own_folder else []
        statement = select(ModelRow).where(or_(ModelRow.run_id == run.id, *in_folder))
        with self._database.session(writing=False) as session:
            return load_records(session, statement.order_by(*_NEWEST_FIRST), ModelRecord)

    def of_runs(self, run_ids: Collection[str]) -> list[ModelRecord]:
        """Models that some runs registered, newest first."""
        with self._database.session(writing=False) as session:
            statement = select(ModelRow).where(ModelRow.run_id.in_(select_runs(session, run_ids)))
            return load_records(session, statement.order_by(*_NEWEST_FIRST), ModelRecord)

    def remove_of(self, run_ids: Collection[str], folder: str | None = None) -> None:
        """Take the models that runs registered, and those in a folder, out of the registry; their files stay."""
        in_folder = [] if folder is None else [StoredModel.folder == folder]
        with self._database.session(writing=True) as session:
            of_runs = StoredModel.run_id.in_(select_runs(session, run_ids))
            are_here = StoredModel.removed_at.is_(None), or_(of_runs, *in_folder)
            session.execute(update(StoredModel).where(*are_here).values(removed_at=utc_now()))

    def count(self) -> int:
        """Number of the registered models, each version counted."""
        with self._database.session(writing=False) as session:
            return session.scalar(select(func.count()).select_from(ModelRow)) or 0

    def table(self, *, limit: int | None = None, offset: int = 0) -> RecordTable:
        """Registered models, newest first, each with the task of the run that registered it.

        Args:
            limit: number of models at most; all when None.
            offset: number of models to leave out before.
        """
        check_page(limit, offset)
        model = ModelRow
        columns = [model.name, model.version, model.head, RunRow.task, model.num_parameters, model.run_id]
        columns += [model.folder, model.digest, model.created_at]
        statement = select(*columns).outerjoin(RunRow, RunRow.key == model.run_id)
        page = statement.order_by(*_NEWEST_FIRST, model.version.desc()).limit(limit).offset(offset)
        with self._database.session(writing=False) as session:
            found = session.execute(page).all()
            return record_table([column.key for column in columns], found)


def _find_model(session: Session, name: str) -> ModelRecord:
    """The version that a name means. Raises: NotFoundError, which lists models that are registered."""
    plain, version = split_version(name)
    recent = select(ModelRow).order_by(*_NEWEST_FIRST).limit(MAX_CANDIDATES)
    for record in load_records(session, named_version(name), ModelRecord):
        return record
    labels = ", ".join(record.label for record in load_records(session, recent, ModelRecord))
    aliased = select(AliasRow.alias).where(AliasRow.name == plain).order_by(AliasRow.alias)
    aliases = list(session.scalars(aliased))
    names = list(session.scalars(select(ModelRow.name).distinct().order_by(ModelRow.name)))
    # A pipeline's models are called by it and their stage: `reviews/finetuning` for who says `reviews`.
    near = [other for other in names if other.startswith(f"{plain or name}/")]
    near = near or nearest(plain or name, names, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    if version is not None and not is_number(version) and plain in names:
        hint = f"{plain} has {'the aliases ' + ', '.join(aliases) if aliases else 'no alias'}; "
    raise NotFoundError(
        f"No model {name!r} is registered; {hint}" + (f"the latest: {labels}." if labels else "there is none yet.")
    )


def split_version(name: str) -> tuple[str, str | None]:
    """Split `name@version` or `name@alias` into the name and what follows; None where nothing does."""
    plain, at, version = name.rpartition("@")
    return (plain, version) if at else (name, None)


def is_number(version: str | None) -> bool:
    """Whether what follows a model's name is the number of a version, rather than an alias."""
    return version is not None and version.isdecimal() and len(version) < 10


def named_version(name: str, before: datetime | None = None) -> Select[ModelRow]:
    """Select the version that `name`, `name@version` or `name@alias` means: the newest one for a name alone.

    Args:
        before: time at which the name was said: a version that was registered later, and an alias that was set later,
            are not meant.
    """
    plain, version = split_version(name)
    if version is not None and is_number(version):
        condition = and_(ModelRow.name == plain, ModelRow.version == int(version))
    else:
        condition = ModelRow.name == name
        if version is not None:
            meant = select(AliasRow.version).where(AliasRow.name == plain, AliasRow.alias == version)
            if before is not None:
                meant = meant.where(AliasRow.set_at <= before)
            condition = or_(condition, and_(ModelRow.name == plain, ModelRow.version == meant.scalar_subquery()))
    if before is not None and not is_number(version):
        condition = and_(condition, ModelRow.created_at <= before)
    return select(ModelRow).where(condition).order_by(ModelRow.version.desc()).limit(1)


def free_version(session: Session, name: str, wanted: int | None = None) -> int:
    """A version of a name that was never given: the one that is wanted, else the next one."""
    given = session.scalars(select(StoredModel.version).where(StoredModel.name == name)).all()
    return max(given, default=0) + 1 if wanted is None or wanted in given else wanted
