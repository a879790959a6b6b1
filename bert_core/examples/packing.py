"""A batch without padding: real tokens laid end to end, and where each sequence begins. No torch.

Shapes: T real tokens, B sequences, P predicted positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


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

    @property
    def num_sequences(self) -> int:
        """Number of sequences (B)."""
        return len(self.cu_seqlens) - 1

    def split(self, num_sequences: int) -> list["PackedBatch"]:
        """Consecutive batches of at most `num_sequences` sequences, for gradient accumulation."""
        starts = range(0, self.num_sequences, num_sequences)
        return [self._part(start, min(start + num_sequences, self.num_sequences)) for start in starts]

    def split_by_tokens(self, num_tokens: int) -> list["PackedBatch"]:
        """Consecutive batches of as many sequences as fit in `num_tokens` tokens; a longer one is a batch itself."""
        borders = [0]
        while borders[-1] < self.num_sequences:
            first = borders[-1]
            last = int(np.searchsorted(self.cu_seqlens, self.cu_seqlens[first] + num_tokens, side="right")) - 1
            borders.append(max(first + 1, last))
        return [self._part(first, last) for first, last in pairwise(borders)]

    @staticmethod
    def concatenate(parts: Sequence["PackedBatch"]) -> "PackedBatch":
        """All sequences of all parts, in order."""
        if len(parts) == 1:
            return parts[0]
        shifts = np.cumsum([0, *(len(part.input_ids) for part in parts)]).astype(np.int32)
        ends = [part.cu_seqlens[1:] + shift for part, shift in zip(parts, shifts, strict=False)]
        places = [part.masked_positions + shift for part, shift in zip(parts, shifts, strict=False)]
        return PackedBatch(
            np.concatenate([part.input_ids for part in parts]),
            np.concatenate([part.token_type_ids for part in parts]),
            np.concatenate([np.zeros(1, np.int32), *ends]),
            np.concatenate(places),
            np.concatenate([part.masked_labels for part in parts]),
            np.concatenate([part.sentence_labels for part in parts]),
        )

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
        )
