"""The checkpoint that the first worker reads and sends to the others; what was sent is kept and played back.

Run alone: pytest tests/orchestrator/pretraining/test_shared_checkpoint.py
"""

import errno
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bert_core.errors import CheckpointError
from orchestrator.pretraining.collectives import Worker, read_for_all
from orchestrator.training.checkpoints import Checkpoints

FIRST, SECOND = Worker(0, 2), Worker(1, 2)
EXTRA = {"rates": [0.1, 1e-17], "name": "é", "totals": None}


class Wire:
    """What the first worker has sent; the second gets it in the same order."""

    def __init__(self) -> None:
        self.messages: list[Tensor | bytes] = []
        self.is_received = False
        self._to_come: Iterator[Tensor | bytes] = iter(())

    def broadcast(self, values: Tensor, src: int) -> None:
        assert src == 0
        if not self.is_received:
            self.messages.append(values.clone())
        else:
            message = next(self._to_come)
            assert isinstance(message, Tensor)
            assert message.shape == values.shape
            values.copy_(message)

    def broadcast_object_list(self, values: list[Any], src: int, device: torch.device) -> None:
        assert (src, device) == (0, FIRST.device)
        if not self.is_received:
            self.messages.append(pickle.dumps(values))
        else:
            message = next(self._to_come)
            assert isinstance(message, bytes)
            values[:] = pickle.loads(message)

    def turn(self) -> None:
        self.is_received, self._to_come = True, iter(self.messages)

    def is_empty(self) -> bool:
        return next(self._to_come, None) is None


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    wire = Wire()
    monkeypatch.setattr(torch.distributed, "broadcast", wire.broadcast)
    monkeypatch.setattr(torch.distributed, "broadcast_object_list", wire.broadcast_object_list)
    return wire


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 7))
    model.register_buffer("count", torch.tensor(3))
    optimizer = torch.optim.AdamW(model.parameters())
    model[1](model[0](torch.ones(1, 3))).sum().backward()
    optimizer.step()
    return model, optimizer


def told(text: str) -> None:
    """A listener of warnings."""


def receive(wire: Wire) -> Any:
    """What the second worker has; it reads nothing itself."""
    wire.turn()
    return read_for_all(Checkpoints("nowhere"), SECOND, told)


def test_all_workers_have_the_same_state(tmp_path: Path, wire: Wire) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    checkpoints.save(7, *trained(), EXTRA)
    own = read_for_all(checkpoints, FIRST, told)
    assert own is not None
    event, state = receive(wire)
    assert wire.is_empty()
    assert event == own[0]
    assert state.extra == own[1].extra == EXTRA
    assert state.param_groups == own[1].param_groups
    for ours, theirs in ((own[1].weights, state.weights), (own[1].optimizer_tensors, state.optimizer_tensors)):
        assert list(ours) == list(theirs)
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
        assert all(ours[name].dtype == theirs[name].dtype for name in ours)
    model, optimizer = trained()
    state.load_into(model, optimizer)
    assert len(wire.messages) > 4


def test_all_workers_begin_anew_without_a_checkpoint(tmp_path: Path, wire: Wire) -> None:
    assert read_for_all(Checkpoints(str(tmp_path)), FIRST, told) is None
    assert receive(wire) is None
    assert wire.is_empty()


def test_all_workers_fall_back_to_the_checkpoint_before_a_damaged_one(tmp_path: Path, wire: Wire) -> None:
    checkpoints, warnings = Checkpoints(str(tmp_path)), []
    for step in (1, 2):
        path = checkpoints.save(step, *trained(), {}).path
    (Path(path) / "model.safetensors").write_bytes(b"")
    read_for_all(checkpoints, FIRST, warnings.append)
    assert receive(wire)[0].step == 1
    assert len(warnings) == 1


def test_what_a_person_has_to_mend_ends_all_workers_with_the_same_words(tmp_path: Path, wire: Wire) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    path = checkpoints.save(1, *trained(), {}).path
    (Path(path) / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="start a new run") as own:
        read_for_all(checkpoints, FIRST, told)
    with pytest.raises(CheckpointError) as theirs:
        receive(wire)
    assert str(theirs.value) == str(own.value)


def test_a_storage_that_does_not_answer_starts_all_workers_anew(
    tmp_path: Path, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(checkpoints: Checkpoints, warn: object) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(Checkpoints, "read_newest", fail)
    with pytest.raises(OSError, match="Stale file handle"):
        read_for_all(Checkpoints(str(tmp_path)), FIRST, told)
    with pytest.raises(RuntimeError, match=r"the first worker could not read a checkpoint: .*Stale file handle"):
        receive(wire)
