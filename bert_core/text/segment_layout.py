"""Where special tokens stand in what a model reads: around a segment, and between the two of a pair."""

from dataclasses import dataclass

NUM_SINGLE_SPECIALS = 2
"""[CLS] A [SEP]"""


@dataclass(frozen=True)
class SegmentLayout:
    """The ids in `prefix` A `suffix` and in `prefix` A `between` B `suffix`.

    `[CLS] A [SEP] B [SEP]` (Devlin et al. 2019, figure 2), or RoBERTa's `<s> A </s></s> B </s>`.
    """

    prefix: int
    between: tuple[int, ...]
    suffix: int
    """Ends the last segment, and each document that a sequence without pairs runs on from."""
    type_of_second: int
    """Token type of B and of the suffix after it, 0 where a model has one type only; all before them have type 0."""

    @property
    def num_pair_specials(self) -> int:
        """Special tokens of a pair."""
        return NUM_SINGLE_SPECIALS + len(self.between)
