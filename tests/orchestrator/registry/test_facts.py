"""What runs did: metrics, parameters, checkpoints, data, models, each recorded once however often it is reported.

pytest tests/orchestrator/registry/test_facts.py
"""

from math import inf, isnan, nan
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import NotFoundError, RegistryError
from orchestrator.registry import Registry
from orchestrator.results import CheckpointEvent, DatasetResult, FileCount, MetricEvent
from tests.orchestrator.registry.samples import everything, model_result, new_run, trial_result

HOSTILE_NAMES = [
    "🤖 émoji",
    "x" * 300,
    "two\nlines\ttab",
    'it\'s "quoted"; DROP TABLE runs; --',
    "../../etc",
    "%_\\",
    "a\0b",
    "\udc80 not UTF-8",
    "",
    " ",
]


def test_metrics_have_a_history_and_a_latest_value(registry: Registry) -> None:
    run_id = new_run(registry)
    events = [
        MetricEvent(step, "train", {"loss": 1.0 / step, "tokens_per_s": 100.0}, epoch=step / 4) for step in (1, 2, 3)
    ]
    assert registry.record_metrics(run_id, events) == 6
    registry.record_metrics(run_id, [MetricEvent(3, "validation", {"loss": 0.5})])
    assert registry.latest_metrics(run_id) == {"loss": 0.5, "train.loss": 1 / 3, "train.tokens_per_s": 100.0}
    history = registry.metrics(run_id, "train.loss")
    assert list(history.step) == [1, 2, 3]
    assert list(history.value) == [1.0, 0.5, 1 / 3]
    assert list(history.epoch) == [0.25, 0.5, 0.75]
    assert len(registry.metrics(run_id, "loss")) == 4
    assert len(registry.metrics(run_id)) == 7


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(st.integers(1, 20), max_size=8), min_size=1, max_size=6))
def test_the_highest_step_is_the_latest_value_in_whatever_order_it_came(
    registry: Registry, batches: list[list[int]]
) -> None:
    run_id = new_run(registry)
    for batch in batches:
        registry.record_metrics(run_id, [MetricEvent(step, "train", {"loss": step / 10}) for step in batch])
    steps = {step for batch in batches for step in batch}
    assert registry.latest_metrics(run_id) == ({"train.loss": max(steps) / 10} if steps else {})
    assert list(registry.metrics(run_id).step) == sorted(steps)


def test_a_result_stands_over_what_was_reported_on_the_way(registry: Registry) -> None:
    run_id = new_run(registry)
    score = lambda step, value: MetricEvent(step, "validation", {"f1": value})  # noqa: E731
    registry.record_metrics(run_id, [score(10, 0.8), score(20, 0.9), score(30, 0.7)])
    registry.record_metrics(run_id, [score(20, 0.9)], final=True)
    registry.record_metrics(run_id, [score(30, 0.7)])
    assert registry.latest_metrics(run_id) == {"f1": 0.9}
    registry.record_metrics(run_id, [score(10, 0.8)], final=True)
    assert registry.latest_metrics(run_id) == {"f1": 0.8}


def test_a_loss_that_is_no_number_is_kept(registry: Registry) -> None:
    run_id = new_run(registry)
    registry.record_metrics(run_id, [MetricEvent(1, "train", {"a": nan, "b": inf, "c": -inf, "d": 5e-324})])
    latest = registry.latest_metrics(run_id)
    assert isnan(latest.pop("train.a"))
    assert latest == {"train.b": inf, "train.c": -inf, "train.d": 5e-324}
    assert list(registry.metrics(run_id).value.isna()) == [True, False, False, False]


def test_everything_reported_twice_is_recorded_once(registry: Registry) -> None:
    dataset = DatasetResult(
        "sst2", "task", "f" * 64, "path", {"num_train_examples": 9}, [FileCount("train.tsv", 10, 9)]
    )

    def report() -> None:
        run_id = new_run(
            registry, run_id="one", kind="sweep", spec={"task": {"id": "sst2"}, "recipe": {"size": "tiny"}}
        )
        registry.start_attempt(run_id, number=1)
        registry.record_metrics(run_id, [MetricEvent(1, "train", {"loss": 0.1})])
        registry.record_checkpoints(run_id, [CheckpointEvent(1, "path", "d", 10)])
        registry.record_dataset(run_id, dataset)
        registry.register_model("model", model_result(), run_id)
        registry.tag(run_id, "good", "tiny")
        registry.start_trial(run_id, key="k", number=0, parameters={"learning_rate": 1e-4}, seed=0)
        registry.record_trials(run_id, [trial_result("k", metrics={"accuracy": 0.9})])
        registry.set_metric(run_id, "sst2", "accuracy")
        registry.finish_run(run_id, "COMPLETED", attempt=1)

    report()
    once = everything(registry)
    with pytest.raises(Exception, match="has completed"):
        report()  # a completed run starts no further attempt …
    assert everything(registry) == once
    assert all(once.values()), "every table has a row"


@pytest.mark.parametrize("value", [0, 1, -5, 2**60, 0.1, 1e-300, True, False, None, "", "text", "1", [1, 2], ["a"], {}])
def test_a_parameter_comes_back_as_it_was(registry: Registry, value: Any) -> None:
    found = registry.parameters(new_run(registry, spec={"x": value}))["x"]
    assert found == value
    assert type(found) is type(value)


def test_checkpoints_come_back_in_order(registry: Registry) -> None:
    run_id = new_run(registry)
    registry.record_checkpoints(run_id, [CheckpointEvent(20, "b", "d2", 2**40), CheckpointEvent(10, "a", "d1", 1)])
    assert [(c.step, c.path, c.num_bytes) for c in registry.checkpoints(run_id)] == [(10, "a", 1), (20, "b", 2**40)]


def test_data_used_by_two_runs_is_one_dataset(registry: Registry) -> None:
    dataset = DatasetResult("wiki", "corpus", "f" * 64, "path", {"num_tokens": 5}, [FileCount("a.txt", 3, 1, 1)])
    runs = [new_run(registry) for _ in range(2)]
    for run_id in runs:
        registry.record_dataset(run_id, dataset)
        (row,) = registry.datasets(run_id).to_dict("records")
        assert (row["name"], row["counts"], row["files"][0]["num_bad_records"]) == ("wiki", {"num_tokens": 5}, 1)
    assert len(everything(registry)["datasets"]) == 1


def test_models_count_their_versions_by_name_and_weights(registry: Registry) -> None:
    run_id = new_run(registry, task="sst2")
    assert registry.register_model("bert", model_result("a"), run_id) == 1
    assert registry.register_model("bert", model_result("b")) == 2
    assert registry.register_model("bert", model_result("a")) == 1
    assert registry.register_model("other", model_result("a")) == 1
    assert (registry.model("bert").version, registry.model("bert@1").digest) == (2, "a")
    assert [model.label for model in registry.models_of(run_id)] == ["bert@1"]
    assert sorted(registry.models().name + registry.models().version.astype(str)) == ["bert1", "bert2", "other1"]
    frame = registry.models().set_index(["name", "version"])
    assert frame.task["bert", 1] == "sst2"
    assert frame.task.isna()["other", 1]


def test_weights_that_are_made_again_are_found_in_their_newest_folder(registry: Registry) -> None:
    for folder in ("runs/first/model", "runs/second/model"):
        assert registry.register_model("bert", model_result("a", folder=folder)) == 1
    assert registry.model("bert").folder == "runs/second/model"


def test_a_model_that_is_not_there_is_named_with_candidates(registry: Registry) -> None:
    with pytest.raises(NotFoundError, match="there is none yet"):
        registry.model("bert")
    registry.register_model("bert", model_result())
    for name in ("brt", "bert@2", "bert@", "bert@99999999999999999999"):
        with pytest.raises(NotFoundError, match="bert@1"):
            registry.model(name)


def test_facts_about_a_run_that_is_not_there_are_refused(registry: Registry) -> None:
    with pytest.raises(RegistryError, match="no such run"):
        registry.record_metrics("nothing", [MetricEvent(1, "train", {"loss": 0.1})])


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=range(len(HOSTILE_NAMES)))
def test_a_hostile_name_is_kept_as_text(registry: Registry, name: str) -> None:
    shown = name.replace("\0", "\ufffd").replace("\udc80", "\ufffd\ufffd\ufffd")
    run_id = new_run(registry, name=name, task=name, tags=[name], spec={"note": name, name: 1})
    registry.start_attempt(run_id, host=name)
    registry.record_metrics(run_id, [MetricEvent(1, "validation", {name: 0.5})])
    registry.register_model(name, model_result(folder=name), run_id)
    registry.finish_run(run_id, "FAILED", error=name)
    run = registry.run(run_id)
    assert (run.name, run.experiment, run.task, run.error) == (shown, shown, shown, shown)
    assert registry.tags(run_id) == [shown]
    assert registry.latest_metrics(run_id) == {shown: 0.5}
    assert registry.model(name).folder == shown
    assert registry.parameters(run_id)["note"] == shown
    quoted = "'" + name.replace("'", "''") + "'"
    assert list(registry.runs(f"name = {quoted} and tag = {quoted} and params.note = {quoted}").id) == [run_id]
