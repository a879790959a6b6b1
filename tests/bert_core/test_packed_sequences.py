"""Packed sequences, ragged rows, and their copies on a device.

Alone: pytest tests/bert_core/test_packed_sequences.py
"""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.device_copies import AsyncReads, copy_together
from bert_core.errors import DataError
from bert_core.packed_sequences import PackedSequences
from bert_core.ragged_rows import ragged_ranges, running_totals
from tests.synchronizations import GPU, FakeGpu

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def packed(lengths: list[int]) -> PackedSequences:
    total = sum(lengths)
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths)])
    return PackedSequences.from_numpy(np.arange(total, dtype=np.int32), np.zeros(total, np.int8), cu_seqlens)


def assert_same(again: PackedSequences, seqs: PackedSequences) -> None:
    assert again.max_seqlen == seqs.max_seqlen
    for name in ("input_ids", "token_type_ids", "position_ids", "cu_seqlens", "indices", "attention_mask"):
        assert torch.equal(getattr(again, name), getattr(seqs, name)), name


@settings(deadline=None)
@given(LENGTHS)
def test_positions_restart_in_each_sequence(lengths: list[int]) -> None:
    expected = [position for length in lengths for position in range(length)]
    assert packed(lengths).position_ids.tolist() == expected


@settings(deadline=None)
@given(LENGTHS)
def test_a_known_longest_length_gives_the_same_batch_unchecked(lengths: list[int]) -> None:
    seqs = packed(lengths)
    again = PackedSequences.from_lengths(seqs.input_ids, seqs.token_type_ids, seqs.cu_seqlens, max_seqlen=max(lengths))
    assert_same(again, seqs)


@settings(deadline=None)
@given(LENGTHS, st.integers(0, 4))
def test_pack_undoes_unpack_and_padding_is_zero(lengths: list[int], extra: int) -> None:
    seqs = packed(lengths)
    values = torch.arange(1.0, 2 * seqs.num_tokens + 1).view(-1, 2)
    rows = seqs.unpack(values, seqs.max_seqlen + extra)
    assert rows.shape == (len(lengths), max(lengths) + extra, 2)
    assert torch.equal(seqs.pack(rows), values)
    assert int((rows != 0).sum()) == values.numel()


@settings(deadline=None)
@given(LENGTHS, st.integers(0, 3))
def test_padded_rows_and_lengths_give_the_same_batch(lengths: list[int], extra: int) -> None:
    seqs = packed(lengths)
    width = max(lengths) + extra
    again = PackedSequences.from_padded(
        seqs.unpack(seqs.input_ids, width), torch.arange(width) < torch.tensor(lengths)[:, None]
    )
    assert_same(again, seqs)


def test_position_is_the_column_when_padding_lies_left_or_between() -> None:
    mask = torch.tensor([[0, 0, 1, 1, 0], [1, 0, 1, 0, 0]])
    seqs = PackedSequences.from_padded(torch.arange(10).view(2, 5), mask)
    assert seqs.input_ids.tolist() == [2, 3, 5, 7]
    assert seqs.position_ids.tolist() == [2, 3, 0, 2]
    assert seqs.cu_seqlens.tolist() == [0, 2, 4]
    assert seqs.max_seqlen == 4
    assert seqs.first_tokens.tolist() == [0, 2]


def test_to_moves_every_tensor() -> None:
    moved = packed([2, 3]).to("meta")
    assert all(value.is_meta for value in vars(moved).values() if isinstance(value, torch.Tensor))
    assert moved.max_seqlen == 3


@pytest.mark.parametrize("cu_seqlens", [[0], [0, 3], [1, 4], [0, 2, 2, 4], [0, 3, 2, 4]])
def test_lengths_that_do_not_fit_are_refused(cu_seqlens: list[int]) -> None:
    tokens = torch.zeros(4)
    with pytest.raises(DataError, match="cu_seqlens"):
        PackedSequences.from_lengths(tokens, tokens, torch.tensor(cu_seqlens))


@pytest.mark.parametrize("mask", [torch.tensor([[1, 1, 0], [0, 0, 0]]), torch.ones(2, 2)])
def test_rows_and_shapes_that_do_not_fit_are_refused(mask: torch.Tensor) -> None:
    with pytest.raises(DataError):
        PackedSequences.from_padded(torch.ones(2, 3), mask)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=10))
@settings(max_examples=50, deadline=None)
def test_ranges_are_those_of_a_loop(ranges: list[tuple[int, int]]) -> None:
    starts, lengths = (np.array(column, np.int64) for column in (zip(*ranges, strict=True) if ranges else ([], [])))
    expected = [place for start, length in ranges for place in range(start, start + length)]
    assert ragged_ranges(starts, lengths).tolist() == expected


@given(st.lists(st.lists(st.integers(-5, 5), max_size=5), max_size=6))
@settings(max_examples=50, deadline=None)
def test_totals_begin_anew_with_each_row(table: list[list[int]]) -> None:
    values = np.array([value for row in table for value in row], np.int64)
    rows = np.array([number for number, row in enumerate(table) for _ in row], np.int64)
    expected = [sum(row[: place + 1]) for row in table for place in range(len(row))]
    assert running_totals(values, rows).tolist() == expected


def test_tensors_of_all_types_and_shapes_arrive_in_one_transfer() -> None:
    tensors = {
        "ids": torch.arange(7),
        "mask": torch.tensor([[True, False, True]]),
        "none": torch.zeros(0, 3),
        "borders": torch.tensor([0, 3, 7], dtype=torch.int32),
        "states": torch.randn(7, 3).t(),
        "half": torch.randn(5).bfloat16(),
    }
    with FakeGpu() as gpu:
        copies = copy_together(tensors, GPU)
    assert gpu.num_transfers == 1
    assert list(copies) == list(tensors)
    for name, tensor in tensors.items():
        torch.testing.assert_close(copies[name], tensor, rtol=0, atol=0)
        assert copies[name].data_ptr() % tensor.element_size() == 0


def test_sequences_go_to_a_gpu_in_one_transfer() -> None:
    host = PackedSequences.from_numpy(np.arange(5), np.zeros(5), np.array([0, 2, 5]))
    with FakeGpu() as gpu:
        moved = host.to(GPU)
    assert gpu.num_transfers == 1
    assert moved.max_seqlen == host.max_seqlen
    assert all(torch.equal(tensor, host.tensors()[name]) for name, tensor in moved.tensors().items())


def test_on_a_cpu_the_tensors_are_the_same_memory() -> None:
    tensors = {"ids": torch.arange(3)}
    assert copy_together(tensors, torch.device("cpu"))["ids"].data_ptr() == tensors["ids"].data_ptr()


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
    reads = AsyncReads(lambda rows, values: told.append(f"store {rows.tolist()} {values.tolist()}"))
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
    AsyncReads(stored.__setitem__).add(np.array([2, 0]), torch.tensor([5.0, 3.0]))
    assert stored.tolist() == [3.0, 0.0, 5.0, 0.0]
