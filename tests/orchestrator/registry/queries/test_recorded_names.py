"""Names for whoever completes a word. Alone: pytest tests/orchestrator/registry/queries/test_recorded_names.py"""

from pathlib import Path

from orchestrator.registry import Registry
from orchestrator.registry.queries.recorded_names import RecordedNames
from orchestrator.results import MetricEvent
from tests.orchestrator.registry.samples import model_result, new_run


def test_names_are_those_that_were_recorded(registry: Registry, location: str) -> None:
    run_id = new_run(registry, task="sst2", spec={"kind": "pretrain", "model": {"size": "tiny"}})
    registry.metrics.record(run_id, [MetricEvent(1, "train", {"loss": 2.0}), MetricEvent(1, "validation", {"f1": 0.5})])
    for digest in "ab":
        registry.models.register("bert", model_result(digest))
    names = RecordedNames(location)
    assert [name for name, _ in names.runs("")] == [name for name, _ in names.runs(run_id[:4])] == [run_id]
    assert names.runs("%") == names.runs("_") == names.runs("zz") == []
    assert names.kind_of_run(run_id[:4]) == registry.run(run_id).kind
    assert [name for name, _ in names.models()] == ["bert", "bert@2", "bert@1"]
    assert [name for name, _ in names.metrics(run_id)] == ["f1", "train.loss"]
    assert names.parameters() == [("size", "model.size"), ("model.size", "parameter")]
    assert names.tasks() == []  # no trial has been scored


def test_a_registry_that_is_not_there_has_no_names_and_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "none" / "registry.sqlite"
    assert RecordedNames(str(path)).runs("") == []
    assert not path.parent.exists()


def test_reading_names_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "registry.sqlite"
    with Registry(str(path)) as registry:
        run_id = new_run(registry)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert [name for name, _ in RecordedNames(f"sqlite:///{path}").runs("")] == [run_id]
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
