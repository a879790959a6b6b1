"""Measurements, checkpoints and data of runs. Alone: pytest tests/orchestrator/registry/test_run_results.py"""

from math import inf, isnan, nan

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.base.errors import RegistryError
from orchestrator.base.results import CheckpointEvent, DatasetResult, FileCount, MetricEvent, TokenizerResult
from orchestrator.registry import Registry
from tests.orchestrator.registry.samples import everything, new_run


def test_metrics_have_a_history_and_a_latest_value(registry: Registry) -> None:
    run_id = new_run(registry)
    events = [
        MetricEvent(step, "train", {"loss": 1.0 / step, "tokens_per_s": 100.0}, epoch=step / 4) for step in (1, 2, 3)
    ]
    assert registry.metrics.record(run_id, events) == 6
    registry.metrics.record(run_id, [MetricEvent(3, "validation", {"loss": 0.5})])
    assert registry.metrics.latest(run_id) == {"loss": 0.5, "train.loss": 1 / 3, "train.tokens_per_s": 100.0}
    history = registry.metrics.history(run_id, "train.loss").frame()
    assert list(history.step) == [1, 2, 3]
    assert list(history.value) == [1.0, 0.5, 1 / 3]
    assert list(history.epoch) == [0.25, 0.5, 0.75]
    assert len(registry.metrics.history(run_id, "loss").records) == 4
    assert len(registry.metrics.history(run_id).records) == 7


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(st.integers(1, 20), max_size=8), min_size=1, max_size=6))
def test_the_highest_step_is_the_latest_value_in_whatever_order_it_came(
    registry: Registry, batches: list[list[int]]
) -> None:
    run_id = new_run(registry)
    for batch in batches:
        registry.metrics.record(run_id, [MetricEvent(step, "train", {"loss": step / 10}) for step in batch])
    steps = {step for batch in batches for step in batch}
    assert registry.metrics.latest(run_id) == ({"train.loss": max(steps) / 10} if steps else {})
    assert registry.metrics.history(run_id).values("step") == sorted(steps)


def test_a_result_stands_over_what_was_reported_on_the_way(registry: Registry) -> None:
    run_id = new_run(registry)
    score = lambda step, value: MetricEvent(step, "validation", {"f1": value})  # noqa: E731
    registry.metrics.record(run_id, [score(10, 0.8), score(20, 0.9), score(30, 0.7)])
    registry.metrics.record(run_id, [score(20, 0.9)], final=True)
    registry.metrics.record(run_id, [score(30, 0.7)])
    assert registry.metrics.latest(run_id) == {"f1": 0.9}
    registry.metrics.record(run_id, [score(10, 0.8)], final=True)
    assert registry.metrics.latest(run_id) == {"f1": 0.8}


def test_a_loss_that_is_no_number_is_kept(registry: Registry) -> None:
    run_id = new_run(registry)
    registry.metrics.record(run_id, [MetricEvent(1, "train", {"a": nan, "b": inf, "c": -inf, "d": 5e-324})])
    latest = registry.metrics.latest(run_id)
    assert isnan(latest.pop("train.a"))
    assert latest == {"train.b": inf, "train.c": -inf, "train.d": 5e-324}
    assert list(registry.metrics.history(run_id).frame().value.isna()) == [True, False, False, False]
    assert isnan(registry.metrics.history(run_id, "train.a").values("value")[0])


def test_metrics_of_a_run_that_is_not_there_are_refused(registry: Registry) -> None:
    with pytest.raises(RegistryError, match="no such run"):
        registry.metrics.record("nothing", [MetricEvent(1, "train", {"loss": 0.1})])


@pytest.mark.parametrize("number", [1, 9, 10, 11, 99, 100, 101, 223])
def test_however_many_points_are_recorded_at_once_all_are_kept(registry: Registry, number: int) -> None:
    run_id = new_run(registry)
    events = [
        MetricEvent(step, "train", {"loss": step / 3, "gap": nan if step % 2 else -inf}, epoch=step / 7)
        for step in range(number)
    ]
    assert registry.metrics.record(run_id, events) == 2 * number
    registry.metrics.record(run_id, [MetricEvent(step, "test", {"loss": -step}) for step in range(number)])
    history = registry.metrics.history(run_id, "train.loss").frame()
    assert list(history.step) == list(range(number))
    assert list(history.value) == [step / 3 for step in range(number)]
    assert list(history.epoch) == [step / 7 for step in range(number)]
    assert list(registry.metrics.history(run_id, "train.gap").frame().value.isna()) == [
        step % 2 == 1 for step in range(number)
    ]
    assert registry.metrics.history(run_id, "test.loss").frame().epoch.isna().all()
    assert registry.metrics.latest(run_id)["train.loss"] == (number - 1) / 3


def test_a_step_that_comes_twice_at_once_keeps_its_last_value(registry: Registry) -> None:
    run_id = new_run(registry)
    steps = [*range(20), 19, 3]
    events = [MetricEvent(step, "train", {"loss": float(place)}, epoch=place) for place, step in enumerate(steps)]
    registry.metrics.record(run_id, events)
    history = registry.metrics.history(run_id).frame()
    assert dict(zip(history.step, history.value, strict=True)) == dict(zip(steps, range(22), strict=True))
    assert list(history.value) == list(history.epoch)
    assert registry.metrics.latest(run_id) == {"train.loss": 20.0}


def test_data_used_by_two_runs_is_one_dataset(registry: Registry) -> None:
    dataset = DatasetResult("wiki", "corpus", "f" * 64, "path", {"num_tokens": 5}, [FileCount("a.txt", 3, 1, 1)])
    runs = [new_run(registry) for _ in range(2)]
    for run_id in runs:
        registry.datasets.record(run_id, dataset)
        (row,) = registry.datasets.table(run_id).records
        assert (row["name"], row["counts"], row["files"][0]["num_bad_records"]) == ("wiki", {"num_tokens": 5}, 1)
    assert len(everything(registry)["datasets"]) == 1


def test_a_tokenizer_is_data_of_the_run_that_trained_it(registry: Registry) -> None:
    run_id = new_run(registry, kind="tokenizer")
    for _ in range(2):
        registry.datasets.record_tokenizer(run_id, TokenizerResult("folder", "f" * 64, 8_000))
    (row,) = registry.datasets.table(run_id).records
    assert (row["kind"], row["name"], row["path"], row["counts"], row["files"]) == (
        "tokenizer", "tokenizer", "folder", {"vocab_size": 8_000}, []
    )  # fmt: skip


def test_checkpoints_come_back_in_order(registry: Registry) -> None:
    run_id = new_run(registry)
    registry.checkpoints.record(run_id, [CheckpointEvent(20, "b", "d2", 2**40), CheckpointEvent(10, "a", "d1", 1)])
    found = [(each.step, each.path, each.num_bytes) for each in registry.checkpoints.of_run(run_id)]
    assert found == [(10, "a", 1), (20, "b", 2**40)]
