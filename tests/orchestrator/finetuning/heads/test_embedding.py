"""The embedding head: targets, the loss by objective, vectors imitated, and folders that it recognizes.

Alone: pytest tests/orchestrator/finetuning/heads/test_embedding.py
"""

from pathlib import Path

import pytest
import torch

from bert_core.checkpoints.sentence_transformers import MODULES_FILE
from bert_core.errors import DataError
from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import SpecError
from orchestrator.finetuning.dual_encoder import CLASSIFIER_FILE
from orchestrator.specs import RecipeSpec
from orchestrator.tasks.types.regression import RegressionExample
from tests.orchestrator.finetuning.heads.prepared import (
    CONFIG,
    Prepared,
    prepare,
)


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
