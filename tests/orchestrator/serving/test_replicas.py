"""Requests that are answered together, and what replicas warn of, below Ray.

Alone: .venv/bin/pytest tests/orchestrator/serving/test_replicas.py
"""

import asyncio
import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from orchestrator.cluster.capacity import ClusterRoom
from orchestrator.cluster.worker_warnings import WithWarnings
from orchestrator.errors import ClusterError, InputError
from orchestrator.inference.answering import Abilities, Read
from orchestrator.models.device import choose_device
from orchestrator.serving import replicas
from orchestrator.serving.replicas import Replica, answer_together, running_replicas
from tests.orchestrator.training.cards_in_place import GIB, put_in_place


class Echo:
    """A model that answers with the length of a text, and counts how often it is asked."""

    abilities = Abilities("echo", ("text",), (), True, {"text": "a"})

    def __init__(self) -> None:
        self.calls: list[int] = []

    def answer(self, inputs: Sequence[Read]) -> list[dict[str, Any]]:
        self.calls.append(len(inputs))
        for number, read in enumerate(inputs, start=1):
            if not read:
                raise InputError(f"line {number}: the text has no token; leave it out")
        return [{"length": len(read)} for read in inputs]


def test_requests_are_answered_together_and_each_gets_its_own() -> None:
    echo = Echo()
    found = answer_together(echo, [["a", "bb"], ["ccc"]])
    assert found == [[{"length": 1}, {"length": 2}], [{"length": 3}]]
    assert echo.calls == [3]


def test_a_wrong_request_fails_alone_and_is_counted_from_its_own_first_input() -> None:
    first, second = answer_together(Echo(), [["a"], ["b", ""]])
    assert first == [{"length": 1}]
    assert isinstance(second, InputError)
    assert str(second).startswith("line 2: ")


@pytest.mark.parametrize(("device", "each"), [("cpu", "a CPU"), ("cuda", "a CPU and a GPU")])
def test_replicas_that_find_no_room_are_refused_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, device: str, each: str
) -> None:
    monkeypatch.setattr(replicas, "cluster_room", lambda processes: ClusterRoom(1, 2))
    refusal = f"3 replicas are asked for, each with {each}; there is room for 2. Lower --num-replicas"
    with pytest.raises(ClusterError, match=refusal), running_replicas("folder", device, 3):
        pass


def test_an_interrupt_while_the_model_loads_takes_the_application_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: Any, name: str, **options: Any) -> None:
        names.append(name)
        raise KeyboardInterrupt

    names: list[str] = []
    deleted: list[str] = []
    monkeypatch.setattr(replicas, "cluster_room", lambda processes: ClusterRoom(1, 1))
    monkeypatch.setattr(replicas.serve, "start", lambda **options: None)
    monkeypatch.setattr(replicas.serve, "run", interrupt)
    monkeypatch.setattr(replicas.serve, "delete", deleted.append)
    with pytest.raises(KeyboardInterrupt), running_replicas("folder", "cpu", 1):
        pass
    assert deleted == names
    assert deleted


class Halving(Echo):
    """An `Echo` whose memory is too small for the first inputs."""

    def answer(self, inputs: Sequence[Read]) -> list[dict[str, Any]]:
        if not self.calls:
            logging.getLogger("bert_core.text_embedding").warning("fewer at a time")
        return super().answer(inputs)


def test_a_replica_tells_of_its_card_at_the_start_and_of_memory_with_the_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(folder: str, device: str, precision: str) -> Halving:
        choose_device(device)
        return Halving()

    put_in_place(monkeypatch, free_bytes=100 * GIB)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda precision: None)  # of the whole process
    monkeypatch.setattr(replicas, "load_answering", load)
    replica = Replica("folder", "cuda")
    greeting = asyncio.run(replica.abilities())
    (note,) = greeting.warnings
    assert (greeting.value, note[:52]) == (Echo.abilities, "others hold 39.0 GiB of the 139.0 GiB of NVIDIA H200")
    first, beside = replica.answer([["a"], ["bb"]])
    assert first == WithWarnings([{"length": 1}], ("fewer at a time",))
    assert beside.warnings == first.warnings, "whoever asked may have gone"
    assert replica.answer([["a"]]) == [WithWarnings([{"length": 1}])]


def test_the_server_logs_what_replicas_warn_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(inputs: list[Read]) -> WithWarnings[list[dict[str, Any]]]:
        return WithWarnings([{"length": 1}], ("old card", "fewer at a time"))

    greeting = SimpleNamespace(result=lambda: WithWarnings(Echo.abilities, ("old card",)))
    handle = SimpleNamespace(abilities=SimpleNamespace(remote=lambda: greeting), ask=SimpleNamespace(remote=answer))
    monkeypatch.setattr(replicas, "cluster_room", lambda processes: ClusterRoom(1, 1))
    for name, stand_in in {"start": None, "run": handle, "delete": None}.items():
        monkeypatch.setattr(replicas.serve, name, lambda *args, value=stand_in, **options: value)
    with running_replicas("folder", "cuda", 1) as (abilities, ask):
        assert (abilities, caplog.messages) == (Echo.abilities, ["old card"])
        for _ in range(2):
            assert asyncio.run(ask(["a"])) == [{"length": 1}]
    assert caplog.messages == ["old card", "fewer at a time"]
