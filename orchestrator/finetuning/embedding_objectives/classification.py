"""Classification as an embedding objective, in training: cross entropy of a classifier of the two vectors."""

from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from bert_core.embedding_losses import PairClassifier
from orchestrator.finetuning.embedding_objectives.base import EmbeddingLoss, PairModel


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
