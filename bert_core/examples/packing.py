"""A batch without padding: real tokens laid end to end, and where each sequence begins.

The step from examples to the arrays a training step eats; numpy only, so that it runs inside data tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bert_core.examples.segments import Segments, TokenizedDocuments, lay_out
from bert_core.masking import MaskingConfig, choose_masks
from bert_core.text.segment_layout import SegmentLayout


@dataclass(frozen=True)
class PackedBatch:
    """Masked pretraining examples; T real tokens, B sequences, P predicted positions."""

    input_ids: NDArray[np.int32]  # (T,)
    token_type_ids: NDArray[np.int8]  # (T,)
    cu_seqlens: NDArray[np.int32]  # (B + 1,)
    masked_positions: NDArray[np.int32]  # (P,) ascending, into T
    masked_labels: NDArray[np.int32]  # (P,)
    sentence_labels: NDArray[np.int8]  # (B,) 0 = B follows A, 1 = it is random or comes before A; (0,) without pairs

    @property
    def num_sequences(self) -> int:
        """B."""
        return len(self.cu_seqlens) - 1

    def split(self, num_sequences: int) -> list["PackedBatch"]:
        """Consecutive batches of at most `num_sequences` sequences, for accumulation."""
        starts = range(0, self.num_sequences, num_sequences)
        return [self._part(start, min(start + num_sequences, self.num_sequences)) for start in starts]

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


def build_packed_batch(
    documents: TokenizedDocuments,
    segments: Segments,
    masking: MaskingConfig,
    *,
    layout: SegmentLayout,
    seed: int,
    epoch: int,
    example: NDArray[np.int64],
) -> PackedBatch:
    """Lay the examples end to end and mask them; each example's part is a function of its own number."""
    laid = lay_out(documents, segments, layout)
    input_ids, continues = laid.input_ids, None
    if masking.unit != "token" and masking.word_pieces is not None:
        continues = masking.word_pieces.continue_word(input_ids)
    positions, replacements = choose_masks(
        input_ids,
        laid.cu_seqlens,
        ~laid.is_special,
        masking,
        continues=continues,
        seed=seed,
        epoch=epoch,
        example=example,
    )
    labels = input_ids[positions]
    input_ids[positions] = replacements
    return PackedBatch(
        input_ids,
        laid.token_type_ids,
        laid.cu_seqlens,
        positions.astype(np.int32),
        labels,
        segments.sentence_labels,
    )
