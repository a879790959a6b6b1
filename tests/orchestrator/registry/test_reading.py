"""Finding runs by a prefix, and the tables that come back.

pytest tests/orchestrator/registry/test_reading.py
"""

import pytest

from orchestrator.errors import NotFoundError, SeveralRunsError
from orchestrator.registry import Registry
from orchestrator.results import MetricEvent
from tests.orchestrator.registry.samples import new_run


def test_a_run_is_found_by_any_unique_beginning_of_its_id(registry: Registry) -> None:
    new_run(registry, run_id="abc111")
    new_run(registry, run_id="abd222")
    for prefix in ("abc1", "abc111", "ABC1"):
        assert registry.run(prefix).id == "abc111"


def test_a_whole_id_wins_over_a_longer_one(registry: Registry) -> None:
    new_run(registry, run_id="abc")
    new_run(registry, run_id="abcd")
    assert registry.run("abc").id == "abc"


def test_an_ambiguous_beginning_lists_the_candidates(registry: Registry) -> None:
    for run_id in ("abcd11", "abcd22"):
        new_run(registry, run_id=run_id, name=f"name of {run_id}")
    with pytest.raises(NotFoundError, match="abcd") as caught:
        registry.run("abcd")
    assert all(run_id in str(caught.value) for run_id in ("abcd11", "abcd22"))


def test_a_name_means_its_newest_run_before_anything_that_begins_so(registry: Registry) -> None:
    new_run(registry, name="c4", run_id="111111111111")
    new_run(registry, name="c4", run_id="222222222222")
    new_run(registry, name="wiki", run_id="c4a0c4a0c4a0")
    assert registry.run("c4").id == registry.find_run("c4").id == "222222222222"
    assert registry.run("c4a0").name == "wiki"


def test_three_characters_begin_no_id(registry: Registry) -> None:
    new_run(registry, run_id="abc111")
    with pytest.raises(NotFoundError, match="abc111"):
        registry.run("abc")


def test_a_name_that_another_id_begins_with_is_refused_with_both(registry: Registry) -> None:
    new_run(registry, name="face", run_id="111111111111")
    new_run(registry, name="wiki", run_id="face22222222")
    with pytest.raises(SeveralRunsError, match=r"111111111111.*face22222222"):
        registry.run("face")
    new_run(registry, name="c0ffee", run_id="c0ffee000000")
    assert registry.run("c0ffee").id == "c0ffee000000"  # both are the same run


def test_a_whole_id_is_that_run_whatever_others_are_called(registry: Registry) -> None:
    new_run(registry, run_id="111111111111")
    new_run(registry, name="111111111111", run_id="222222222222")
    assert registry.run("111111111111").id == "111111111111"


@pytest.mark.parametrize("prefix", ["x", "%", "_", "\\", "", "'"])
def test_a_beginning_that_no_id_has_lists_the_latest_runs(registry: Registry, prefix: str) -> None:
    with pytest.raises(NotFoundError, match="no run yet"):
        registry.run(prefix)
    new_run(registry, run_id="abc111")
    with pytest.raises(NotFoundError, match="the latest are: abc111"):
        registry.run(prefix)


def test_runs_have_a_column_per_metric_and_parameter(registry: Registry) -> None:
    run_id = new_run(registry, spec={"recipe": {"size": "tiny"}, "a": {"x": 1}, "b": {"x": None}}, tags=["b", "a"])
    new_run(registry, task="sst2", seed=3)
    registry.metrics.record(run_id, [MetricEvent(5, "validation", {"f1": 0.9}), MetricEvent(5, "test", {"f1": 0.8})])
    registry.metrics.record(run_id, [MetricEvent(5, "train", {"loss": 0.1})])
    frame = registry.runs(sort="created_at")
    assert list(frame.columns[-7:]) == [
        "tags", "metrics.f1", "metrics.test.f1", "metrics.train.loss", "params.a.x", "params.b.x", "params.size",
    ]  # fmt: skip
    first, second = frame.iloc[0], frame.iloc[1]
    assert (first["metrics.f1"], first["metrics.test.f1"], first["params.size"], first["tags"]) == (
        0.9,
        0.8,
        "tiny",
        "a, b",
    )
    assert (second["task"], second["seed"]) == ("sst2", 3)
    assert frame["metrics.f1"].isna().tolist() == [False, True]
    assert str(frame.created_at.dt.tz) == "UTC"


def test_tables_of_nothing_have_their_columns(registry: Registry) -> None:
    assert {"id", "name", "state", "created_at"} <= set(registry.runs().columns)
    for frame in (
        registry.trials.frame("x"),
        registry.metrics.history("x"),
        registry.models.frame(),
        registry.datasets.frame("x"),
    ):
        assert frame.empty
        assert len(frame.columns) > 4
