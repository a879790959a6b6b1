"""Registered models: model folders under a name and a version."""

import re
from collections.abc import Collection
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Select, and_, delete, func, insert, or_, select

from orchestrator.base.errors import InputError, NotFoundError
from orchestrator.base.nearest import nearest
from orchestrator.registry.database import RegistryPart
from orchestrator.registry.dialects import change_row, find_row, lock_until_commit, select_runs, upsert_rows, utc_now
from orchestrator.registry.records import (
    MAX_CANDIDATES,
    ModelRecord,
    RecordTable,
    RunRecord,
    check_page,
    record_columns,
    record_table,
)
from orchestrator.registry.tables import ALIASES, ALL_MODELS, MODELS, RUNS

if TYPE_CHECKING:
    from orchestrator.base.results import ModelResult

_NEWEST_FIRST = (MODELS.c.created_at.desc(), MODELS.c.name, MODELS.c.version.desc())  # two may share a millisecond
_COLUMNS = record_columns(ModelRecord, MODELS)
IS_ITS_ALIAS = (MODELS.c.name == ALIASES.c.name) & (MODELS.c.version == ALIASES.c.version)
_ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,59}")


class RegisteredModels(RegistryPart):
    """`registry.models`: writes and reads registered models. Natural key: (name, digest of the weights)."""

    def register(self, name: str, model: "ModelResult", run_id: str | None = None) -> int:
        """Register a model folder under a name and return its version.

        The same weights under the same name keep their version, also after they were removed; no other weights ever
        get it. They are looked for in the folder that was given last, since an older one may be deleted.
        """
        with self._database.connection(writing=True) as connection:
            lock_until_commit(connection, f"models/{name}")
            row = find_row(connection, ALL_MODELS, name=name, digest=model.digest)
            version = free_version(connection, name) if row is None else int(row.version)
            if row is None:
                values = {"name": name, "version": version, "run_id": run_id, **asdict(model)}
                connection.execute(insert(ALL_MODELS).values(values))
            else:
                returns = {"removed_at": None, "run_id": run_id, "created_at": utc_now()} if row.removed_at else {}
                change_row(connection, ALL_MODELS, {"folder": model.folder, **returns}, name=name, version=version)
            return version

    def get(self, name: str) -> ModelRecord:
        """Newest version of a registered model, or the version that `name@version` or `name@alias` gives.

        Raises: NotFoundError, which lists models that are registered.
        """
        return self._database.read(_find_model, name)

    def set_alias(self, model: str, alias: str) -> tuple[ModelRecord, int | None]:
        """Let an alias mean a version of a model; returns that, and the version that it meant before.

        Raises: NotFoundError, as `get`; InputError for a word that cannot be an alias.
        """
        if not _ALIAS.fullmatch(alias):
            raise InputError(f"{alias!r} is no alias: a letter, then letters, digits, `-`, `_` or `.`, 60 at most")
        with self._database.connection(writing=True) as connection:
            record = _find_model(connection, model)
            before = find_row(connection, ALIASES, name=record.name, alias=alias)
            if before is None or before.version != record.version:
                values = {"name": record.name, "alias": alias, "version": record.version}
                upsert_rows(connection, ALIASES, [values], ("version", "set_at"))
            return record, before and before.version

    def remove_alias(self, name: str, alias: str) -> None:
        """Forget an alias of a model. Raises: NotFoundError."""
        with self._database.connection(writing=True) as connection:
            gone = delete(ALIASES).where(ALIASES.c.name == name, ALIASES.c.alias == alias)
            if not connection.execute(gone).rowcount:
                raise NotFoundError(f"{name} has no alias {alias!r}; see: orchestrator models list")

    def aliases(self) -> dict[tuple[str, int], list[str]]:
        """Aliases of each version, sorted, by the model's name and version."""
        found: dict[tuple[str, int], list[str]] = {}
        for row in self._database.rows(select(ALIASES).join(MODELS, IS_ITS_ALIAS).order_by(ALIASES.c.alias)):
            found.setdefault((row.name, row.version), []).append(row.alias)
        return found

    def of_run(self, *run_ids: str) -> list[ModelRecord]:
        """Models that a run registered, or several, newest first."""
        return self._database.read(_load_models, MODELS.c.run_id.in_(select_runs(run_ids)))

    def left_by(self, run: RunRecord) -> list[ModelRecord]:
        """Models that a run left, newest first: also one that another run had registered with the same weights.

        That one is known by its folder. A trial's belong to its sweep.
        """
        is_its: ColumnElement[bool] = MODELS.c.run_id == run.id
        if run.parent_id is None:
            is_its |= MODELS.c.folder == run.model_folder
        return self._database.read(_load_models, is_its)

    def count(self) -> int:
        """Number of the registered models, each version counted."""
        return int(self._database.scalar(select(func.count()).select_from(MODELS)))

    def table(self, *, limit: int | None = None, offset: int = 0) -> RecordTable:
        """Registered models, newest first, each with the task of the run that registered it."""
        check_page(limit, offset)
        columns = [*_COLUMNS, RUNS.c.task]
        page = select(*columns).outerjoin(RUNS, RUNS.c.key == MODELS.c.run_id).limit(limit).offset(offset)
        return record_table([column.key for column in columns], self._database.rows(page.order_by(*_NEWEST_FIRST)))


def _find_model(connection: Connection, name: str) -> ModelRecord:
    """The version that a name means. Raises: NotFoundError, which lists models that are registered."""
    for row in connection.execute(named_version(name).with_only_columns(*_COLUMNS)):
        return ModelRecord(*row)
    plain, _ = split_version(name)
    own = select(MODELS.c.version).where(MODELS.c.name == plain).order_by(MODELS.c.version.desc())
    if versions := connection.scalars(own.limit(MAX_CANDIDATES)).all():
        of_these = (ALIASES.c.name == plain) & ALIASES.c.version.in_(versions)
        aliases = connection.scalars(select(ALIASES.c.alias).where(of_these).order_by(ALIASES.c.alias))
        there = ", ".join(f"{plain}@{word}" for word in (*versions, *aliases))
        raise NotFoundError(f"No model {name!r} is registered; these are: {there}.")
    names = list(connection.scalars(select(MODELS.c.name).distinct().order_by(MODELS.c.name)))
    # A pipeline's models are called by it and their stage: `reviews/finetuning` for who says `reviews`.
    near = [other for other in names if other.startswith(f"{plain or name}/")] or nearest(plain or name, names, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    labels = newest_labels(connection)
    latest = f"the latest: {labels}" if labels else "there is none yet"
    raise NotFoundError(f"No model {name!r} is registered; {hint}{latest}.")


def _load_models(connection: Connection, *are: ColumnElement[bool], limit: int | None = None) -> list[ModelRecord]:
    newest = select(*_COLUMNS).where(*are).order_by(*_NEWEST_FIRST).limit(limit)
    return [ModelRecord(*row) for row in connection.execute(newest)]


def newest_labels(connection: Connection) -> str:
    """Names and versions of the newest models, for a message."""
    return ", ".join(record.label for record in _load_models(connection, limit=MAX_CANDIDATES))


def split_version(name: str) -> tuple[str, str | None]:
    """Split `name@version` or `name@alias` into the name and what follows; None where nothing does."""
    plain, at, version = name.rpartition("@")
    return (plain, version) if at else (name, None)


def named_version(name: str) -> Select[Any]:
    """Select the version that `name`, `name@version` or `name@alias` means: the newest one for a name alone."""
    plain, version = split_version(name)
    if version is not None and version.isdecimal() and len(version) < 10:
        return select(MODELS).where(MODELS.c.name == plain, MODELS.c.version == int(version))
    meant = select(ALIASES.c.version).where(ALIASES.c.name == plain, ALIASES.c.alias == version).scalar_subquery()
    is_aliased = and_(MODELS.c.name == plain, MODELS.c.version == meant)
    newest_first = select(MODELS).order_by(MODELS.c.version.desc()).limit(1)
    return newest_first.where(or_(MODELS.c.name == name, is_aliased))


def free_version(connection: Connection, name: str, wanted: int | None = None, taken: Collection[int] = ()) -> int:
    """A version of a name that was never given and is not taken: the one that is wanted, else the next one."""
    given = {*connection.scalars(select(ALL_MODELS.c.version).where(ALL_MODELS.c.name == name)), *taken}
    return max(given, default=0) + 1 if wanted is None or wanted in given else wanted
