"""Training by in-batch negatives: cross entropy of finding each text's partner."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bert_core.embedding_losses import find_positives, in_batch_negatives_loss
from bert_core.vector_index import build_index
from orchestrator.finetuning.embedding_objectives.base import EmbeddingLoss, PairModel

_NUM_CANDIDATES = 100


class InBatchNegativesLoss(EmbeddingLoss):
    """Each first text finds its second one among those of all pairs."""

    compares_pairs = True

    def loss(self, model: PairModel, first: Tensor, second: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy over first texts; targets are the texts' numbers, (B, 2), the same for equal texts."""
        is_positive = find_positives(*targets.unbind(1))
        return in_batch_negatives_loss(first, second, model.temperature, is_positive=is_positive)

    def outputs(self, model: PairModel, first: Tensor, second: Tensor) -> NDArray[Any]:
        """The pairs whose second texts are nearest to each first text, nearest first: (N, K)."""
        index = build_index([str(row) for row in range(len(second))], second.cpu().numpy())
        return np.array([[int(hit.id) for hit in hits] for hits in index.search(first.cpu().numpy(), _NUM_CANDIDATES)])
