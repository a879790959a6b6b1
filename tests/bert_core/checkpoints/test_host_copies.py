"""Copies of tensors in the host's memory, of a GPU that a fake stands for.

Run alone: pytest tests/bert_core/checkpoints/test_host_copies.py
"""

import logging
from typing import Any

import pytest
import torch

from bert_core.checkpoints.host_copies import HostCopies


class TensorOnGpu(torch.Tensor):
    """A tensor that says it is on a GPU of this number."""

    number: int

    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    device = property(lambda self: torch.device("cuda", self.number))  # type: ignore[assignment]

    def detach(self) -> torch.Tensor:
        return self.as_subclass(torch.Tensor)  # type: ignore[arg-type]


def on_gpu(number: int, *values: float) -> torch.Tensor:
    tensor = torch.tensor(values).as_subclass(TensorOnGpu)
    tensor.number = number
    return tensor


def test_copies_stay_while_the_tensors_change_and_are_overwritten_by_the_next() -> None:
    copies, weight = HostCopies(), torch.tensor([1.0, 2.0])
    copy = copies.of({"weight": weight})["weight"]
    weight += 1
    assert copy.tolist() == [1.0, 2.0]
    assert copies.of({"weight": weight})["weight"] is copy
    assert copy.tolist() == [2.0, 3.0]
    assert copies.of({"weight": torch.ones(3)})["weight"].tolist() == [1.0, 1.0, 1.0]


@pytest.fixture
def waited_for(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    devices: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", devices.append)
    return devices


def test_the_gpus_of_the_tensors_are_waited_for_and_no_other(
    monkeypatch: pytest.MonkeyPatch, waited_for: list[torch.device], caplog: pytest.LogCaptureFixture
) -> None:
    """Without page-locked memory too, and that is told once."""
    empty, asked = torch.empty, []

    def without_page_locks(*arguments: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        asked.append(pin_memory)
        if pin_memory:
            raise RuntimeError("CUDA error: out of memory")
        return empty(*arguments, **options)

    monkeypatch.setattr(torch, "empty", without_page_locks)
    copies = HostCopies()
    tensors = {"a": on_gpu(1, 1.0), "b": on_gpu(1, 2.0), "c": torch.tensor([3.0])}
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            copied = copies.of(tensors)
    assert {name: copy.item() for name, copy in copied.items()} == {"a": 1.0, "b": 2.0, "c": 3.0}
    assert waited_for == [torch.device("cuda", 1)] * 2
    assert asked == [True, False, False, False]
    (record,) = caplog.records
    assert "no page-locked memory for the copy of a checkpoint (CUDA error: out of memory)" in record.message
