"""The embedding head: objectives and folders. Alone: pytest tests/orchestrator/finetuning/heads/test_embedding.py"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.checkpoints.sentence_transformers import MODULES_FILE
from bert_core.config import BertConfig
from bert_core.embedding_losses import PairClassifier
from bert_core.errors import DataError
from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import SpecError
from orchestrator.finetuning.dual_encoder import CLASSIFIER_FILE, DualEncoder
from orchestrator.finetuning.embedding_objectives import EMBEDDING_LOSSES
from orchestrator.specs import RecipeSpec
from orchestrator.specs.task import EmbeddingObjectiveName
from orchestrator.tasks.types.regression import RegressionExample
from tests.orchestrator.finetuning.heads.prepared import CONFIG, Prepared, prepare


@pytest.fixture
def prepared(tokenizer: Tokenizer) -> Prepared:
    examples = [
        RegressionExample("0", "the road", "a road", value=1.0),
        RegressionExample("1", "one tree", "anna", value=0.25),
    ]
    return prepare("embedding", (), examples, tokenizer, objective="cosine")


def test_soft_loss_needs_a_student_of_the_teachers_width(prepared: Prepared) -> None:
    with pytest.raises(DataError, match="needs a student of the teacher's hidden_size"):
        prepared.head.soft_loss(prepared.logits(4, 6), prepared.logits(4, 8), prepared.features, prepared.batch, 1.0)


def test_a_student_compares_pairs_by_its_teachers_classifier(prepared: Prepared) -> None:
    student, teacher = prepared.model(), prepared.model()
    prepared.head.configure(teacher, "classification", RecipeSpec(seed=3, pooling="max"), None)
    prepared.head.follow_teacher(student, teacher, "classification", RecipeSpec(seed=4))
    assert torch.equal(student.classifier.weight, teacher.classifier.weight)
    assert student.embedding.pooling == "max"


def test_a_folder_without_a_classifier_is_not_asked_for_classes(prepared: Prepared, tmp_path: Path) -> None:
    prepared.head.check_objective(tmp_path, "cosine")
    with pytest.raises(SpecError, match="no classifier of pairs"):
        prepared.head.check_objective(tmp_path, "classification")
    (tmp_path / CLASSIFIER_FILE).touch()
    prepared.head.check_objective(tmp_path, "classification")


def test_a_folder_of_sentence_transformers_is_recognized(prepared: Prepared, tmp_path: Path) -> None:
    assert not prepared.head.recognizes(tmp_path, CONFIG, ["BertModel"])
    (tmp_path / MODULES_FILE).touch()
    assert prepared.head.recognizes(tmp_path, CONFIG, ["BertModel"])


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
