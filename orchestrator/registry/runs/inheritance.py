"""Values that a sweep's trials have from their sweep: its tags and its data, so that queries find the trials too.

Tags that say where a run itself belongs stay with it: a pipeline finds its stages by them.
"""

from collections.abc import Collection, Sequence
from functools import lru_cache

from sqlalchemy import Text, bindparam, delete, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from orchestrator.registry.engines.dialects import upsert, upsert_rows
from orchestrator.registry.engines.driver_statements import DriverStatement
from orchestrator.registry.engines.write_transactions import WriteTransaction
from orchestrator.registry.tables import RunDatasetRow, RunRow, TagRow

PIPELINE = "pipeline:"
"""Beginning of the tag of a pipeline's stage; the pipeline's id follows."""
INPUTS = "inputs:"
"""Beginning of the tag of a stage that tells what it works on; a digest follows."""
PULLED = "pulled:"
"""Beginning of the tag of a run that came from elsewhere; the place follows."""
REPRODUCES = "reproduces:"
"""Beginning of the tag of a run that makes another one again; that one's id follows."""
OF_ONE_RUN = (PIPELINE, INPUTS, PULLED, REPRODUCES)
"""Beginnings of the tags that say where a run itself belongs: no trial inherits them, and nobody sets or takes them."""


def is_of_one_run(tag: str) -> bool:
    """Whether a tag says where a run itself belongs, so that no other run is to have it."""
    return tag.startswith(OF_ONE_RUN)


def inherit(transaction: WriteTransaction, sweep_id: str, trial_ids: Collection[str]) -> None:
    """Give new trials the tags and the data that their sweep has by now."""
    if not trial_ids:
        return
    for column in (TagRow.tag, RunDatasetRow.fingerprint):
        read, write = _statements(column, transaction.dialect)
        own = [value for (value,) in transaction.read(read, (sweep_id,)) if not value.startswith(OF_ONE_RUN)]
        transaction.run_many(write, [(trial, value) for trial in trial_ids for value in own])


@lru_cache
def _statements(column: InstrumentedAttribute[str], dialect: str) -> tuple[DriverStatement, DriverStatement]:
    """Statements that read what a run has in a column, and that give a run such a value."""
    table, names = column.class_.__table__, ("run_id", column.key)
    read = select(column).where(column.class_.run_id == bindparam("run_id", type_=Text))
    return DriverStatement(read, dialect, ("run_id",)), DriverStatement(upsert(dialect, table, names), dialect, names)


def pass_on(session: Session, run_id: str, *, tags: Sequence[str] = (), data: Sequence[str] = ()) -> None:
    """Give tags and data, which a run has just got, to the trials that it has already."""
    trial_ids = session.scalars(select(RunRow.id).where(RunRow.parent_id == run_id)).all()
    _add(session, trial_ids, tags, data)


def take_back(session: Session, run_id: str, tags: Sequence[str]) -> None:
    """Take tags, which a run has just lost, from its trials."""
    of_it = select(RunRow.id).where(RunRow.parent_id == run_id)
    taken = delete(TagRow).where(TagRow.run_id.in_(of_it), TagRow.tag.in_(tags))
    session.execute(taken.execution_options(synchronize_session=False))


def _add(session: Session, trial_ids: Collection[str], tags: Sequence[str], data: Sequence[str]) -> None:
    own = [tag for tag in tags if not tag.startswith(OF_ONE_RUN)]
    tag_rows = [{"run_id": trial, "tag": tag} for trial in trial_ids for tag in own]
    upsert_rows(session, TagRow, ("run_id", "tag"), (), tag_rows)
    links = [{"run_id": trial, "fingerprint": fingerprint} for trial in trial_ids for fingerprint in data]
    upsert_rows(session, RunDatasetRow, ("run_id", "fingerprint"), (), links)
