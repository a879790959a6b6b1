"""Version of a registered model that a name means: one rule for who uses a model, and for lineage."""

from datetime import datetime

from sqlalchemy import Select, and_, exists, or_, select

from orchestrator.registry.keeping_tables import AliasRow
from orchestrator.registry.place_tags import PULLED
from orchestrator.registry.tables import ModelRow, TagRow


def split_version(name: str) -> tuple[str, str | None]:
    """Split `name@version` or `name@alias` into the name and what follows; None where nothing does."""
    plain, at, version = name.rpartition("@")
    return (plain, version) if at else (name, None)


def is_number(version: str | None) -> bool:
    """Whether what follows a model's name is the number of a version, rather than an alias."""
    return version is not None and version.isdecimal() and len(version) < 10


def named_version(name: str, before: datetime | None = None) -> Select[ModelRow]:
    """Select the version that `name`, `name@version` or `name@alias` means: the newest, of this registry's own first.

    A name alone means a version of a pulled run only where this registry has none of its own.

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
    is_pulled = exists().where(TagRow.run_id == ModelRow.run_id, TagRow.tag.startswith(PULLED))
    return select(ModelRow).where(condition).order_by(is_pulled, ModelRow.version.desc()).limit(1)
