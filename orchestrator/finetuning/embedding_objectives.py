"""The contract of an embedding objective in training: its loss on a batch of pairs, and what it predicts of a split's.

An objective is an object without state; what it learns or is told lies in the model. Its other half, torch-free, is
the object of the same name in `orchestrator.tasks.types.embedding_objectives`.

Shapes: B pairs of a batch, N pairs of a split, H hidden, C classes, K candidates.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bert_core.embedding_losses import PairClassifier, cosine_regression_loss, find_positives, in_batch_negatives_loss
from bert_core.vector_index import build_index
from orchestrator.specs.task import EmbeddingObjectiveName


class PairModel(Protocol):
    """Parts of a model that an objective reads beside the vectors."""

    temperature: float
    """Divisor of cosines before a softmax."""
    classifier: PairClassifier | None
    """The classifier of pairs, in a model that has one."""


class EmbeddingLoss(ABC):
    """Objective that the vectors of pairs are trained on and compared by."""

    needs_classifier: ClassVar[bool] = False
    """Whether the model needs a classifier of pairs."""
    compares_pairs: ClassVar[bool] = False
    """Whether the loss compares a batch's pairs with one another: it is no mean over them then. Such an objective
    learns nothing of its own, as it is computed once for each part of a batch."""

    @abstractmethod
    def loss(self, model: PairModel, first: Tensor, second: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of pairs, given the labels of `tasks.types`: (B, H), (B, H), (B,) or (B, 2) → scalar."""

    @abstractmethod
    def outputs(self, model: PairModel, first: Tensor, second: Tensor) -> NDArray[Any]:
        """Predict a split's pairs, in the form that the judging task type decodes: (N, H), (N, H) → (N, …)."""


class PairClassificationLoss(EmbeddingLoss):
    """A classifier on both vectors names the pair's class."""

    needs_classifier = True

    def loss(self, model: PairModel, first: Tensor, second: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy of the classes."""
        return _classifier(model).loss(first, second, targets)

    def outputs(self, model: PairModel, first: Tensor, second: Tensor) -> NDArray[Any]:
        """Class logits, (N, C)."""
        logits: NDArray[Any] = _classifier(model)(first, second).cpu().numpy()
        return logits


def _classifier(model: PairModel) -> PairClassifier:
    assert model.classifier is not None, "set_objective has seen to it"
    return model.classifier


class CosineLoss(EmbeddingLoss):
    """The cosine is the score."""

    def loss(self, model: PairModel, first: Tensor, second: Tensor, targets: Tensor) -> Tensor:
        """Mean squared difference of cosine and score."""
        return cosine_regression_loss(first, second, targets)

    def outputs(self, model: PairModel, first: Tensor, second: Tensor) -> NDArray[Any]:
        """Cosines, (N,)."""
        cosines: NDArray[Any] = F.cosine_similarity(first, second, dim=-1).cpu().numpy()
        return cosines


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


EMBEDDING_LOSSES: Mapping[EmbeddingObjectiveName, EmbeddingLoss] = MappingProxyType(
    {
        "cosine": CosineLoss(),
        "in_batch_negatives": InBatchNegativesLoss(),
        "classification": PairClassificationLoss(),
    }
)
"""Every embedding objective in training by its name."""

__all__ = ["EMBEDDING_LOSSES", "EmbeddingLoss", "PairModel"]
