"""Layout of special tokens in a sequence: around a segment, and between the two segments of a pair."""

from dataclasses import dataclass

NUM_SINGLE_SPECIALS = 2
"""Special tokens of a single segment: [CLS] A [SEP]."""


@dataclass(frozen=True)
class SegmentLayout:
    """Ids of special tokens: `prefix` A `suffix` for one segment, `prefix` A `between` B `suffix` for a pair.

    `[CLS] A [SEP] B [SEP]` (Devlin et al. 2019, figure 2), or RoBERTa's `<s> A </s></s> B </s>`.
    """

    prefix: int
    between: tuple[int, ...]
    suffix: int
    """Id that ends the last segment; it also separates documents in a sequence of several."""
    type_of_second: int
    """Token type of B and of the suffix after it, 0 where a model has one type only; all before them have type 0."""

    @property
    def num_pair_specials(self) -> int:
        """Number of special tokens of a pair."""
        return NUM_SINGLE_SPECIALS + len(self.between)
