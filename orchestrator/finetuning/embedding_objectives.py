"""The contract of an embedding objective in training: its loss on a batch of pairs, and what it predicts of a split's.

An objective is an object without state; what it learns or is told lies in the model. Its other half, torch-free, is
the object of the same name in `orchestrator.tasks.types.embedding`.

Shapes: B pairs of a batch, W texts of them, N pairs of a split, H hidden, C classes, K candidates.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bert_core.losses import PairClassifier, cosine_regression_loss, find_positives, in_batch_negatives_loss
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
    def loss(self, model: PairModel, vectors: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of pairs, given the vectors of their texts and the head's targets: (W, H), (B, …) → scalar."""

    @abstractmethod
    def outputs(self, model: PairModel, first: Tensor, second: Tensor) -> NDArray[Any]:
        """Predict a split's pairs, in the form that the judging task type decodes: (N, H), (N, H) → (N, …)."""


class PairClassificationLoss(EmbeddingLoss):
    """A classifier on both vectors names the pair's class."""

    needs_classifier = True

    def loss(self, model: PairModel, vectors: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy of the classes."""
        return _classifier(model).loss(vectors[0::2], vectors[1::2], targets)

    def outputs(self, model: PairModel, first: Tensor, second: Tensor) -> NDArray[Any]:
        """Class logits, (N, C)."""
        logits: NDArray[Any] = _classifier(model)(first, second).cpu().numpy()
        return logits


def _classifier(model: PairModel) -> PairClassifier:
    assert model.classifier is not None, "set_objective has seen to it"
    return model.classifier


class CosineLoss(EmbeddingLoss):
    """The cosine is the score."""

    def loss(self, model: PairModel, vectors: Tensor, targets: Tensor) -> Tensor:
        """Mean squared difference of cosine and score."""
        return cosine_regression_loss(vectors[0::2], vectors[1::2], targets)

    def outputs(self, model: PairModel, first: Tensor, second: Tensor) -> NDArray[Any]:
        """Cosines, (N,)."""
        cosines: NDArray[Any] = F.cosine_similarity(first, second, dim=-1).cpu().numpy()
        return cosines


_NUM_CANDIDATES = 100


class InBatchNegativesLoss(EmbeddingLoss):
    """Each first text finds its second one among those of all pairs, and among all negatives."""

    compares_pairs = True

    def loss(self, model: PairModel, vectors: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy over first texts; targets are numbers, the same for equal texts: (B, 2 + negatives).

        A pair with fewer negatives than another has none of the vectors where its number is below 0.
        """
        if len(vectors) < targets.numel():
            places = (targets >= 0).flatten().cumsum(0) - 1  # known without waiting for a GPU
            vectors = vectors[places]
        first, *others = vectors.view(*targets.shape, -1).unbind(1)
        numbers = targets[:, 1:].T.flatten()
        is_left_out = find_positives(targets[:, 0], numbers) | (numbers < 0)
        return in_batch_negatives_loss(first, torch.cat(others), model.temperature, is_positive=is_left_out)

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
