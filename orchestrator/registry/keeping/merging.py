"""Merging: what another registry has, joined to this one. No value that is here is ever replaced by another.

    run            new here: copied with its trials · the same: stays, and their tags, notes and flags are joined
                   another one of that id: a conflict, named with the tables that differ, and left as it is · in the
                   trash here: named, and left there
    model          weights that are new under their name: recorded, with a new version where theirs is taken, or was;
                   numbers that removed models had there are given to none here
    alias          new here: recorded · on other weights: a conflict
    other rows     by their primary key: new ones are copied, different ones are a conflict; a row whose run was removed
                   here, and is here again, names it again

Each run is one transaction. So a merge that breaks off is done again, and one that is done again changes nothing. What
is in the other's trash stays there.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import RowMapping, Table, select, update
from sqlalchemy.orm import Session

from orchestrator.errors import InputError, RegistryError
from orchestrator.registry.database import Database
from orchestrator.registry.engines.dialects import upsert
from orchestrator.registry.groups.roll_up import roll_up_tests
from orchestrator.registry.keeping.run_families import (
    add_annotations,
    annotations_of,
    bring_models,
    bring_row,
    copy_family,
    family_digests,
    family_of,
    is_registered,
    missing_annotations,
    models_of,
    shared_keys,
    tables_of_runs,
    version_here,
)
from orchestrator.registry.keeping_tables import ANNOTATIONS, AliasRow
from orchestrator.registry.tables import BaseRow, ModelRow, NameRow, RunRow, StoredModel, StoredRun

_WITH_RULES = {table.__tablename__ for table in (StoredRun, StoredModel, AliasRow, NameRow)}


@dataclass(frozen=True)
class Merged:
    """Outcome, or expected outcome, of bringing one thing that the other registry has."""

    what: str
    """`run`, `model`, `alias`, or the name of a table."""
    id: str
    name: str
    change: str
    """One of new, joined, unchanged, conflict, unfinished and removed."""
    remark: str = ""


def merge_registry(
    target: Database,
    source: Database,
    *,
    unfinished: bool = False,
    dry_run: bool = False,
) -> Iterator[Merged]:
    """Join what `source` has to `target`; yields what became of each thing as soon as it is there.

    Args:
        unfinished: whether runs come along that have not ended there; they would differ from what becomes of them.
        dry_run: only tell what would become of each.
    """
    coming: set[tuple[str, str]] = set()
    with source.session(writing=False) as there:
        oldest_first = select(RunRow.id).where(RunRow.parent_id.is_(None)).order_by(RunRow.created_at, RunRow.id)
        for run_id in list(there.scalars(oldest_first)):
            with target.session(writing=not dry_run) as here:
                merged = _merge_run(there, here, run_id, unfinished=unfinished, dry_run=dry_run)
            yield merged  # it is there for good
            if merged.change in ("new", "joined", "unchanged"):
                coming |= {(model.name, model.digest) for model in models_of(there, family_of(there, run_id))}
            there.expunge_all()
        with target.session(writing=not dry_run) as here:
            orphans = select(ModelRow.name, ModelRow.digest).where(ModelRow.run_id.is_(None))
            coming |= {(name, digest) for name, digest in there.execute(orphans)}
            rest = [*_merge_models(there, here, dry_run=dry_run)]
            if not dry_run:
                _keep_numbers(there, here)
            rest += _merge_aliases(there, here, coming, dry_run=dry_run)
            for table in other_tables():
                rest += _merge_rows(there, here, table, dry_run=dry_run)
            if not dry_run:
                roll_up_tests(here)
        yield from rest


def open_other(target: Database, location: str) -> Database:
    """Open another registry, by what `Registry` takes, for reading alone.

    Raises: RegistryError where there is none; InputError where it is the target itself.
    """
    other = Database(location, read_only=True)
    paths = [Path(str(url.database)) for url in (target.url, other.url) if url.get_backend_name() == "sqlite"]
    is_same_file = len(paths) == 2 and all(path.exists() for path in paths) and paths[0].samefile(paths[1])
    if is_same_file or other.url == target.url:
        raise InputError(f"{target} is the registry itself; name another one")
    if other.current_revision() is None:
        raise RegistryError(f"There is no registry at {other}; check the path.")
    other.open()  # which refuses another revision
    return other


def other_tables() -> list[Table]:
    """Tables without a rule of their own: their rows are joined by primary key."""
    known = {*_WITH_RULES, *ANNOTATIONS, *(table.name for table in tables_of_runs())}
    tables = BaseRow.metadata.sorted_tables
    return [table for table in tables if table.name not in known and not table.info.get("is_derived")]


def _merge_run(there: Session, here: Session, run_id: str, *, unfinished: bool, dry_run: bool) -> Merged:
    other, known = there.get_one(RunRow, run_id), here.get(RunRow, run_id)
    merged = ("run", run_id, other.name)
    if known is None and here.get(StoredRun, run_id) is not None:
        remark = f"it is in the trash here; to bring it back: orchestrator runs restore {run_id}"
        return Merged(*merged, "removed", remark)
    if known is not None:
        ours, theirs = family_digests(here, run_id), family_digests(there, run_id)
        if differing := [name for name in ours if ours[name] != theirs[name]]:
            return Merged(*merged, "conflict", f"both have a run of this id, and differ in {', '.join(differing)}")
    if known is None and not other.state.is_final and not unfinished:
        return Merged(*merged, "unfinished", f"it is {other.state} there; merge again when it has ended")
    family = family_of(there, run_id)
    missing = missing_annotations(annotations_of(here, family), annotations_of(there, family))
    renamed = _renamed(there, here, family)
    if not dry_run:
        if known is None:
            copy_family(there, here, run_id)
        renamed = bring_models(there, here, models_of(there, family))
        add_annotations(here, missing)
    joined = "joined" if any(missing.values()) else "unchanged"
    remark = "; ".join(f"model {theirs} is {ours} here" for theirs, ours in renamed.items())
    return Merged(*merged, "new" if known is None else joined, remark)


def _renamed(there: Session, here: Session, run_ids: Collection[str]) -> dict[str, str]:
    """New labels that models of runs would have here."""
    labels = {}
    for model in models_of(there, run_ids):
        version = version_here(here, model)
        if version != model.version and not is_registered(here, model):
            labels[f"{model.name}@{model.version}"] = f"{model.name}@{version}"
    return labels


def _merge_models(there: Session, here: Session, *, dry_run: bool) -> Iterator[Merged]:
    """Models that belong to no run; those of runs come with them."""
    orphans = select(ModelRow).where(ModelRow.run_id.is_(None)).order_by(ModelRow.name, ModelRow.version)
    for model in list(there.scalars(orphans)):
        if is_registered(here, model):
            continue
        label = f"{model.name}@{version_here(here, model)}"
        if not dry_run:
            bring_models(there, here, [model])
        theirs = f"{model.name}@{model.version}"
        yield Merged("model", label, model.name, "new", "" if label == theirs else f"model {theirs} is {label} here")


def _keep_numbers(there: Session, here: Session) -> None:
    """Note the numbers of models that were removed there: specs that come from there mean those weights."""
    for model in list(there.scalars(select(StoredModel).where(StoredModel.removed_at.is_not(None)))):
        values = {column.key: getattr(model, column.key) for column in StoredModel.__table__.columns}
        here.execute(upsert(here.get_bind().dialect.name, StoredModel.__table__, ()), [{**values, "run_id": None}])


def _merge_aliases(
    there: Session, here: Session, coming: Collection[tuple[str, str]], *, dry_run: bool
) -> Iterator[Merged]:
    """Join aliases.

    Args:
        coming: models that have come, or would, by name and digest.
    """
    is_its = (ModelRow.name == AliasRow.name) & (ModelRow.version == AliasRow.version)
    with_weights = select(AliasRow, ModelRow.digest).join(ModelRow, is_its).order_by(AliasRow.name, AliasRow.alias)
    for alias, digest in there.execute(with_weights).all():
        same = (ModelRow.name == alias.name) & (ModelRow.digest == digest)
        version, own = here.scalar(select(ModelRow.version).where(same)), here.get(AliasRow, (alias.name, alias.alias))
        merged = ("alias", f"{alias.name}@{alias.alias}", alias.name)
        if own is not None and own.version != version:
            remark = f"here it is {own.name}@{own.version}, there other weights, {alias.name}@{alias.version}"
            yield Merged(*merged, "conflict", f"{remark}; to move it: orchestrator models alias")
        elif own is None and version is None and (alias.name, digest) not in coming:
            yield Merged(*merged, "conflict", f"its model, {alias.name}@{alias.version}, does not come")
        elif own is None:
            if not dry_run:
                here.add(AliasRow(name=alias.name, alias=alias.alias, version=version, set_at=alias.set_at))
            yield Merged(*merged, "new", f"it is {alias.name}@{version or alias.version}")


def _merge_rows(there: Session, here: Session, table: Table, *, dry_run: bool) -> Iterator[Merged]:
    keys, with_runs = [column.name for column in table.primary_key], _needed_by_runs(there, table)
    for row in there.execute(select(table).order_by(*table.primary_key)).mappings().all():
        key = {name: row[name] for name in keys}
        own = here.execute(select(table).where(*(table.c[name] == key[name] for name in keys))).mappings().first()
        merged = (table.name, " ".join(map(str, key.values())), str(row.get("name", "")))
        if own is None and tuple(key.values()) in with_runs:
            continue
        if own is None:
            if not dry_run:
                bring_row(there, here, table, key)
            yield Merged(*merged, "new")
        elif _is_relinked(here, own, row):
            if not dry_run:
                here.execute(
                    update(table).where(*(table.c[name] == key[name] for name in keys)).values(run_id=row["run_id"])
                )
            yield Merged(*merged, "joined")
        elif differing := [name for name in row if row[name] != own[name] and name not in _OF_THIS_PLACE]:
            yield Merged(*merged, "conflict", f"they differ in {', '.join(differing)}")


def _needed_by_runs(there: Session, table: Table) -> set[tuple[object, ...]]:
    """Keys of the rows that come with the runs that need them."""
    keys: set[tuple[object, ...]] = set()
    for owned in tables_of_runs():
        for key in shared_keys(owned):
            if key.shared is table:
                keys.update(map(tuple, there.execute(select(*(owned.c[name] for name in key.columns)).distinct())))
    return keys


def _is_relinked(here: Session, own: RowMapping, row: RowMapping) -> bool:
    """Whether a row has lost its run here, as lineage does when that is removed, and names one there that is here."""
    if "run_id" not in row or row["run_id"] is None:
        return False
    is_lost = own["run_id"] is None or here.get(RunRow, own["run_id"]) is None
    return is_lost and here.get(RunRow, row["run_id"]) is not None


_OF_THIS_PLACE = (
    *("path", "files", "recorded_at", "created_at", "name", "child_name", "parent_name", "run_id"),
    "tokenizer_digest",  # the fingerprint follows from it
)
"""Columns that say where something lies and when it was seen, which two machines may tell differently of the same."""
