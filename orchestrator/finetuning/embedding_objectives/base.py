"""The contract of an embedding objective in training: its loss on a batch of pairs, and what it predicts of a split's.

An objective is an object without state; what it learns or is told lies in the model. Its other half, torch-free, is
the object of the same name in `orchestrator.tasks.types.embedding_objectives`.

Shapes: B pairs of a batch, N pairs of a split, H hidden, C classes, K candidates.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol

from numpy.typing import NDArray
from torch import Tensor

from bert_core.embedding_losses import PairClassifier


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
