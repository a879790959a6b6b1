"""Models: versions, folders, unknown names. Alone: pytest tests/orchestrator/registry/test_registered_models.py"""

import pytest

from orchestrator.base.errors import NotFoundError
from orchestrator.base.run_states import RunState
from orchestrator.registry import Registry
from tests.orchestrator.registry.samples import model_result, new_run, remove


def test_models_count_their_versions_by_name_and_weights(registry: Registry) -> None:
    run_id = new_run(registry, task="sst2")
    assert registry.models.register("bert", model_result("a"), run_id) == 1
    assert registry.models.register("bert", model_result("b")) == 2
    assert registry.models.register("bert", model_result("a")) == 1
    assert registry.models.register("other", model_result("a")) == 1
    assert (registry.models.get("bert").version, registry.models.get("bert@1").digest) == (2, "a")
    assert [model.label for model in registry.models.of_run(run_id)] == ["bert@1"]
    frame = registry.models.table().frame().set_index(["name", "version"])
    assert frame.task["bert", 1] == "sst2"
    assert frame.task.isna()["other", 1]


def test_weights_that_are_made_again_are_found_in_their_newest_folder(registry: Registry) -> None:
    for folder in ("runs/first/model", "runs/second/model"):
        assert registry.models.register("bert", model_result("a", folder=folder)) == 1
    assert registry.models.get("bert").folder == "runs/second/model"


@pytest.mark.parametrize("removed", [0, 1])
def test_weights_of_two_runs_leave_the_registry_with_the_run_that_has_their_folder(
    registry: Registry, removed: int
) -> None:
    runs, other = [new_run(registry) for _ in range(2)], new_run(registry)
    for run_id in runs:
        registry.models.register("bert", model_result("a", folder=f"runs/{run_id}/model"), run_id)
        registry.lifecycle.finish(run_id, RunState.COMPLETED, model_folder=f"runs/{run_id}/model")
    for run_id, labels in ((runs[0], ["bert@1"]), (runs[1], ["bert@1"]), (other, [])):
        assert [model.label for model in registry.models.left_by(registry.run(run_id))] == labels
    assert registry.trash.put(runs[removed], 0)
    assert registry.models.count() == 1 - removed
    registry.trash.restore(runs[removed])
    assert registry.models.get("bert@1").folder == f"runs/{runs[1]}/model"


def test_the_number_of_a_removed_model_is_given_to_no_other(registry: Registry) -> None:
    run_id = new_run(registry)
    registry.models.register("bert", model_result("a"))
    registry.models.register("bert", model_result("b"), run_id)
    remove(registry, run_id)
    assert registry.models.register("bert", model_result("c")) == 3
    assert registry.models.register("bert", model_result("b")) == 2, "the same weights are the same version"


def test_a_model_that_is_not_there_is_named_with_candidates(registry: Registry) -> None:
    with pytest.raises(NotFoundError, match="there is none yet"):
        registry.models.get("bert")
    registry.models.register("bert", model_result())
    for name in ("brt", "bert@2", "bert@", "bert@99999999999999999999"):
        with pytest.raises(NotFoundError, match="bert@1"):
            registry.models.get(name)


def test_an_alias_of_a_removed_version_is_not_offered(registry: Registry) -> None:
    run_id = new_run(registry)
    registry.models.register("bert", model_result("a"))
    registry.models.register("bert", model_result("b"), run_id)
    for version, alias in (("bert@1", "old"), ("bert@2", "best")):
        registry.models.set_alias(version, alias)
    remove(registry, run_id)
    with pytest.raises(NotFoundError, match=r"bert@1, bert@old\.") as refused:
        registry.models.get("bert@best")
    assert "bert@best" not in str(refused.value).partition("these are")[2]
