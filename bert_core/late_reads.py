"""Reading of results from a device one batch late, so that a GPU has the next batch in line while the host waits."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Store = Callable[[NDArray[np.int64], NDArray[np.float32]], None]
"""Function that takes the numbers of a batch's rows, and their results."""


class LateReads:
    """Results on their way to the host: each batch's are stored after the batch behind it was launched.

    A read from a GPU waits until the GPU has come so far: were each batch read before the next one is launched, the GPU
    would stand still while the host makes that one. Results on a CPU are stored at once.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._coming: tuple[NDArray[np.int64], Tensor, torch.cuda.Event] | None = None

    def add(self, rows: NDArray[np.int64], values: Tensor) -> None:
        """Begin to copy a batch's results, float32, to the host, and store those of the batch before it."""
        if not values.is_cuda:
            self._store(rows, values.numpy())
            return
        copy = values.to("cpu", non_blocking=True)  # page-locked memory, which torch takes for such a copy
        arrived = torch.cuda.current_stream(values.device).record_event()
        self.finish()
        self._coming = rows, copy, arrived

    def finish(self) -> None:
        """Wait for the results that are not stored yet, if there are any, and store them."""
        if self._coming is not None:
            rows, copy, arrived = self._coming
            arrived.synchronize()
            self._store(rows, copy.numpy())
            self._coming = None  # now: where waiting failed for want of memory, a later call waits again
