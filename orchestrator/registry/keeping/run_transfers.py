"""Runs of another registry, brought into this one: each with its trials and all that is recorded of them, or not.

A run that came from elsewhere has a tag `pulled:WHERE`. It is known here by its id: one that came before is replaced
by what it has become, one of this registry's own is never touched.
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import delete, func, or_, select
from sqlalchemy.orm import Session

from orchestrator.errors import InputError
from orchestrator.registry.database import Database
from orchestrator.registry.keeping.annotations import (
    Annotations,
    add_annotations,
    annotations_of,
    missing_annotations,
    of_runs,
)
from orchestrator.registry.keeping.run_families import bring_models, copy_family, family_digest, family_of, models_of
from orchestrator.registry.lineage.lineage import copy_edges
from orchestrator.registry.place_tags import PULLED
from orchestrator.registry.runs.inheritance import add_tags
from orchestrator.registry.tables import MetricPointRow, RunRow, TagRow


@dataclass(frozen=True)
class Transfer:
    """Outcome of bringing a run here."""

    run_id: str
    change: str
    """One of new, updated and unchanged."""
    renamed: dict[str, str] = field(default_factory=dict)
    """Models whose version was taken here by other weights: the label that each has here."""


def pulled_from(tags: Collection[str]) -> str | None:
    """Name the place that a run with these tags came from; None for one of this registry's own."""
    return next((tag.removeprefix(PULLED) for tag in tags if tag.startswith(PULLED)), None)


def is_same_record(one: str, other: str) -> bool:
    """Whether two digests of runs are of the same record, whatever the tags."""
    return one.partition("-")[0] == other.partition("-")[0]


class RunTransfers:
    """`registry.transfers`: tells what a run consists of, and brings runs of another registry here."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def digest(self, run_id: str) -> str:
        """Digest of all that is recorded of a run and its trials: the same in every registry that has the same.

        Its second part, after a hyphen, is of their tags, without those of runs that were pulled.
        """
        with self._database.session(writing=False) as session:
            tags = sorted((member, sorted(own)) for member, own in _tags(session, run_id).items())
            return f"{family_digest(session, run_id)}-{hashlib.sha256(repr(tags).encode()).hexdigest()[:8]}"

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
            return _pulled(session)

    def bring(self, run_id: str, source: "RunTransfers", place: str) -> Transfer:
        """Bring a run of another registry here, in one transaction, in place of what came of it before.

        Args:
            place: name of the place that it comes from.

        Raises: InputError, telling both, where this registry has another run of that id.
        """
        with source._database.session(writing=False) as there, self._database.session(writing=True) as here:
            known = here.get(RunRow, run_id)
            added = [_added(session, run_id) for session in (here, there)]
            if known is not None:
                is_equal = family_digest(here, run_id) == family_digest(there, run_id)
                is_pulled = run_id in _pulled(here, run_id)
                if is_equal and (not is_pulled or not any(missing_annotations(*added).values())):
                    return Transfer(run_id, "unchanged")
                _refuse_another(known, there.get_one(RunRow, run_id), place, is_pulled=is_pulled)
            here.execute(delete(RunRow).where(RunRow.id == run_id))
            here.expunge_all()
            family = copy_family(there, here, run_id)
            for each in added:  # what people added here, and there, stays
                add_annotations(here, missing_annotations(_added(here, run_id), of_runs(each, family)))
            add_tags(here, run_id, [f"{PULLED}{place}"])
            renamed = bring_models(there, here, models_of(there, family))
            copy_edges(there, here, run_id)
            return Transfer(run_id, "new" if known is None else "updated", renamed)


def _refuse_another(known: RunRow, other: RunRow, place: str, *, is_pulled: bool) -> None:
    """Refuse to replace a run by one that is not what has become of it. Raises: InputError."""
    if is_pulled and all(
        getattr(known, name) == getattr(other, name) for name in ("kind", "name", "created_at", "spec")
    ):
        return
    raise InputError(
        f"run {known.id} stays as it is: here it is {_told(known)}, {'' if is_pulled else 'not pulled from anywhere, '}"
        f"and at {place} it is {_told(other)}; pull into another --home to have both"
    )


def _told(run: RunRow) -> str:
    return f"{run.kind} {run.name} of {run.created_at:%Y-%m-%d %H:%M} ({run.state}, attempt {run.attempt})"


def _added(session: Session, run_id: str) -> Annotations:
    """Annotations of a run and its trials, without the tag that says where it came from."""
    found = annotations_of(session, family_of(session, run_id))
    own = {key: row for key, row in found[TagRow.__tablename__].items() if not row["tag"].startswith(PULLED)}
    return {**found, TagRow.__tablename__: own}


def _tags(session: Session, run_id: str) -> defaultdict[str, set[str]]:
    """Tags of a run and its trials, by their ids, without the one that says where they came from."""
    of_family = or_(RunRow.id == run_id, RunRow.parent_id == run_id)
    rows = session.execute(select(TagRow.run_id, TagRow.tag).join(RunRow, RunRow.id == TagRow.run_id).where(of_family))
    tags: defaultdict[str, set[str]] = defaultdict(set)
    for member, tag in rows:
        if not tag.startswith(PULLED):
            tags[member].add(tag)
    return tags


def _pulled(session: Session, run_id: str | None = None) -> dict[str, str]:
    """Name the place that each run came from that was pulled, by the run's id; of one run, where it is given."""
    statement = select(TagRow.run_id, TagRow.tag).where(TagRow.tag.startswith(PULLED))
    rows = session.execute(statement if run_id is None else statement.where(TagRow.run_id == run_id))
    return {pulled_id: tag.removeprefix(PULLED) for pulled_id, tag in rows}
