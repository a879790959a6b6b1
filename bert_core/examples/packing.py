"""A batch without padding: real tokens laid end to end, filled up to one of few sizes where sizes are costly. No torch.

Shapes: T real tokens, B sequences, P predicted positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bert_core.constants import IGNORE_INDEX
from bert_core.ragged_rows import Int64Array, ragged_ranges


@dataclass(frozen=True)
class PackedBatch:
    """Examples of pretraining, as the input of a training step."""

    input_ids: NDArray[np.int32]
    """(T,) tokens as the model reads them"""
    token_type_ids: NDArray[np.int8]
    """(T,) 0 in segment A, 1 in segment B"""
    cu_seqlens: NDArray[np.int32]
    """(B + 1,) sequence b is tokens cu_seqlens[b] to cu_seqlens[b + 1]"""
    masked_positions: NDArray[np.int32]
    """(P,) positions whose tokens were hidden, ascending, into T; (0,) where the objective hides nothing"""
    masked_labels: NDArray[np.int32]
    """(P,) the token ids that stood there before masking"""
    sentence_labels: NDArray[np.int8]
    """(B,) the label of each pair of segments, 0 or 1; (0,) for single sequences"""
    draws: NDArray[np.int32]
    """(P,) a random number below 2³¹ for each masked position, by which a generator's token is drawn; (0,) without"""

    @property
    def num_sequences(self) -> int:
        return len(self.cu_seqlens) - 1

    def split(self, num_sequences: int) -> list["PackedBatch"]:
        """Consecutive batches of at most `num_sequences` sequences, for gradient accumulation."""
        starts = range(0, self.num_sequences, num_sequences)
        return [self._part(start, min(start + num_sequences, self.num_sequences)) for start in starts]

    def split_by_tokens(self, num_tokens: int) -> list["PackedBatch"]:
        """Consecutive batches of as many sequences as fit in `num_tokens` tokens; a longer one is a batch itself."""
        bounds = [0]
        while bounds[-1] < self.num_sequences:
            first = bounds[-1]
            last = int(np.searchsorted(self.cu_seqlens, self.cu_seqlens[first] + num_tokens, side="right")) - 1
            bounds.append(max(first + 1, last))
        return [self._part(first, last) for first, last in pairwise(bounds)]

    def take(self, rows: Int64Array) -> "PackedBatch":
        """The sequences of these numbers, (n,), in their order."""
        lengths = np.diff(self.cu_seqlens)[rows]
        tokens = ragged_ranges(self.cu_seqlens[rows].astype(np.int64), lengths)
        cu_seqlens = np.append(0, np.cumsum(lengths)).astype(np.int32)
        borders = np.searchsorted(self.masked_positions, self.cu_seqlens)
        num_masked = np.diff(borders)[rows]
        masked = ragged_ranges(borders[rows], num_masked)
        shifts = np.repeat(cu_seqlens[:-1] - self.cu_seqlens[rows], num_masked)
        return PackedBatch(
            self.input_ids[tokens],
            self.token_type_ids[tokens],
            cu_seqlens,
            self.masked_positions[masked] + shifts,
            self.masked_labels[masked],
            self.sentence_labels[rows] if len(self.sentence_labels) else self.sentence_labels,
            self.draws[masked] if len(self.draws) else self.draws,
        )

    @staticmethod
    def concatenate(parts: Sequence["PackedBatch"]) -> "PackedBatch":
        if len(parts) == 1:
            return parts[0]
        shifts = np.cumsum([0, *(len(part.input_ids) for part in parts)]).astype(np.int32)
        ends = [part.cu_seqlens[1:] + shift for part, shift in zip(parts, shifts, strict=False)]
        places = [part.masked_positions + shift for part, shift in zip(parts, shifts, strict=False)]
        joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])}
        moved = {
            "cu_seqlens": np.concatenate([np.zeros(1, np.int32), *ends]),
            "masked_positions": np.concatenate(places),
        }
        return PackedBatch(**(joined | moved))

    def _part(self, first: int, last: int) -> "PackedBatch":
        begin, end = self.cu_seqlens[first], self.cu_seqlens[last]
        low, high = np.searchsorted(self.masked_positions, [begin, end])
        return PackedBatch(
            self.input_ids[begin:end],
            self.token_type_ids[begin:end],
            self.cu_seqlens[first : last + 1] - begin,
            self.masked_positions[low:high] - begin,
            self.masked_labels[low:high],
            self.sentence_labels[first:last],
            self.draws[low:high],
        )


_BITS = 5
"""Binary digits of a size that may be other than 0: sixteen sizes from a power of two to the next."""
_FILLER_ID = 0


@dataclass(frozen=True)
class SizeBucket:
    """Sizes that a batch is filled up to, few, so that what is made for a size (a CUDA graph) is made seldom.

    Filler are sequences behind those of the batch, and predictions with a label of -100. No token of the batch attends
    to another sequence, and a label of -100 counts in no loss: filler changes losses and gradients by rounding alone.
    """

    num_tokens: int
    """T, those of filler too."""
    num_sequences: int
    """B, those of filler too."""
    num_fillers: int
    """Number of sequences at the end that are filler."""
    max_seqlen: int
    """Length that no sequence exceeds."""
    num_predictions: int
    """P, those of filler too."""
    num_sentence_labels: int
    """B, or 0 where the batch has no such labels."""

    @classmethod
    def of(cls, batch: PackedBatch, longest: int) -> Self:
        """Find the bucket of a batch, for a model that reads `longest` tokens at most."""
        num_tokens, num_predictions = len(batch.input_ids), len(batch.masked_positions)
        max_seqlen = int(np.diff(batch.cu_seqlens).max())
        max_seqlen = max(2, min(_round_up(max_seqlen, _step(max_seqlen)), longest))
        step = _step(num_tokens)
        # As many as hold the most filler that rounding up may ask for, with a token in each.
        num_fillers = max(1, -(-(step - 1) // (max_seqlen - 1)))
        num_sequences = batch.num_sequences + num_fillers
        return cls(
            num_tokens=_round_up(num_tokens + num_fillers, step),
            num_sequences=num_sequences,
            num_fillers=num_fillers,
            max_seqlen=max_seqlen,
            num_predictions=_round_up(num_predictions, _step(num_predictions)),
            num_sentence_labels=num_sequences if len(batch.sentence_labels) else 0,
        )

    def fill(self, batch: PackedBatch) -> PackedBatch:
        """Fill up a batch of this bucket; its own sequences and predictions stay in front."""
        num_before = len(batch.input_ids)
        num_missing = self.num_tokens - num_before
        ends = num_before + num_missing * np.arange(1, self.num_fillers + 1) // self.num_fillers
        return replace(
            batch,
            input_ids=_extended(batch.input_ids, self.num_tokens, _FILLER_ID),
            token_type_ids=_extended(batch.token_type_ids, self.num_tokens, 0),
            cu_seqlens=np.concatenate([batch.cu_seqlens, ends.astype(batch.cu_seqlens.dtype)]),
            masked_positions=_extended(batch.masked_positions, self.num_predictions, num_before),
            masked_labels=_extended(batch.masked_labels, self.num_predictions, IGNORE_INDEX),
            sentence_labels=_extended(batch.sentence_labels, self.num_sentence_labels, IGNORE_INDEX),
        )


def _step(size: int) -> int:
    """Distance of the sizes around a size, a power of two."""
    return 1 << max(0, size.bit_length() - _BITS)


def _round_up(size: int, step: int) -> int:
    return -(-size // step) * step


def _extended(values: NDArray[Any], size: int, filler: int) -> NDArray[Any]:
    """Values with filler behind them, of the same type: (n,) → (size,)."""
    return np.concatenate([values, np.full(size - len(values), filler, values.dtype)])
