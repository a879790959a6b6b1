"""Room for windows that are only answered: cuts by padded tokens, halves where memory runs out, what is told.

Run alone: pytest tests/orchestrator/finetuning/test_scoring_room.py
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import RunFailedError
from orchestrator.finetuning.logits import _windows_at_a_time
from orchestrator.finetuning.scoring_room import ScoringRoom

LENGTHS = np.array([5, 30, 8, 8, 30, 4])


class SmallDevice:
    """A device whose memory holds so many padded tokens, and what it has computed."""

    def __init__(self, lengths: np.ndarray, room: int) -> None:
        self.lengths, self.room = lengths, room
        self.done: list[list[int]] = []

    def __call__(self, windows: np.ndarray) -> None:
        if len(windows) * self.lengths[windows].max() > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory.\nGPU 0 has 79 GiB.")
        self.done.append(windows.tolist())


def test_a_gpu_takes_as_many_windows_as_there_is_room_for_where_nobody_says_a_number() -> None:
    assert [_windows_at_a_time(torch.device(name), 500) for name in ("cpu", "cuda")] == [64, 500]


def test_what_fits_is_kept_for_the_next_windows_and_told_once() -> None:
    told: list[str] = []
    room, device = ScoringRoom(1000, told.append), SmallDevice(LENGTHS, 40)
    room.compute(LENGTHS, 4, device)
    assert told == [
        "memory ran out while texts were answered, 4 at a time of up to 30 tokens (CUDA out of memory.); from here on "
        "60 tokens at a time",
        "memory ran out while texts were answered, 2 at a time of up to 30 tokens (CUDA out of memory.); from here on "
        "30 tokens at a time",
    ]
    room.compute(LENGTHS, 4, device)
    assert len(told) == 2
    assert device.done[-4:] == [[1], [4], [2, 3, 0], [5]]


def test_a_window_that_does_not_fit_alone_is_refused_with_a_remedy() -> None:
    room = ScoringRoom(1000, lambda warning: None)
    with pytest.raises(
        RunFailedError, match=r"^memory ran out with one example at a time \(CUDA out of memory\.\); use"
    ):
        room.compute(LENGTHS, 4, SmallDevice(LENGTHS, 20))


@given(
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=30),
    batch_size=st.integers(1, 40),
    spare=st.integers(0, 99),
)
def test_each_window_is_computed_whatever_fits(lengths: list[int], batch_size: int, spare: int) -> None:
    device = SmallDevice(np.array(lengths), max(lengths) + spare)
    ScoringRoom(1000, lambda warning: None).compute(np.array(lengths), batch_size, device)
    assert {number for windows in device.done for number in windows} == set(range(len(lengths)))
