"""Room for windows that a model only answers: how many tokens go through it at a time, halved where memory runs out."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bert_core.micro_batches import compute_in_parts, first_line
from orchestrator.training.batch_order import MAX_PADDED_TOKENS, length_batches
from orchestrator.training.micro_batches import check_can_shrink

_REMEDY = "use a smaller model or shorter texts, or take a device with more memory"
logger = logging.getLogger(__name__)


@dataclass
class ScoringRoom:
    """Room of a device for windows that are answered, as long as somebody keeps this object."""

    max_padded_tokens: int = MAX_PADDED_TOKENS
    """Tokens at a time at most, were they padded; a window that is longer goes through alone."""
    warn: Callable[[str], None] = logger.warning
    """Told, in one line, that memory ran out and what is done about it."""

    def compute(
        self,
        lengths: NDArray[np.int64],
        batch_size: int,
        compute: Callable[[NDArray[np.int64]], None],
    ) -> None:
        """Compute something of all windows, as many at a time as fit, the longest ones first.

        Args:
            lengths: (W,) tokens of each window.
            batch_size: windows at a time at most.
            compute: called with the numbers of some windows, and again with parts of them where memory ran out.

        Raises: RunFailedError where memory runs out with a single window.
        """

        def compute_parts(parts: Sequence[NDArray[np.int64]]) -> None:
            for windows in parts:
                compute(windows)

        sizes = _WindowSizes(self, lengths)
        for windows in length_batches(lengths, batch_size, self.max_padded_tokens):
            compute_in_parts(sizes, windows, None, compute_parts)


@dataclass(frozen=True)
class _WindowSizes:
    """Sizes of what goes through at a time, of windows with these lengths."""

    room: ScoringRoom
    lengths: NDArray[np.int64]

    def split(self, batch: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Cut windows that are ordered by falling length."""
        places = length_batches(self.lengths[batch], len(batch), self.room.max_padded_tokens)
        return [batch[some] for some in places]

    def halve(self, tried: Sequence[NDArray[np.int64]], step: int | None, reason: str) -> None:
        """Take half as much at a time as was tried. Raises: RunFailedError where one window alone was too much."""
        largest = max(tried, key=self._padded_tokens)
        check_can_shrink(max(map(len, tried)), step, reason, _REMEDY)
        # A window may be longer than what is taken at a time.
        self.room.max_padded_tokens = min(self._padded_tokens(largest), self.room.max_padded_tokens) // 2
        self.room.warn(
            f"memory ran out while texts were answered, {len(largest):,} at a time of up to "
            f"{int(self.lengths[largest].max()):,} tokens ({first_line(reason)}); from here on "
            f"{self.room.max_padded_tokens:,} tokens at a time"
        )

    def _padded_tokens(self, windows: NDArray[np.int64]) -> int:
        return len(windows) * int(self.lengths[windows].max())
