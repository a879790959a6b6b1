"""Conflicts over a run: what differs is named, first things first, and never at length.

pytest tests/orchestrator/registry/keeping/test_run_conflicts.py
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert, update

from orchestrator.registry import Registry
from orchestrator.registry.keeping.merging import merge_registry
from orchestrator.registry.keeping.run_conflicts import run_conflict
from orchestrator.registry.tables import CheckpointRow, MetricPointRow, MetricRow, ParameterRow, RunRow
from orchestrator.registry.trial_rows import trial_id
from orchestrator.run_states import RunState
from tests.orchestrator.registry.full_registries import A_TIME, fill_every_table

RUN = "a" * 12


@pytest.fixture
def both(registry: Registry, tmp_path: Path) -> Iterator[tuple[Registry, Registry]]:
    """Two registries with the same run: here (SQLite and PostgreSQL), and there."""
    with Registry(str(tmp_path / "there.sqlite")) as there:
        fill_every_table(there)
        list(merge_registry(registry._database, there._database))
        assert conflict((registry, there)) == ""
        yield registry, there


def conflict(both: tuple[Registry, Registry]) -> str:
    here, there = (registry._database for registry in both)
    with here.session(writing=False) as ours, there.session(writing=False) as theirs:
        return run_conflict(theirs, ours, RUN).partition("they differ in ")[2]


def change(both: tuple[Registry, Registry], *statements: Any) -> None:
    """Change the run as it is there."""
    with both[1]._database.session(writing=True) as session:
        for statement in statements:
            session.execute(statement)


def of_run(row: Any, run_id: str = RUN) -> Any:
    return update(row).where((row.id if row is RunRow else row.run_id) == run_id)


def test_columns_of_a_run_are_named_with_both_values_where_these_are_short(both: tuple[Registry, Registry]) -> None:
    change(both, of_run(RunRow).values(state=RunState.FAILED, error="CUDA out of memory on card 3"))
    assert conflict(both) == "runs: state (COMPLETED here, FAILED there), error"


def test_what_is_beyond_the_first_three_is_counted(both: tuple[Registry, Registry]) -> None:
    change(both, of_run(RunRow).values(task="x", metric="y", seed=3, attempt=7, pid=1))
    assert conflict(both).endswith(" and 2 more")


def test_parameters_and_metrics_are_named_by_path_and_name(both: tuple[Registry, Registry]) -> None:
    change(both, of_run(ParameterRow).where(ParameterRow.leaf == "learning_rate").values(text="0.25", number=0.25))
    change(both, of_run(MetricRow).where(MetricRow.name == "loss").values(value=2.25))
    assert conflict(both) == (
        "parameters: recipe.learning_rate (0.1 here, 0.25 there); metrics: train loss (2.5 here, 2.25 there)"
    )


def test_a_row_of_one_side_is_told_as_such(both: tuple[Registry, Registry]) -> None:
    change(both, delete(MetricRow).where(MetricRow.run_id == RUN, MetricRow.name == "tiny"))
    checkpoint = {"run_id": RUN, "path": "p", "digest": "d", "num_bytes": 1, "recorded_at": A_TIME}
    change(both, insert(CheckpointRow).values(step=5, **checkpoint))
    assert conflict(both) == "metrics: train tiny (only here); checkpoints: step 5 (only there)"


def test_many_points_of_a_measurement_are_named_once(both: tuple[Registry, Registry]) -> None:
    change(both, of_run(MetricPointRow).where(MetricPointRow.name == "loss").values(value=9.0))
    assert conflict(both) == "metric points: train loss"


def test_a_difference_of_a_trial_is_named_without_values(both: tuple[Registry, Registry]) -> None:
    change(both, of_run(MetricRow, trial_id(RUN, "k0")).values(value=0.75))
    assert conflict(both) == "metrics: trials' validation f1"


def test_a_trial_of_one_side_is_named_and_its_rows_are_not(both: tuple[Registry, Registry]) -> None:
    change(both, delete(RunRow).where(RunRow.id == trial_id(RUN, "k1")))
    assert conflict(both) == "runs: trial 1 (only here)"


def test_a_difference_too_small_to_be_seen_is_told_without_values(both: tuple[Registry, Registry]) -> None:
    change(both, of_run(MetricRow).where(MetricRow.name == "loss").values(value=2.5 + 1e-12))
    assert conflict(both) == "metrics: train loss"


def test_what_differs_in_a_trial_is_named_where_the_run_has_another_name(both: tuple[Registry, Registry]) -> None:
    change(both, of_run(RunRow).values(name="another"), of_run(RunRow, trial_id(RUN, "k0")).values(name="other"))
    here, there = (registry._database for registry in both)
    with here.session(writing=False) as ours, there.session(writing=False) as theirs:
        assert "they differ in runs: trials' name" in run_conflict(theirs, ours, RUN)


def test_a_name_that_differs_is_told_once(both: tuple[Registry, Registry]) -> None:
    change(both, of_run(RunRow).values(name="another"))
    here, there = (registry._database for registry in both)
    with here.session(writing=False) as ours, there.session(writing=False) as theirs:
        told = run_conflict(theirs, ours, RUN)
    assert told.startswith("here it is sweep söme")
    assert ", there sweep another of " in told
    assert "they differ in" not in told
