"""Micro-batches of a fine-tuning: how many examples of a batch go through the model at a time.

Dropout is drawn for each micro-batch, so the size is part of a checkpoint.
"""

import numpy as np
from numpy.typing import NDArray

from orchestrator.training.micro_batches import MicroBatchSize


class MicroBatches(MicroBatchSize[NDArray[np.int64]]):
    """Size of the micro-batches of a fine-tuning. What is cut are numbers of groups of windows, a group an example."""

    field = "recipe.micro_batch_size"
    whole = "batch"
    remedy = (
        "lower recipe.max_seq_length, use a smaller model or, in a sweep, let fewer trials share a card "
        "(execution.gpus_per_trial 1)"
    )

    def split(self, batch: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Cut a step's groups into its micro-batches."""
        if self.size is None:
            return [batch]
        return [batch[place : place + self.size] for place in range(0, len(batch), self.size)]

    def num_examples(self, part: NDArray[np.int64]) -> int:
        """Count the groups of a micro-batch."""
        return len(part)
