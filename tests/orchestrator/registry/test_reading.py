"""Finding runs, and the tables that come back. Alone: pytest tests/orchestrator/registry/test_reading.py"""

from pathlib import Path

import pytest

from orchestrator.base.errors import NotFoundError, SeveralRunsError
from orchestrator.base.results import MetricEvent
from orchestrator.registry import Registry
from orchestrator.registry.recorded_names import RecordedNames
from tests.orchestrator.registry.samples import model_result, new_run, trial_result


@pytest.mark.parametrize(
    ("runs", "asked", "found"),
    [
        ({"abc111": "one", "abd222": "other"}, ("abc1", "abc111", "ABC1"), "abc111"),
        ({"abc": "one", "abcd": "other"}, ("abc",), "abc"),
        ({"1" * 12: "c4", "2" * 12: "c4", "c4a0c4a0c4a0": "wiki"}, ("c4",), "2" * 12),  # the newest of its name
        ({"1" * 12: "c4", "c4a0c4a0c4a0": "wiki"}, ("c4a0",), "c4a0c4a0c4a0"),
        ({"1" * 12: "one", "2" * 12: "1" * 12}, ("1" * 12,), "1" * 12),
    ],
)
def test_a_run_is_found_by_its_id_its_name_and_a_beginning_of_its_id(
    registry: Registry, runs: dict[str, str], asked: tuple[str, ...], found: str
) -> None:
    for run_id, name in runs.items():
        new_run(registry, run_id=run_id, name=name)
    assert {registry.run(prefix).id for prefix in asked} == {registry.run(asked[0]).id} == {found}


@pytest.mark.parametrize("asked", ["abcd", "abc"])
def test_what_begins_several_ids_or_has_three_characters_lists_the_candidates(registry: Registry, asked: str) -> None:
    for run_id in ("abcd11", "abcd22"):
        new_run(registry, run_id=run_id)
    with pytest.raises(NotFoundError) as caught:
        registry.run(asked)
    assert all(run_id in str(caught.value) for run_id in ("abcd11", "abcd22"))


def test_a_name_that_another_id_begins_with_is_refused_with_both(registry: Registry) -> None:
    new_run(registry, name="face", run_id="111111111111")
    new_run(registry, name="wiki", run_id="face22222222")
    with pytest.raises(SeveralRunsError, match=r"111111111111.*face22222222"):
        registry.run("face")
    new_run(registry, name="c0ffee", run_id="c0ffee000000")
    assert registry.run("c0ffee").id == "c0ffee000000"  # both are the same run


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
    assert (first["metrics.f1"], first["metrics.test.f1"]) == (0.9, 0.8)
    assert (first["params.size"], first["tags"]) == ("tiny", "a, b")
    assert (second["task"], second["seed"]) == ("sst2", 3)
    assert frame["metrics.f1"].isna().tolist() == [False, True]
    assert str(frame.created_at.dt.tz) == "UTC"


def test_tables_of_nothing_have_their_columns(registry: Registry) -> None:
    assert {"id", "name", "state", "created_at"} <= set(registry.runs().columns)
    for frame in (
        registry.trials.table("x").frame(),
        registry.metrics.history("x").frame(),
        registry.models.table().frame(),
        registry.datasets.table("x").frame(),
    ):
        assert frame.empty
        assert len(frame.columns) > 4


def test_runs_are_found_by_what_they_and_their_trials_name(registry: Registry) -> None:
    one, other = (new_run(registry, spec={"kind": "pretrain", "init_from": "first@1"}) for _ in range(2))
    listing = new_run(registry, kind="sweep", spec={"kind": "sweep", "space": {"init_from": ["x", "first@1"]}})
    sweep = new_run(registry, kind="sweep", spec={"kind": "sweep", "recipe": {"init_from": "random"}})
    (trial,) = registry.trials.record(sweep, [trial_result(parameters={"init_from": "first@1"})])
    new_run(registry, spec={"kind": "pretrain", "init_from": "second@1", "name": "first@1"})

    def found(*except_of: str) -> set[str]:
        return registry.named_in_specs(["init_from"], except_of=except_of)["first@1"]

    assert found() == {one, other, listing, sweep}
    assert found(one, trial) == {other, listing}


def test_names_are_those_that_were_recorded(registry: Registry, location: str) -> None:
    run_id = new_run(registry, task="sst2", spec={"kind": "pretrain", "model": {"size": "tiny"}})
    registry.metrics.record(run_id, [MetricEvent(1, "train", {"loss": 2.0}), MetricEvent(1, "validation", {"f1": 0.5})])
    for digest in "ab":
        registry.models.register("bert", model_result(digest))
    names = RecordedNames.at(location)
    for begin in ("", run_id[:4]):
        assert [name for name, _ in names.named("runs", begin)] == [run_id]
    assert names.named("runs", "%") == names.named("runs", "_") == names.named("runs", "zz") == []
    assert names.kind_of_run(run_id[:4]) == registry.run(run_id).kind
    assert [name for name, _ in names.models()] == ["bert", "bert@2", "bert@1"]
    assert names.metrics(run_id) == names.metrics() == ["f1", "train.loss"]
    assert names.parameters() == [("size", "model.size"), ("model.size", "parameter")]
    assert names.named("tasks") == []  # no trial has been scored


def test_a_registry_that_is_not_there_has_no_names_and_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "none" / "registry.sqlite"
    assert RecordedNames.at(str(path)).named("runs", "") == []
    assert not path.parent.exists()


def test_reading_names_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "registry.sqlite"
    with Registry(str(path)) as registry:
        run_id = new_run(registry)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert [name for name, _ in RecordedNames.at(f"sqlite:///{path}").named("runs", "")] == [run_id]
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
