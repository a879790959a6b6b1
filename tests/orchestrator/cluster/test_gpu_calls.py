"""Calls on a device, here without GPUs, in a process of Ray with them; warnings of Ray's processes.

Alone: pytest tests/orchestrator/cluster/test_gpu_calls.py
"""

import logging
import os
import signal
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

from orchestrator.base import periodic
from orchestrator.base.console import attached
from orchestrator.base.errors import RunFailedError, SpecError
from orchestrator.base.periodic import Shortage
from orchestrator.cluster import gpus, shortage
from orchestrator.cluster.capacity import Processes
from orchestrator.cluster.gpus import call_on_device
from orchestrator.cluster.process_warnings import CollectedWarnings
from orchestrator.finetuning.evaluation import ScoredSplit, evaluate_model
from orchestrator.inference.searching import Reranking
from orchestrator.inference.task_scores import Scoring, evaluate
from orchestrator.specs import TaskSpec
from orchestrator.tasks.loading import load_task
from tests.orchestrator.finetuning import tiny_tasks
from tests.orchestrator.training.cards_in_place import let_memory_run_out

PROBLEM = "the model was not scored"
logger = logging.getLogger("orchestrator.some")


@pytest.fixture
def pretended_gpu(ray_cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ray that gives tasks a place that ask for a GPU, although it has none."""
    from ray.remote_function import RemoteFunction

    options = RemoteFunction.options
    monkeypatch.setattr(RemoteFunction, "options", lambda self, **asked: options(self, **{**asked, "num_gpus": 0}))


def test_without_gpus_a_function_is_called_here_on_its_cpu() -> None:
    assert call_on_device(lambda device: (device, os.getpid()), 1.0, 0.0, PROBLEM) == ("cpu", os.getpid())


@pytest.mark.ray
def test_with_gpus_another_process_gives_the_same_scores_and_predictions(pretended_gpu: None, tmp_path: Path) -> None:
    task = load_task(tiny_tasks.classification(tmp_path))
    folder, cache = tiny_tasks.save_fine_tuned(tmp_path, task), str(tmp_path / "cache")

    def score(device: str) -> tuple[str, int, ScoredSplit]:
        return device, os.getpid(), evaluate_model(folder, task, "validation", 16, cache)

    device, process, found = call_on_device(score, 1.0, 0.5, PROBLEM)
    here = score("cpu")[2]
    assert (device, process == os.getpid()) == ("cuda", False)
    assert (found.metrics, found.predictions) == (here.metrics, here.predictions)


def test_a_task_tells_of_the_memory_of_an_encoder_and_of_its_reranker(
    monkeypatch: pytest.MonkeyPatch, encoder: str, scorer: str, collection: TaskSpec, tmp_path: Path
) -> None:
    asked = partial(Scoring, encoder, load_task(collection), "validation", reranking=Reranking(scorer))
    expected = evaluate(asked(str(tmp_path / "whole")))
    let_memory_run_out(monkeypatch, max_windows=2, max_tokens=12)
    _, warnings, found = gpus._begin_and_call(lambda device: evaluate(asked(str(tmp_path / "parts"))))
    assert isinstance(warnings, tuple)
    ran_out = ("memory ran out with texts of ", "memory ran out while texts were answered, ")
    assert [any(warning.startswith(words) for warning in warnings) for words in ran_out] == [True, True]
    assert found == expected


@pytest.mark.parametrize("error", [SpecError("no such label"), RuntimeError("no room")])
def test_a_task_that_fails_tells_first_what_it_has_warned_of(error: Exception) -> None:
    def fail(device: str) -> None:
        logger.warning("fewer at a time")
        raise error

    told = gpus._begin_and_call(fail)
    assert [next(told), next(told)] == [None, ("fewer at a time",)]
    with nullcontext() if isinstance(error, SpecError) else pytest.raises(RuntimeError, match=r"^no room$"):
        assert next(told) is error


@pytest.mark.ray
def test_what_a_task_warns_of_is_logged_here_once(pretended_gpu: None, caplog: pytest.LogCaptureFixture) -> None:
    def work(device: str) -> str:
        for text in ("fewer at a time", "fewer still", "fewer at a time"):
            logging.getLogger("bert_core.text_embedding").warning(text)
        return device

    assert call_on_device(work, 1.0, 1.0, PROBLEM) == "cuda"
    assert caplog.messages == ["fewer at a time", "fewer still"]


@pytest.mark.ray
def test_own_errors_come_back_as_they_are_and_others_in_a_line(pretended_gpu: None) -> None:
    def refuse(device: str) -> None:
        raise SpecError("no such label")

    def fail(device: str) -> None:
        raise RuntimeError("no room\non this device")

    def die(device: str) -> None:
        os._exit(1)

    with pytest.raises(SpecError, match=r"^no such label$"):
        call_on_device(refuse, 1.0, 1.0, PROBLEM)
    with pytest.raises(RunFailedError, match="batch_size"):
        call_on_device(fail, 1.0, 1.0, PROBLEM, "; lower batch_size")
    with pytest.raises(RunFailedError, match=r"^the model was not scored: "):
        call_on_device(die, 1.0, 1.0, PROBLEM)


@pytest.mark.ray
def test_work_without_a_place_is_told_and_can_be_interrupted(
    ray_cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests' cluster has no GPU."""
    waiting: list[Processes] = []

    def interrupt(needed: Processes) -> Shortage:
        waiting.append(needed)
        os.kill(os.getpid(), signal.SIGINT)
        return Shortage(True, "no GPU")

    monkeypatch.setattr(shortage, "find_shortage", interrupt)
    monkeypatch.setattr(periodic, "SAY_AFTER_S", 0.0)
    with pytest.raises(KeyboardInterrupt):
        call_on_device(str, 1.0, 1.0, PROBLEM)
    assert waiting[:1] == [Processes(1, {"CPU": 1.0, "GPU": 1.0})]


def test_warnings_of_both_packages_are_kept_until_they_are_taken() -> None:
    warnings = CollectedWarnings()
    own, core = logging.getLogger("orchestrator.some"), logging.getLogger("bert_core.some")
    with attached(warnings):
        own.info("a line")
        own.warning("%d bytes are %s", 7, "left")
        core.warning("fewer at a time")
        own.warning("7 bytes are left")
        logging.getLogger("another").warning("not ours")
    own.warning("after the work")
    assert warnings.take() == ("7 bytes are left", "fewer at a time")
    assert warnings.take() == ()
