"""All writes together; hostile names come back. Alone: pytest tests/orchestrator/registry/test_registry.py"""

from typing import Any

import pytest

from orchestrator.base.errors import InputError
from orchestrator.base.results import CheckpointEvent, DatasetResult, FileCount, MetricEvent, TrialStart
from orchestrator.base.run_states import RunState
from orchestrator.registry import Registry
from tests.orchestrator.registry.samples import everything, made_with, model_result, new_run, trial_result

WRITTEN_ELSEWHERE = ("model_aliases",)
"""Tables that hold what people add, and what is measured beside a run."""
HOSTILE_NAMES = ["🤖 émoji", "x" * 300, "two\nlines\ttab", 'it\'s "quoted"; DROP TABLE runs; --', "../../etc", "%_\\"]
HOSTILE_NAMES += ["a\0b", "\udc80 not UTF-8", "", " "]


def test_everything_reported_twice_is_recorded_once(registry: Registry) -> None:
    dataset = DatasetResult(
        "sst2", "task", "f" * 64, "path", {"num_train_examples": 9}, [FileCount("train.tsv", 10, 9)]
    )

    def report() -> None:
        run_id = new_run(
            registry, run_id="one", kind="sweep", spec={"task": {"id": "sst2"}, "recipe": {"size": "tiny"}}
        )
        registry.lifecycle.start_attempt(run_id, number=1, made_with=made_with("a" * 40, "+x = 1"))
        registry.metrics.record(run_id, [MetricEvent(1, "train", {"loss": 0.1})])
        registry.checkpoints.record(run_id, [CheckpointEvent(1, "path", "d", 10)])
        registry.datasets.record(run_id, dataset)
        registry.models.register("model", model_result(), run_id)
        registry.annotations.tag(run_id, ["good", "tiny"])
        registry.trials.record(run_id, [TrialStart("k", 0, {"learning_rate": 1e-4}, 0)])
        registry.trials.record(run_id, [trial_result("k", metrics={"accuracy": 0.9})])
        registry.trials.set_metric(run_id, "sst2", "accuracy")
        registry.lifecycle.finish(run_id, RunState.COMPLETED, attempt=1)

    report()
    once = everything(registry)
    with pytest.raises(InputError, match="has ended as COMPLETED"):
        report()  # a completed run starts no further attempt …
    assert everything(registry) == once
    assert {name for name, rows in once.items() if not rows} == set(WRITTEN_ELSEWHERE), "every other table has a row"


@pytest.mark.parametrize("value", [0, 1, -5, 2**60, 0.1, 1e-300, True, False, None, "", "text", "1", [1, 2], ["a"], {}])
def test_a_parameter_comes_back_as_it_was(registry: Registry, value: Any) -> None:
    found = registry.parameters(new_run(registry, spec={"x": value}))["x"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=range(len(HOSTILE_NAMES)))
def test_a_hostile_name_is_kept_as_text(registry: Registry, name: str) -> None:
    shown = name.replace("\0", "\ufffd").replace("\udc80", "\ufffd\ufffd\ufffd")
    run_id = new_run(registry, name=name, task=name, tags=[name], spec={"note": name, name: 1})
    registry.lifecycle.start_attempt(run_id, host=name)
    registry.metrics.record(run_id, [MetricEvent(1, "validation", {name: 0.5})])
    registry.models.register(name, model_result(folder=name), run_id)
    registry.lifecycle.finish(run_id, RunState.FAILED, error=name)
    run = registry.run(run_id)
    assert (run.name, run.experiment, run.task, run.error) == (shown, shown, shown, shown)
    assert registry.annotations.tags(run_id) == [shown]
    assert registry.metrics.latest(run_id) == {shown: 0.5}
    assert registry.models.get(name).folder == shown
    assert registry.parameters(run_id)["note"] == shown
    quoted = "'" + name.replace("'", "''") + "'"
    assert list(registry.runs(f"name = {quoted} and tag = {quoted} and params.note = {quoted}").id) == [run_id]
