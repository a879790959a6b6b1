"""Packing and unpacking. Run alone: pytest tests/bert_core/test_packed_sequences.py"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.errors import DataError
from bert_core.packed_sequences import PackedSequences

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def packed(lengths: list[int]) -> PackedSequences:
    total = sum(lengths)
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths)])
    return PackedSequences.from_numpy(np.arange(total, dtype=np.int32), np.zeros(total, np.int8), cu_seqlens)


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
    for name, value in vars(seqs).items():
        same = getattr(again, name)
        assert torch.equal(same, value) if isinstance(value, torch.Tensor) else same == value, name


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
    for name, value in vars(seqs).items():
        same = getattr(again, name)
        assert torch.equal(same, value) if isinstance(value, torch.Tensor) else same == value, name


def test_position_is_the_column_when_padding_lies_left_or_between() -> None:
    mask = torch.tensor([[0, 0, 1, 1, 0], [1, 0, 1, 0, 0]])
    seqs = PackedSequences.from_padded(torch.arange(10).view(2, 5), mask)
    assert seqs.input_ids.tolist() == [2, 3, 5, 7]
    assert seqs.position_ids.tolist() == [2, 3, 0, 2]
    assert seqs.cu_seqlens.tolist() == [0, 2, 4]
    assert seqs.max_seqlen == 4
    assert seqs.first_tokens.tolist() == [0, 2]


def test_kept_padding_is_a_token_but_no_key() -> None:
    seqs = PackedSequences.from_padded(torch.ones(2, 3), torch.tensor([[1, 1, 0], [1, 0, 0]]), keep_padding=True)
    assert seqs.num_tokens == 6
    assert seqs.cu_seqlens.tolist() == [0, 3, 6]
    assert seqs.attention_mask.sum().item() == 3


def test_to_moves_every_tensor() -> None:
    moved = packed([2, 3]).to("meta")
    assert all(value.is_meta for value in vars(moved).values() if isinstance(value, torch.Tensor))
    assert moved.max_seqlen == 3


@pytest.mark.parametrize("cu_seqlens", [[0], [1, 4], [0, 2, 2, 4], [0, 3, 2, 4]])
def test_lengths_that_do_not_rise_are_refused(cu_seqlens: list[int]) -> None:
    tokens = torch.zeros(4)
    with pytest.raises(DataError, match="must start at 0 and rise"):
        PackedSequences.from_lengths(tokens, tokens, torch.tensor(cu_seqlens))


def test_lengths_of_other_tokens_are_refused() -> None:
    with pytest.raises(DataError, match="cu_seqlens ends at 3, but there are 4 input_ids and 4 token_type_ids"):
        PackedSequences.from_lengths(torch.zeros(4), torch.zeros(4), torch.tensor([0, 3]))


def test_row_without_a_token_is_refused() -> None:
    with pytest.raises(DataError, match="zero over a whole row"):
        PackedSequences.from_padded(torch.ones(2, 3), torch.tensor([[1, 1, 0], [0, 0, 0]]))


def test_shapes_that_differ_are_refused() -> None:
    with pytest.raises(DataError, match=r"shapes \(2, 3\), \(2, 2\), \(2, 3\)"):
        PackedSequences.from_padded(torch.ones(2, 3), torch.ones(2, 2))
