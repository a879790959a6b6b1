"""Tables of plain values, and the DataFrames that are made of them.

Alone: .venv/bin/pytest tests/orchestrator/registry/test_record_table.py
"""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.registry import Registry
from orchestrator.registry.record_table import RecordTable, record_table
from orchestrator.results import MetricEvent
from tests.orchestrator.registry.samples import new_run


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    """An empty registry."""
    return Registry(str(tmp_path / "registry.sqlite"))


def test_a_value_that_a_record_lacks_is_none() -> None:
    table = RecordTable(["a", "b"], [{"a": 1, "b": 2}, {"a": 3}])
    assert table.values("b") == [2, None]


def test_a_frame_has_the_columns_in_order_and_their_dtypes() -> None:
    table = record_table(["value", "recorded_at"], [(None, datetime(2026, 1, 1, tzinfo=UTC))], value="float64")
    frame = table.frame()
    assert list(frame.columns) == ["value", "recorded_at"]
    assert str(frame["value"].dtype) == "float64"
    assert str(frame["recorded_at"].dt.tz) == "UTC"


def test_a_measurement_that_is_not_a_number_is_none_and_nan_in_a_frame(registry: Registry) -> None:
    run_id = new_run(registry)
    registry.metrics.record(run_id, [MetricEvent(1, "train", {"loss": float("nan")})])
    assert registry.metrics.history_table(run_id).values("value") == [None]
    assert registry.metrics.history(run_id)["value"].isna().all()
