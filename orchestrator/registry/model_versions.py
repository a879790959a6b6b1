"""Versions of registered models: the one that a name means, for who uses a model and for lineage, and their numbers.

A number means the same weights for good, also when its model was removed: specs and lineage that name it stay true.
"""

from datetime import datetime

from sqlalchemy import Select, and_, or_, select
from sqlalchemy.orm import Session

from orchestrator.registry.keeping_tables import AliasRow
from orchestrator.registry.tables import ModelRow, StoredModel


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
