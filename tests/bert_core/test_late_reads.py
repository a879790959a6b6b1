"""Results read one batch late, from a GPU that a fake stands for; on a CPU at once.

Run alone: pytest tests/bert_core/test_late_reads.py
"""

from typing import Any

import numpy as np
import pytest
import torch

from bert_core.late_reads import LateReads
from bert_core.text_embedding import _tokens_at_a_time


class ResultOnGpu(torch.Tensor):
    """A result that says it is on a GPU, and writes down in `told` that it is copied."""

    told: list[str]

    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    device = property(lambda self: torch.device("cuda", 0))  # type: ignore[assignment]

    def to(self, target: str, *, non_blocking: bool) -> torch.Tensor:  # type: ignore[override]
        assert (target, non_blocking) == ("cpu", True)
        plain: torch.Tensor = self.as_subclass(torch.Tensor)  # type: ignore[arg-type]
        self.told.append(f"copy {float(plain[0]):.0f}")
        return plain


class FakeStream:
    """A stream whose events write down in `told` that they are waited for."""

    def __init__(self, told: list[str]) -> None:
        self.told = told

    def record_event(self) -> Any:
        return self

    def synchronize(self) -> None:
        self.told.append("wait")


def test_a_gpus_results_are_stored_after_the_next_batch_was_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: FakeStream(told))
    reads = LateReads(lambda rows, values: told.append(f"store {rows.tolist()} {values.tolist()}"))
    for number in range(3):
        told.append(f"launch {number}")
        result = torch.tensor([float(number)]).as_subclass(ResultOnGpu)
        result.told = told
        reads.add(np.array([number]), result)
    reads.finish()
    reads.finish()
    assert told == [
        *("launch 0", "copy 0", "launch 1", "copy 1", "wait", "store [0] [0.0]"),
        *("launch 2", "copy 2", "wait", "store [1] [1.0]"),
        *("wait", "store [2] [2.0]"),
    ]


def test_a_cpus_results_are_stored_at_once() -> None:
    stored = np.zeros(4, np.float32)
    LateReads(stored.__setitem__).add(np.array([2, 0]), torch.tensor([5.0, 3.0]))
    assert stored.tolist() == [3.0, 0.0, 5.0, 0.0]


def test_more_texts_are_embedded_at_a_time_on_a_gpu() -> None:
    assert [_tokens_at_a_time(torch.device(name)) for name in ("cpu", "cuda")] == [2048, 65_536]
