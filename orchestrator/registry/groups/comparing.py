"""Comparison of groups, runs and trials by name, read in a session."""

from collections.abc import Sequence
from itertools import combinations

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from orchestrator.errors import InputError
from orchestrator.registry.engines.dialects import select_items
from orchestrator.registry.groups.example_comparison import compare_examples
from orchestrator.registry.groups.finding_groups import find_group
from orchestrator.registry.groups.group_comparison import Comparison, check_comparable, compare_groups
from orchestrator.registry.tables import RunRow
from orchestrator.run_states import RunState


def compare_named(session: Session, names: Sequence[str], state: ColumnElement[RunState]) -> list[Comparison]:
    """Compare what names stand for, as `Registry.compare` describes it."""
    groups = [find_group(session, name, state) for name in names]
    if len(groups) < 2:
        raise InputError("name at least two groups, runs or trials to compare: `orchestrator groups list` shows groups")
    for (one, first), (other, second) in combinations(zip(names, groups, strict=True), 2):
        if [run.id for run in first.runs] == [run.id for run in second.runs]:
            raise InputError(f"{one} and {other} are the same runs; name different ones")
    check_comparable(groups)
    ids = [run.id for group in groups for run in group.runs if run.is_scored]
    kept = select(RunRow.id, RunRow.predictions_path).where(RunRow.id.in_(select_items(session, ids)))
    predictions = {run_id: path for run_id, path in session.execute(kept) if path}
    places = combinations(range(len(groups)), 2)
    return compare_groups(
        groups, {(one, other): compare_examples(groups[one], groups[other], predictions) for one, other in places}
    )
