"""Size of prefetch windows, from the time that windows take to build and to be trained on. No Ray.

A pipeline of Ray Data costs about half a second before its first block, whatever it builds. A window that a fast device
has done with in less than that starves it. So windows grow, at most to twice the size each time, until one lasts
`TARGET_S` at the slower of two speeds, the training's and the data tasks', or takes the memory that it may. Where
the data tasks are slower, longer windows would gain nothing. What a step contains does not depend on windows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

TARGET_S = 5.0
"""Seconds that a window is to last, so that what a pipeline costs at its start is a tenth of them."""
FEWEST_BLOCKS = 8
"""Blocks of the first window of a run."""


@dataclass(frozen=True)
class WindowTimes:
    """Measurements of a prefetch window that has been trained on."""

    num_blocks: int
    num_tokens: int
    num_bytes: int
    build_s: float
    """Seconds from the start of its pipeline to its last block."""
    train_s: float
    """Seconds that its batches were worked on, without waiting for them; evaluations and checkpoints included."""


class PrefetchPace:
    """Number of blocks of the next prefetch window.

    Args:
        max_window_bytes: bytes that a window may take.
        warn: told, in one line and once, that the data tasks are slower than the training.
    """

    def __init__(self, max_window_bytes: float = math.inf, warn: Callable[[str], None] = lambda message: None) -> None:
        self.num_blocks = FEWEST_BLOCKS
        self._max_window_bytes, self._warn = max_window_bytes, warn
        self._has_warned = False

    def note(self, window: WindowTimes) -> None:
        """Learn from a window that has been trained on. Sizes only grow, as an evaluation makes a window look slow."""
        wanted = math.ceil(TARGET_S * window.num_blocks / max(window.train_s, window.build_s, 1e-9))
        room = max(1, math.floor(self._most_blocks(window)))
        if window.num_blocks >= min(wanted, room):
            self._warn_if_slow(window)
        self.num_blocks = min(max(self.num_blocks, min(2 * self.num_blocks, wanted)), room)

    def _most_blocks(self, window: WindowTimes) -> float:
        """Blocks of the memory that a window may take, if they are as large as this one's."""
        if math.isinf(self._max_window_bytes):
            return 1e9
        return self._max_window_bytes * window.num_blocks / max(window.num_bytes, 1)

    def _warn_if_slow(self, window: WindowTimes) -> None:
        """Warn where a window of full size took longer to build than to be trained on."""
        if self._has_warned or window.build_s <= window.train_s:
            return
        self._has_warned = True
        built, trained = (window.num_tokens / max(seconds, 1e-9) for seconds in (window.build_s, window.train_s))
        self._warn(
            f"data tasks deliver {built:,.0f} tokens/s, training takes {trained:,.0f}: raise execution.data_cpus"
        )
