"""Cosine as an embedding objective, in training: squared distance of a pair's cosine from its score."""

from typing import Any

import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bert_core.embedding_losses import cosine_regression_loss
from orchestrator.finetuning.embedding_objectives.base import EmbeddingLoss, PairModel


class CosineLoss(EmbeddingLoss):
    """The cosine is the score."""

    def loss(self, model: PairModel, first: Tensor, second: Tensor, targets: Tensor) -> Tensor:
        """Mean squared difference of cosine and score."""
        return cosine_regression_loss(first, second, targets)

    def outputs(self, model: PairModel, first: Tensor, second: Tensor) -> NDArray[Any]:
        """Cosines, (N,)."""
        cosines: NDArray[Any] = F.cosine_similarity(first, second, dim=-1).cpu().numpy()
        return cosines
