"""Values that runs have from the run that they belong to, so that queries find them too.

    trials of a sweep      its tags and its data
    stages of a pipeline   its tags, and so have their trials; a stage that several pipelines use has the tags of all

Tags that say where a run itself belongs stay with it: a pipeline finds its stages by them.
"""

from collections.abc import Collection, Sequence
from functools import lru_cache

from sqlalchemy import Integer, bindparam, delete, select, type_coerce
from sqlalchemy.orm import InstrumentedAttribute, Session

from orchestrator.registry.engines.dialects import select_runs, upsert_rows
from orchestrator.registry.engines.write_transactions import Prepared, WriteTransaction
from orchestrator.registry.place_tags import OF_ONE_RUN, PIPELINE, is_of_one_run
from orchestrator.registry.tables import RunDatasetRow, RunRow, TagRow


def inherit(transaction: WriteTransaction, sweep: int, trials: Collection[int]) -> None:
    """Give new trials the tags and the data that their sweep has by now; all by their keys."""
    for column in (TagRow.tag, RunDatasetRow.fingerprint) if trials else ():
        rows = transaction.read(_values_statement(column, transaction.dialect), {"key": sweep})
        own = [value for (value,) in rows if not value.startswith(OF_ONE_RUN)]
        columns = {"run_id": [trial for trial in trials for _ in own], column.key: own * len(trials)}
        transaction.upsert(column.class_.__table__, columns, [*columns], [])


@lru_cache
def _values_statement(column: InstrumentedAttribute[str], dialect: str) -> Prepared:
    """Read what a run has in a column."""
    is_its = type_coerce(column.class_.run_id, Integer) == bindparam("key", type_=Integer)
    return Prepared(select(column).where(is_its), dialect, ["key"])


def add_tags(session: Session, run_id: str, tags: Sequence[str]) -> list[str]:
    """Add tags to a run, and those that it inherits by them; one that it has already changes nothing. Returns all."""
    tags = _with_tags_of_pipelines(session, tags)
    upsert_rows(session, TagRow, ("run_id", "tag"), (), [{"run_id": run_id, "tag": tag} for tag in tags])
    return tags


def _with_tags_of_pipelines(session: Session, tags: Sequence[str]) -> list[str]:
    """Tags that a run gets, and those that it inherits by them: where one makes it a stage, its pipeline's own."""
    pipelines = [tag.removeprefix(PIPELINE) for tag in tags if tag.startswith(PIPELINE)]
    return list(dict.fromkeys([*tags, *_tags_to_inherit(session, pipelines)]))


def pass_on(session: Session, run_id: str, *, tags: Sequence[str] = (), data: Sequence[str] = ()) -> None:
    """Give tags and data, which a run has just got, to its trials; the tags of a pipeline to its stages and theirs."""
    _add(session, _trials_of(session, [run_id]), tags, data)
    stages = _stages_of(session, run_id)
    _add(session, [*stages, *_trials_of(session, stages)], tags, ())


def take_back(session: Session, run_id: str, tags: Sequence[str]) -> None:
    """Take tags, which a run has just lost, from its trials, its stages and theirs.

    A stage keeps what its own spec gives it, and what another pipeline does that uses it.
    """
    _take(session, _trials_of(session, [run_id]), tags)
    for stage in _stages_of(session, run_id):
        own = select(TagRow.tag).where(TagRow.run_id == stage, TagRow.tag.startswith(PIPELINE))
        others = [tag.removeprefix(PIPELINE) for tag in session.scalars(own) if tag != f"{PIPELINE}{run_id}"]
        kept = {*_tags_to_inherit(session, others), *(session.get_one(RunRow, stage).spec.get("tags") or ())}
        _take(session, [stage, *_trials_of(session, [stage])], [tag for tag in tags if tag not in kept])


def _tags_to_inherit(session: Session, run_ids: Sequence[str]) -> list[str]:
    if not run_ids:
        return []
    of_runs = select(TagRow.tag).join(RunRow, RunRow.key == TagRow.run_id).where(RunRow.id.in_(run_ids))
    tags = session.scalars(of_runs.order_by(TagRow.tag))
    return [tag for tag in tags if not is_of_one_run(tag)]


def _trials_of(session: Session, run_ids: Sequence[str]) -> Sequence[str]:
    return session.scalars(select(RunRow.id).where(RunRow.parent_id.in_(run_ids))).all() if run_ids else []


def _stages_of(session: Session, run_id: str) -> Sequence[str]:
    stages = select(RunRow.id).join(TagRow, TagRow.run_id == RunRow.key)
    return session.scalars(stages.where(TagRow.tag == f"{PIPELINE}{run_id}")).all()


def _take(session: Session, run_ids: Sequence[str], tags: Sequence[str]) -> None:
    taken = delete(TagRow).where(TagRow.run_id.in_(select_runs(session, run_ids)), TagRow.tag.in_(tags))
    session.execute(taken.execution_options(synchronize_session=False))


def _add(session: Session, run_ids: Collection[str], tags: Sequence[str], data: Sequence[str]) -> None:
    own = [tag for tag in tags if not is_of_one_run(tag)]
    tag_rows = [{"run_id": run_id, "tag": tag} for run_id in run_ids for tag in own]
    upsert_rows(session, TagRow, ("run_id", "tag"), (), tag_rows)
    links = [{"run_id": run_id, "fingerprint": fingerprint} for run_id in run_ids for fingerprint in data]
    upsert_rows(session, RunDatasetRow, ("run_id", "fingerprint"), (), links)
