"""The embedding head: objectives and folders. Alone: pytest tests/orchestrator/finetuning/heads/test_embedding.py"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.checkpoints.sentence_transformers import MODULES_FILE, DenseConfig, SentenceEmbeddingConfig
from bert_core.config import BertConfig
from bert_core.errors import DataError
from bert_core.losses import PairClassifier, in_batch_negatives_loss
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import SpecError
from orchestrator.finetuning.heads.embedding import CLASSIFIER_FILE, EMBEDDING_LOSSES, DualEncoder, EmbeddingHead
from orchestrator.specs import RecipeSpec
from orchestrator.specs.task import EmbeddingObjectiveName
from orchestrator.tasks.text_examples import TextExample
from orchestrator.tasks.types.embedding import MatchExample
from tests.orchestrator.finetuning.heads.prepared import CONFIG, Prepared, assert_losses_wait_for_nothing, prepare


@pytest.fixture
def prepared(tokenizer: Tokenizer) -> Prepared:
    examples = [
        TextExample("0", "the road", "a road", label=1.0),
        TextExample("1", "one tree", "anna", label=0.25),
    ]
    return prepare("embedding", (), examples, tokenizer, objective="cosine")


def test_soft_loss_needs_a_student_of_the_teachers_width(prepared: Prepared) -> None:
    with pytest.raises(DataError, match="needs a student of the teacher's hidden_size"):
        prepared.head.soft_loss(prepared.logits(4, 6), prepared.logits(4, 8), prepared.batch, 1.0)


def test_a_student_compares_pairs_by_its_teachers_classifier(prepared: Prepared) -> None:
    student, teacher = prepared.model(), prepared.model()
    prepared.head.configure(teacher, "classification", RecipeSpec(seed=3, pooling="max"), None)
    prepared.head.follow_teacher(student, teacher, "classification", RecipeSpec(seed=4))
    assert torch.equal(student.classifier.weight, teacher.classifier.weight)
    assert student.embedding.pooling == "max"


@pytest.mark.parametrize(("width", "size"), [(8, 3), (6, 6)])
def test_a_student_of_its_teachers_width_has_its_dense_layers(prepared: Prepared, width: int, size: int) -> None:
    student = prepared.model(hidden_size=width)
    teacher = DualEncoder(CONFIG, 0, SentenceEmbeddingConfig(dense=(DenseConfig(8, 3),)))
    prepared.head.follow_teacher(student, teacher, "classification", RecipeSpec())
    logits = prepared.head.logits(student, prepared.batch)
    assert logits.shape[1] == student.vector_size == size
    prepared.head.loss(student, logits, replace(prepared.batch, targets=torch.tensor([0, 1]))).backward()
    assert all(layer.linear.weight.grad.any() for layer in student.dense)


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
VECTORS = torch.stack([FIRST, SECOND], dim=1).flatten(0, 1)  # (2B, H)
COSINES = F.normalize(FIRST, dim=1) @ F.normalize(SECOND, dim=1).T


@dataclass
class Model:
    """What an objective reads of a model."""

    temperature: float = 0.05
    classifier: PairClassifier | None = None


def test_cosine_is_the_squared_distance_from_the_score() -> None:
    objective, scores = EMBEDDING_LOSSES["cosine"], torch.tensor([0.0, 0.5, 1.0])
    expected = ((COSINES.diagonal() - scores) ** 2).mean()
    torch.testing.assert_close(objective.loss(Model(), VECTORS, scores), expected)
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
    loss = EMBEDDING_LOSSES["in_batch_negatives"].loss(Model(0.2), VECTORS, torch.tensor(texts))
    torch.testing.assert_close(loss, F.cross_entropy(scores, torch.arange(3)))


def test_in_batch_negatives_finds_the_nearest_partners_first() -> None:
    nearest = EMBEDDING_LOSSES["in_batch_negatives"].outputs(Model(), FIRST.clone(), SECOND.clone())
    np.testing.assert_array_equal(nearest, COSINES.argsort(dim=1, descending=True))


class GivenVectors(torch.nn.Module):
    """A model of sentence-transformers whose texts are their vectors."""

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": features["vectors"]}

    def get_embedding_dimension(self) -> int:
        return 16


@pytest.mark.parametrize("num_negatives", [0, 1, 3])
@pytest.mark.parametrize("dims", [(), (16, 8, 4)])
def test_negatives_and_first_numbers_agree_with_sentence_transformers(
    num_negatives: int, dims: tuple[int, ...]
) -> None:
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses", reason="it is the reference")
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(5, 2 + num_negatives, 16, generator=generator).requires_grad_()
    loss: Any = losses.MultipleNegativesRankingLoss(GivenVectors(), scale=5.0)
    if dims:
        loss = losses.MatryoshkaLoss(loss.model, loss, dims)
    theirs = loss([{"vectors": column} for column in vectors.unbind(1)], torch.zeros(5))
    model = DualEncoder.from_config(BertConfig(vocab_size=10, hidden_size=16, num_attention_heads=1))
    model.configure("in_batch_negatives", model.embedding, RecipeSpec(temperature=0.2, matryoshka_dims=dims))
    ours = model.compute_loss(vectors.flatten(0, 1), torch.arange(5 * (2 + num_negatives)).view(5, -1))
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)
    found, expected = (torch.autograd.grad(value, vectors)[0] for value in (ours, theirs))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)


def test_pairs_may_have_different_numbers_of_negatives_and_none_is_a_text_that_is_right(tokenizer: Tokenizer) -> None:
    examples = [
        MatchExample("0", "the house", "a river", negatives=("an engine", "a road", "a river")),
        MatchExample("1", "one tree", "anna"),
        MatchExample("2", "the miller", "flour", negatives=("the river",)),
    ]
    prepared = prepare("embedding", (), examples, tokenizer, objective="in_batch_negatives")
    model = prepared.model()
    prepared.head.set_objective(model, "in_batch_negatives")
    vectors = prepared.logits(10, 8)
    first, second, negatives = vectors[[0, 5, 7]], vectors[[1, 6, 8]], vectors[[2, 3, 4, 9]]
    is_positive = torch.zeros(3, 7, dtype=torch.bool)
    is_positive[0, 5] = True  # "a river" among its own negatives
    expected = in_batch_negatives_loss(first, torch.cat([second, negatives]), is_positive=is_positive)
    torch.testing.assert_close(prepared.head.loss(model, vectors, prepared.batch), expected)
    assert_losses_wait_for_nothing(prepared, model, (10, 8))
    outputs = prepared.head.outputs(model, prepared.features, vectors.numpy())
    np.testing.assert_array_equal(outputs, EMBEDDING_LOSSES["in_batch_negatives"].outputs(Model(), first, second))


@torch.no_grad()
def test_classification_is_the_cross_entropy_of_a_classifier_of_both_vectors() -> None:
    objective, model, classes = EMBEDDING_LOSSES["classification"], Model(classifier=PairClassifier(4, 2)), [0, 1, 1]
    assert model.classifier is not None
    logits = torch.cat([FIRST, SECOND, (FIRST - SECOND).abs()], dim=1) @ model.classifier.weight.T
    expected = F.cross_entropy(logits, torch.tensor(classes))
    torch.testing.assert_close(objective.loss(model, VECTORS, torch.tensor(classes)), expected)
    np.testing.assert_allclose(objective.outputs(model, FIRST, SECOND), logits, atol=1e-6)


@pytest.mark.parametrize("name", EMBEDDING_LOSSES)
def test_a_model_compares_by_its_objective_alone(name: EmbeddingObjectiveName) -> None:
    model = DualEncoder.from_config(BertConfig(vocab_size=10, hidden_size=4, num_attention_heads=1))
    objective, targets = EMBEDDING_LOSSES[name], _targets(name)
    if objective.needs_classifier:
        with pytest.raises(SpecError, match=f"no classifier of pairs; evaluate one trained with objective {name}"):
            EmbeddingHead().set_objective(model, name)
        model.classifier = PairClassifier(4, 2)
    EmbeddingHead().set_objective(model, name)
    assert torch.equal(model.compute_loss(VECTORS, targets), objective.loss(model, VECTORS, targets))
    with torch.inference_mode():
        outputs = model.score_pairs(FIRST.numpy(), SECOND.numpy())
        np.testing.assert_array_equal(outputs, objective.outputs(model, FIRST, SECOND))


def _targets(name: EmbeddingObjectiveName) -> Tensor:
    targets = {"cosine": [0.0, 0.5, 1.0], "in_batch_negatives": [[0, 1], [2, 3], [4, 5]], "classification": [0, 1, 1]}
    return torch.tensor(targets[name])
