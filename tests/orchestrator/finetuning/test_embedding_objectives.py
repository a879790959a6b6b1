"""Embedding objectives in training: each one's loss and outputs beside their definitions in plain torch.

Alone: pytest tests/orchestrator/finetuning/test_embedding_objectives.py
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.config import BertConfig
from bert_core.embedding_losses import PairClassifier
from orchestrator.errors import SpecError
from orchestrator.finetuning.dual_encoder import DualEncoder
from orchestrator.finetuning.embedding_objectives import EMBEDDING_LOSSES
from orchestrator.specs.task import EmbeddingObjectiveName

FIRST, SECOND = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)).unbind()
COSINES = F.normalize(FIRST, dim=1) @ F.normalize(SECOND, dim=1).T


@dataclass
class Model:
    """What an objective reads of a model."""

    temperature: float = 0.05
    classifier: PairClassifier | None = None


def test_cosine_is_the_squared_distance_from_the_score() -> None:
    objective, scores = EMBEDDING_LOSSES["cosine"], torch.tensor([0.0, 0.5, 1.0])
    expected = ((COSINES.diagonal() - scores) ** 2).mean()
    torch.testing.assert_close(objective.loss(Model(), FIRST, SECOND, scores), expected)
    np.testing.assert_allclose(objective.outputs(Model(), FIRST, SECOND), COSINES.diagonal(), atol=1e-6)


@pytest.mark.parametrize(
    ("texts", "is_left_out"),
    [
        ([[0, 1], [2, 3], [4, 5]], [[0, 0, 0], [0, 0, 0], [0, 0, 0]]),
        ([[0, 1], [2, 3], [0, 4]], [[0, 0, 1], [0, 0, 0], [1, 0, 0]]),  # two queries alike: each other's partner fits
    ],
)
def test_in_batch_negatives_is_the_cross_entropy_of_the_own_partner(
    texts: list[list[int]], is_left_out: list[list[int]]
) -> None:
    scores = COSINES.masked_fill(torch.tensor(is_left_out).bool(), -torch.inf) / 0.2
    loss = EMBEDDING_LOSSES["in_batch_negatives"].loss(Model(0.2), FIRST, SECOND, torch.tensor(texts))
    torch.testing.assert_close(loss, F.cross_entropy(scores, torch.arange(3)))


def test_in_batch_negatives_finds_the_nearest_partners_first() -> None:
    nearest = EMBEDDING_LOSSES["in_batch_negatives"].outputs(Model(), FIRST, SECOND)
    np.testing.assert_array_equal(nearest, COSINES.argsort(dim=1, descending=True))


@torch.no_grad()
def test_classification_is_the_cross_entropy_of_a_classifier_of_both_vectors() -> None:
    objective, model, classes = EMBEDDING_LOSSES["classification"], Model(classifier=PairClassifier(4, 2)), [0, 1, 1]
    assert model.classifier is not None
    logits = torch.cat([FIRST, SECOND, (FIRST - SECOND).abs()], dim=1) @ model.classifier.weight.T
    expected = F.cross_entropy(logits, torch.tensor(classes))
    torch.testing.assert_close(objective.loss(model, FIRST, SECOND, torch.tensor(classes)), expected)
    np.testing.assert_allclose(objective.outputs(model, FIRST, SECOND), logits, atol=1e-6)


@pytest.mark.parametrize("name", EMBEDDING_LOSSES)
def test_a_model_compares_by_its_objective_alone(name: EmbeddingObjectiveName) -> None:
    model = DualEncoder.from_config(BertConfig(vocab_size=10, hidden_size=4, num_attention_heads=1))
    objective, targets = EMBEDDING_LOSSES[name], _targets(name)
    if objective.needs_classifier:
        with pytest.raises(SpecError, match=f"no classifier of pairs; evaluate one trained with objective {name}"):
            model.set_objective(name)
        model.classifier = PairClassifier(4, 2)
    model.set_objective(name)
    vectors = torch.stack([FIRST, SECOND], dim=1).flatten(0, 1)  # (2B, H)
    assert torch.equal(model.compute_loss(vectors, targets), objective.loss(model, FIRST, SECOND, targets))
    with torch.inference_mode():
        np.testing.assert_array_equal(model.score_pairs(vectors.numpy()), objective.outputs(model, FIRST, SECOND))


def _targets(name: EmbeddingObjectiveName) -> Tensor:
    targets = {"cosine": [0.0, 0.5, 1.0], "in_batch_negatives": [[0, 1], [2, 3], [4, 5]], "classification": [0, 1, 1]}
    return torch.tensor(targets[name])
