"""Sizes in buckets: a batch is filled up to one of few sizes, so that what is made for a size is made seldom.

Filler are sequences behind those of the batch, and predictions with a label of -100. No token of the batch attends to
another sequence, and a label of -100 counts in no loss, so filler changes losses and gradients by their rounding alone.

Shapes: T tokens, B sequences, P predicted positions.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bert_core.constants import IGNORE_INDEX
from bert_core.examples.packing import PackedBatch

_BITS = 5
"""Binary digits of a size that may be other than 0: sixteen sizes from a power of two to the next."""
_FILLER_ID = 0


@dataclass(frozen=True)
class SizeBucket:
    """Sizes that a batch is filled up to."""

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
