"""Exports, read by the trackers. Alone: pytest tests/orchestrator/reports/test_tracker_exports.py"""

import json
import math
import posixpath
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tensorboardX.proto.event_pb2 import Event

from orchestrator.base.errors import InputError
from orchestrator.base.results import MetricEvent
from orchestrator.registry import Registry
from orchestrator.reports.tracker_exports import TRACKERS, ExportedRun, Tracker, load_runs, mlflow_name, write_runs
from tests.orchestrator.registry.samples import fill, new_run

# MLflow and W&B warn of what they will change in themselves.
pytestmark = pytest.mark.filterwarnings("ignore")
STEPS = [1, 2**40]


@pytest.fixture
def exported(tmp_path: Path) -> list[ExportedRun]:
    """A sweep and its two trials."""
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        return load_runs(registry, f"id = '{fill(registry)}'")


def events_in(folder: Path) -> list[Event]:
    """Events of the one event file of a folder: records of length, checksum, data, checksum."""
    (file,) = folder.glob("events.out.tfevents.*")
    data, events = file.read_bytes(), []
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        events.append(Event.FromString(data[12 : 12 + size]))
        data = data[16 + size :]
    return events


def log_records(data: bytes) -> Iterator[bytes]:
    """Records of a .wandb file: LevelDB's log format, in blocks of 32 KiB, after a header of seven bytes."""
    place, parts = 7, b""
    while place + 7 <= len(data):
        left = 32_768 - place % 32_768
        if left < 7:
            place += left
        _, size, kind = struct.unpack("<IHB", data[place : place + 7])
        parts += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def test_a_sweep_comes_before_its_trials_with_all_that_is_measured(exported: list[ExportedRun]) -> None:
    sweep, *trials = exported
    assert [run.record.parent_id for run in trials] == [sweep.record.id] * 2
    assert [point.step for point in sweep.measurements if point.name == "train/loss"] == STEPS
    assert sweep.notes == ["looks 'good'\n👍"]


def test_that_a_test_score_is_refused_is_a_note(tmp_path: Path) -> None:
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        student = new_run(registry, kind="distill", task="sst2", metric="accuracy")
        registry.trials.set_data(student, {"train": "t", "validation": "v", "test": "t"})
        registry.metrics.record(student, [MetricEvent(1, "test", {"accuracy": 0.9})], final=True)
        (run,) = load_runs(registry, f"id = '{student}'")
    assert run.notes == ["The test score is refused: the model was trained on the test data."]


def test_tensorboard_gets_scalars_with_steps(exported: list[ExportedRun], tmp_path: Path) -> None:
    for _ in range(2):  # a second export replaces the first
        write_runs("tensorboard", exported, tmp_path / "events")
    sweep = exported[0]
    values: dict[str, list[tuple[int, float]]] = {}
    for event in events_in(tmp_path / "events" / sweep.record.id):
        for value in event.summary.value:
            values.setdefault(value.tag, []).append((event.step, value.simple_value))
    assert values["train/loss"] == [(step, 2.5) for step in STEPS]
    assert all(math.isnan(value) for _, value in values["train/nan"])
    assert "note/1/text_summary" in values
    assert len(list((tmp_path / "events" / sweep.record.id).iterdir())) == 3  # its own file, and its two trials


def test_mlflow_gets_parameters_histories_tags_and_nested_trials(exported: list[ExportedRun], tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow-skinny is not installed: make test-trackers")
    for _ in range(2):
        write_runs("mlflow", exported, tmp_path / "mlflow")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow/mlflow.db")
    experiment = client.get_experiment_by_name(exported[0].record.experiment)
    runs = {run.data.tags["orchestrator.run_id"]: run for run in client.search_runs([experiment.experiment_id])}
    assert set(runs) == {run.record.id for run in exported}
    sweep = runs[exported[0].record.id]
    assert sweep.info.status == "FINISHED"
    assert sweep.data.params["recipe.learning_rate"] == "0.1"
    history = client.get_metric_history(sweep.info.run_id, "train/loss")
    assert sorted((point.step, point.value) for point in history) == [(step, 2.5) for step in STEPS]
    trial = runs[exported[1].record.id]
    assert trial.data.tags["mlflow.parentRunId"] == sweep.info.run_id


def test_wandb_gets_an_offline_run_with_steps(exported: list[ExportedRun], tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed: make test-trackers")
    from wandb.proto import wandb_internal_pb2

    write_runs("wandb", exported[:1], tmp_path / "lab")
    (file,) = (tmp_path / "lab" / "wandb").glob("offline-run-*/run-*.wandb")
    records = [wandb_internal_pb2.Record.FromString(data) for data in log_records(file.read_bytes())]
    (started,) = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    assert (started.run_id, list(started.tags)) == (exported[0].record.id, ["tried"])
    history: list[dict[str, Any]] = []
    for record in records:
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            history.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
    assert [(row["_step"], row["train/loss"]) for row in history if "train/loss" in row] == [(s, 2.5) for s in STEPS]


def test_a_library_that_is_not_there_is_named(
    exported: list[ExportedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TRACKERS, "mlflow", Tracker("not_there", "mlflow-skinny", "not.there", ""))
    with pytest.raises(InputError, match=r"writing for mlflow needs its own library; run: pip install mlflow-skinny"):
        write_runs("mlflow", exported, tmp_path / "mlflow")
    assert not (tmp_path / "mlflow").exists()


@pytest.mark.parametrize("name", ["R&D", "a:b", "Job Title", "a//b", "/a", "..", ".", "a/../b", "é", "x" * 300])
def test_every_name_becomes_one_that_is_no_other_path_and_not_too_long(name: str) -> None:
    written = mlflow_name(f"validation/f1_{name}"), mlflow_name(name)
    for one in written:
        assert len(one) <= 250
        assert posixpath.normpath(one) == one
        assert not one.startswith(("/", "."))
    assert len({mlflow_name(f"{name}{end}") for end in ("", "+", "++", "#")}) == 4
