"""A distillation as a stage of a pipeline on Ray, from its teacher to its student's scores.

Run alone: pytest tests/orchestrator/finetuning/test_distillation_launch.py
"""

import fcntl
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from orchestrator.base.errors import RunFailedError, RunStoppedError, SpecError
from orchestrator.base.results import Event, MessageEvent, MetricEvent
from orchestrator.base.settings import Settings
from orchestrator.execution.runner import run_spec
from orchestrator.finetuning import distillation_launch as launch
from orchestrator.inference import predict
from orchestrator.registry import Registry
from orchestrator.registry.model_names import resolve_model
from orchestrator.specs import DistillSpec
from orchestrator.specs.loading import parse_spec
from orchestrator.storage.attempts import marked_storage
from orchestrator.tasks.loading import load_task
from orchestrator.training.event_queue import EventQueue
from tests.orchestrator.finetuning import tiny_tasks
from tests.orchestrator.training.local_actor import LocalActor


def pipeline(folder: Path) -> dict[str, Any]:
    """A teacher of two layers, its student of one, which is then scored."""
    task = tiny_tasks.classification(folder / "task").model_dump(mode="json")
    recipe = tiny_tasks.RECIPE.model_dump()
    teacher = {"kind": "sweep", "task": task, "recipe": {**recipe, "tokenizer": tiny_tasks.save_tokenizer(folder)}}
    student = {"kind": "distill", "teacher": "@large", "num_hidden_layers": 1, "task": task, "recipe": recipe}
    score = {"kind": "evaluate", "model": "@small", "task": task, "split": "test"}
    return {"kind": "pipeline", "name": "both", "stages": {"large": teacher, "small": student, "score": score}}


@pytest.mark.ray
@pytest.mark.core
def test_a_student_is_a_registered_model_that_stands_beside_its_teacher(ray_cluster: None, tmp_path: Path) -> None:
    settings = Settings.from_options(home=str(tmp_path / "home"), environ={})
    spec = pipeline(tmp_path)
    assert run_spec(parse_spec(spec), settings=settings).state == "COMPLETED"
    with Registry(settings.registry) as registry:
        run = registry.run(registry.runs("kind = 'distill'")["id"][0])
        metrics = registry.metrics.latest(run.id)
        assert (run.task, run.metric, run.seed) == ("words", "accuracy", None)
        assert metrics["agreement"] > 0.9 < metrics["teacher.accuracy"]
        assert metrics["parameter_ratio"] < 1
        assert metrics["test.accuracy"] == metrics_of(registry, "evaluate")["test.accuracy"]
        history = registry.metrics.history(run.id, "accuracy").frame()
        assert len(history[history["split"] == "validation"]["step"].unique()) == 4
        assert registry.models.get("both/small").head == "classification"
        assert registry.parameters(run.id)["teacher"] == "both/large@1"
    answers = predict(resolve_model("both/small", settings), ["a good old road\n", "some bad tree\n"])
    assert [answer["label"] for answer in answers] == ["yes", "no"]

    spec["stages"]["small"] = {
        **spec["stages"]["small"],
        "task": {**spec["stages"]["small"]["task"], "labels": ["x", "y"]},
    }
    with pytest.raises(SpecError, match="large will know"):
        run_spec(parse_spec(spec), settings=settings)


def metrics_of(registry: Registry, kind: str) -> dict[str, float]:
    """Of the newest run of a kind."""
    return registry.metrics.latest(registry.runs(f"kind = '{kind}'")["id"][0])


def follow(folder: Path, on_event: Callable[[Event], None] = lambda event: None) -> None:
    """A distillation whose work is whatever stands in its place."""
    task = tiny_tasks.classification(folder)
    spec = DistillSpec.model_validate({"teacher": "large", "task": task})
    launch.run_distillation(
        spec,
        task=load_task(task),
        run_folder=str(folder / "run"),
        attempt=1,
        storage=str(folder / "storage"),
        resolve_name=lambda field, name: str(folder / name),
        on_event=on_event,
    )


@pytest.mark.ray
def test_a_process_that_keeps_dying_is_named(
    ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(job: object, event_queue: object, mark: str) -> None:
        os._exit(1)

    monkeypatch.setattr(launch, "_work", die)
    with pytest.raises(RunFailedError, match="the student"):
        follow(tmp_path)


@pytest.mark.parametrize(("asked", "message"), [("before", "before it began"), ("meanwhile", "after step 7")])
def test_work_that_is_asked_to_stop_ends_after_its_next_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, message: str
) -> None:
    queue = EventQueue()

    def distill(job: object, report: object, on_saved: Callable[[int], None]) -> None:
        on_saved(3)
        queue.stop()
        on_saved(7)

    monkeypatch.setattr(ray, "get", lambda value: value)
    monkeypatch.setattr(launch, "distill", distill)
    if asked == "before":
        queue.stop()
    job: Any = SimpleNamespace(run_folder=str(tmp_path), attempt=1)
    with marked_storage(str(tmp_path), 1) as mark:
        outcome = launch._work(job, LocalActor(queue), mark)
    assert isinstance(outcome, RunStoppedError)
    assert str(outcome) == f"the run was stopped {message}"


@pytest.mark.parametrize("error", [None, SpecError("no such label"), RuntimeError("no room")])
def test_what_is_warned_of_goes_with_the_events_and_is_not_lost_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    queue, step = EventQueue(), MetricEvent(1, "train", {"loss": 1.0})

    def distill(job: object, report: Callable[[list[Event]], None], on_saved: object) -> None:
        logging.getLogger("orchestrator.finetuning.logits").warning("fewer at a time")
        report([step])
        logging.getLogger("bert_core.some").warning("fewer still")
        if error is not None:
            raise error

    monkeypatch.setattr(ray, "get", lambda value: value)
    monkeypatch.setattr(launch, "distill", distill)
    job: Any = SimpleNamespace(run_folder=str(tmp_path), attempt=1)
    with marked_storage(str(tmp_path), 1) as mark, suppress(RuntimeError):
        assert launch._work(job, LocalActor(queue), mark) is error
    expected = [MessageEvent("fewer at a time", "warning"), step, MessageEvent("fewer still", "warning")]
    assert queue.take(0) == expected


@pytest.mark.ray
def test_a_driver_that_stops_ends_the_work(ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def go_on_for_ever(job: object, event_queue: Any, mark: str) -> None:
        with (tmp_path / "working").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            event_queue.put.remote(MetricEvent(1, "train", {"loss": 1.0}))
            threading.Event().wait()

    def stop(event: Event) -> None:
        raise RunStoppedError("stopped on request")

    monkeypatch.setattr(launch, "_work", go_on_for_ever)
    with pytest.raises(RunStoppedError):
        follow(tmp_path, stop)
    with (tmp_path / "working").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # is given when the process that holds it has ended
