"""Requests that are answered together, below Ray.

Alone: .venv/bin/pytest tests/orchestrator/serving/test_replicas.py
"""

from collections.abc import Sequence
from typing import Any

import pytest

from orchestrator.cluster.capacity import ClusterRoom
from orchestrator.errors import ClusterError, InputError
from orchestrator.inference.answering import Abilities, Read
from orchestrator.serving import replicas
from orchestrator.serving.replicas import answer_together, running_replicas


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
