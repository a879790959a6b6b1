"""Registered models: model folders under a name and a version."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, and_, delete, func, insert, or_, select, update

from orchestrator.errors import InputError, NotFoundError
from orchestrator.nearest import nearest
from orchestrator.registry.column_types import utc_now
from orchestrator.registry.database import Database
from orchestrator.registry.dialects import change_row, find_row, lock_until_commit, select_runs, upsert
from orchestrator.registry.records import ModelRecord, RecordTable, RunRecord, check_page, record_table
from orchestrator.registry.run_records import MAX_CANDIDATES, load_records
from orchestrator.registry.tables import ALIASES, ALL_MODELS, MODELS, RUNS
from orchestrator.results import ModelResult

_NEWEST_FIRST = (MODELS.c.created_at.desc(), MODELS.c.name, MODELS.c.version.desc())  # two may share a millisecond
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
        with self._database.connection(writing=True) as connection:
            lock_until_commit(connection, f"models/{name}")
            row = find_row(connection, ALL_MODELS, name=name, digest=model.digest)
            if row is None:
                version = free_version(connection, name)
                values = {"name": name, "version": version, "run_id": run_id, **asdict(model)}
                connection.execute(insert(ALL_MODELS).values(values))
                return version
            changes: dict[str, Any] = {"folder": model.folder}
            if row.removed_at is not None:
                changes |= {"removed_at": None, "run_id": run_id, "created_at": utc_now()}
            change_row(connection, ALL_MODELS, changes, name=name, version=row.version)
            return int(row.version)

    def get(self, name: str) -> ModelRecord:
        """Newest version of a registered model, or the version that `name@version` or `name@alias` gives.

        Raises: NotFoundError, which lists models that are registered.
        """
        with self._database.connection(writing=False) as connection:
            return _find_model(connection, name)

    def set_alias(self, model: str, alias: str) -> tuple[ModelRecord, int | None]:
        """Let an alias mean a version of a model; returns that, and the version that it meant before.

        Args:
            model: the model, as `get` takes it.

        Raises: NotFoundError; InputError for a word that cannot be an alias.
        """
        if not _ALIAS.fullmatch(alias):
            raise InputError(f"{alias!r} is no alias: a letter, then letters, digits, `-`, `_` or `.`, 60 at most")
        with self._database.connection(writing=True) as connection:
            record = _find_model(connection, model)
            row = find_row(connection, ALIASES, name=record.name, alias=alias)
            before = None if row is None else row.version
            if before != record.version:
                values = {"name": record.name, "alias": alias, "version": record.version, "set_at": utc_now()}
                moved = upsert(connection.dialect.name, ALIASES, ("name", "alias"), ("version", "set_at"))
                connection.execute(moved.values(values))
            return record, before

    def remove_alias(self, name: str, alias: str) -> None:
        """Forget an alias of a model. Raises: NotFoundError."""
        with self._database.connection(writing=True) as connection:
            gone = delete(ALIASES).where(ALIASES.c.name == name, ALIASES.c.alias == alias)
            if not connection.execute(gone).rowcount:
                raise NotFoundError(f"{name} has no alias {alias!r}; see: orchestrator models list")

    def aliases(self) -> dict[tuple[str, int], list[str]]:
        """Aliases of each version, sorted, by the model's name and version."""
        found: dict[tuple[str, int], list[str]] = {}
        with self._database.connection(writing=False) as connection:
            is_there = (MODELS.c.name == ALIASES.c.name) & (MODELS.c.version == ALIASES.c.version)
            for row in connection.execute(select(ALIASES).join(MODELS, is_there).order_by(ALIASES.c.alias)):
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
        in_folder = [MODELS.c.folder == run.model_folder] if has_own_folder else []
        statement = select(MODELS).where(or_(MODELS.c.run_id == run.id, *in_folder))
        with self._database.connection(writing=False) as connection:
            return load_records(connection, statement.order_by(*_NEWEST_FIRST), ModelRecord)

    def of_runs(self, run_ids: Collection[str]) -> list[ModelRecord]:
        """Models that some runs registered, newest first."""
        with self._database.connection(writing=False) as connection:
            statement = select(MODELS).where(MODELS.c.run_id.in_(select_runs(connection, run_ids)))
            return load_records(connection, statement.order_by(*_NEWEST_FIRST), ModelRecord)

    def remove_of(self, run_ids: Collection[str], folder: str | None = None) -> None:
        """Take the models that runs registered, and those in a folder, out of the registry; their files stay."""
        in_folder = [] if folder is None else [ALL_MODELS.c.folder == folder]
        with self._database.connection(writing=True) as connection:
            of_runs = ALL_MODELS.c.run_id.in_(select_runs(connection, run_ids))
            are_here = ALL_MODELS.c.removed_at.is_(None), or_(of_runs, *in_folder)
            connection.execute(update(ALL_MODELS).where(*are_here).values(removed_at=utc_now()))

    def count(self) -> int:
        """Number of the registered models, each version counted."""
        with self._database.connection(writing=False) as connection:
            return connection.scalar(select(func.count()).select_from(MODELS)) or 0

    def table(self, *, limit: int | None = None, offset: int = 0) -> RecordTable:
        """Registered models, newest first, each with the task of the run that registered it.

        Args:
            limit: number of models at most; all when None.
            offset: number of models to leave out before.
        """
        check_page(limit, offset)
        model = MODELS.c
        columns = [model.name, model.version, model.head, RUNS.c.task, model.num_parameters, model.run_id]
        columns += [model.folder, model.digest, model.created_at]
        statement = select(*columns).outerjoin(RUNS, RUNS.c.key == model.run_id)
        page = statement.order_by(*_NEWEST_FIRST).limit(limit).offset(offset)
        with self._database.connection(writing=False) as connection:
            found = connection.execute(page).all()
            return record_table([column.key for column in columns], found)


def _find_model(connection: Connection, name: str) -> ModelRecord:
    """The version that a name means. Raises: NotFoundError, which lists models that are registered."""
    plain, version = split_version(name)
    recent = select(MODELS).order_by(*_NEWEST_FIRST).limit(MAX_CANDIDATES)
    for record in load_records(connection, named_version(name), ModelRecord):
        return record
    labels = ", ".join(record.label for record in load_records(connection, recent, ModelRecord))
    aliased = select(ALIASES.c.alias).where(ALIASES.c.name == plain).order_by(ALIASES.c.alias)
    aliases = list(connection.scalars(aliased))
    names = list(connection.scalars(select(MODELS.c.name).distinct().order_by(MODELS.c.name)))
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


def named_version(name: str, before: datetime | None = None) -> Select[Any]:
    """Select the version that `name`, `name@version` or `name@alias` means: the newest one for a name alone.

    Args:
        before: time at which the name was said: a version that was registered later, and an alias that was set later,
            are not meant.
    """
    plain, version = split_version(name)
    if version is not None and is_number(version):
        condition = and_(MODELS.c.name == plain, MODELS.c.version == int(version))
    else:
        condition = MODELS.c.name == name
        if version is not None:
            meant = select(ALIASES.c.version).where(ALIASES.c.name == plain, ALIASES.c.alias == version)
            if before is not None:
                meant = meant.where(ALIASES.c.set_at <= before)
            condition = or_(condition, and_(MODELS.c.name == plain, MODELS.c.version == meant.scalar_subquery()))
    if before is not None and not is_number(version):
        condition = and_(condition, MODELS.c.created_at <= before)
    return select(MODELS).where(condition).order_by(MODELS.c.version.desc()).limit(1)


def free_version(connection: Connection, name: str, wanted: int | None = None) -> int:
    """A version of a name that was never given: the one that is wanted, else the next one."""
    given = connection.scalars(select(ALL_MODELS.c.version).where(ALL_MODELS.c.name == name)).all()
    return max(given, default=0) + 1 if wanted is None or wanted in given else wanted
