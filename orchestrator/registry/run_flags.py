"""Flags of runs, and the runs that a flag reaches beside the one that has it.

    of a sweep      its trials
    of a pipeline   its stages and their trials. A stage that several pipelines use is pinned as soon as one of them is,
                    and archived when all of them are: it is put away when nothing that is shown uses it any more

A flag is written to the run alone that a person names, and its reach is found when it is read. So a stage that was
archived by itself stays so whatever becomes of its pipeline, and a stage that begins later is reached as well.
Pipelines that have been removed do not count.
"""

from functools import cache
from typing import Literal

from sqlalchemy import ColumnElement, CompoundSelect, Select, and_, exists, func, literal, or_, select, union
from sqlalchemy.orm import Session, aliased

from orchestrator.registry.keeping_tables import FlagRow
from orchestrator.registry.place_tags import PIPELINE
from orchestrator.registry.tables import RunRow, TagRow

Flag = Literal["pinned", "archived"]


@cache
def is_flagged(flag: Flag) -> ColumnElement[bool]:
    """Condition for runs that a flag reaches; made once, since making it costs as much as a page of a list."""
    run_or_sweep = func.coalesce(RunRow.parent_id, RunRow.key)
    return or_(RunRow.key.in_(_own(flag)), run_or_sweep.in_(_reached(flag)))


def flagged_ids(session: Session, flag: Flag) -> set[str]:
    """Ids of the runs that a flag reaches."""
    return set(session.scalars(select_flagged(flag)))


def is_any_flagged(session: Session, flag: Flag) -> bool:
    """Whether any run has a flag: a condition on flags takes longer than all else that a board asks."""
    return session.scalar(select(exists().where(FlagRow.flag == flag))) is True


@cache
def select_flagged(flag: Flag) -> Select[str]:
    """Statement for the ids of the runs that a flag reaches, by indexes: of all runs few have flags."""
    reached = _reached(flag)
    return select(RunRow.id).where(or_(RunRow.key.in_(reached), RunRow.parent_id.in_(reached)))


def flag_bearers(session: Session, run_id: str, flag: Flag) -> list[str]:
    """Ids of the runs whose flag reaches a run: itself first, then its sweep, then pipelines; none where none does."""
    row = session.execute(select(RunRow.parent_id).where(RunRow.id == run_id, is_flagged(flag))).first()
    if row is None:
        return []
    (parent,) = row
    family = [run_id] if parent is None else [run_id, parent]
    tags = select(TagRow.tag).where(TagRow.run_id.in_(family), TagRow.tag.startswith(PIPELINE)).order_by(TagRow.tag)
    candidates = [*family, *(tag.removeprefix(PIPELINE) for tag in session.scalars(tags))]
    flagged = set(session.scalars(_own(flag).where(FlagRow.run_id.in_(candidates))))
    return [candidate for candidate in candidates if candidate in flagged]


def _own(flag: Flag) -> Select[str]:
    return select(FlagRow.run_id).join(RunRow, RunRow.key == FlagRow.run_id).where(FlagRow.flag == flag)


def _reached(flag: Flag) -> CompoundSelect[str]:
    """Statement that selects the runs with a flag and the stages that it reaches, without trials."""
    stage = aliased(TagRow)
    tags = _own(flag).with_only_columns(literal(PIPELINE) + RunRow.id)
    stages = select(stage.run_id).where(stage.tag.in_(tags))
    if flag == "archived":
        use, pipeline = aliased(TagRow), aliased(RunRow)
        is_its = and_(use.run_id == stage.run_id, use.tag.startswith(PIPELINE))
        is_used = pipeline.id == func.substr(use.tag, len(PIPELINE) + 1)
        is_shown = pipeline.key.not_in(_own(flag))
        stages = stages.where(~exists().where(is_its, is_used, is_shown).correlate(stage))
    return union(_own(flag), stages)
