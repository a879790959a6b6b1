"""A new task type, as its contract tells how. Alone: pytest tests/orchestrator/tasks/types/test_new_type.py

The type grades texts: classes in order, where a near miss is better than a far one. Its two halves have 45 lines.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import median_low
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bert_core.distillation import soft_target_loss
from orchestrator.finetuning.building import build_model
from orchestrator.finetuning.evaluation import predict_examples, score_model
from orchestrator.finetuning.heads import HEADS, Batch
from orchestrator.finetuning.heads.sequence import SequenceHead
from orchestrator.finetuning.model_folder import FineTunedModel
from orchestrator.finetuning.model_record import FineTuningRecord
from orchestrator.finetuning.training import fine_tune
from orchestrator.tasks.feature_cache import build_features
from orchestrator.tasks.features import Array
from orchestrator.tasks.loading import load_task
from orchestrator.tasks.scoring import majority_baseline
from orchestrator.tasks.types import TASK_TYPES
from orchestrator.tasks.types.base import Outputs, Scores, TaskDefinition
from orchestrator.tasks.types.classification import ClassificationTable, ClassPrediction
from orchestrator.tasks.types.requests import Request
from orchestrator.tasks.types.text import Examples, TextTarget, TextType, check_classes
from tests.orchestrator.finetuning import tiny_tasks

Predictions = Sequence[ClassPrediction]


class GradeTarget(TextTarget[ClassPrediction]):
    """A class for each text, in the order of the task's labels; outputs are logits (N, C)."""

    field = "label"
    metrics = ("nearness",)

    def encode(self, task: TaskDefinition, examples: Examples) -> Array:
        return np.array([task.labels.index(e.label) if e.label in task.labels else -100 for e in examples], np.int32)

    def decode(self, task: TaskDefinition, examples: Examples, rows: Outputs, options: object) -> list[ClassPrediction]:
        check_classes(task, rows)
        shares = np.exp(rows) / np.exp(rows).sum(axis=1, keepdims=True)
        grades = np.rint(shares @ np.arange(len(task.labels))).astype(int)
        return [
            ClassPrediction(task.labels[grade], tuple(row)) for grade, row in zip(grades, shares.tolist(), strict=True)
        ]

    def score(self, task: TaskDefinition, examples: Examples, predictions: Predictions) -> Scores:
        found = np.array([task.labels.index(prediction.label) for prediction in predictions])
        distance = np.abs(found - self.encode(task, examples)).mean()  # type: ignore[operator]
        return {"nearness": 1.0 - float(distance) / (len(task.labels) - 1)}

    def baseline(self, task: TaskDefinition, learned: Examples, examples: Examples) -> list[ClassPrediction]:
        middle = median_low(self.encode(task, learned).tolist())
        return [ClassPrediction(task.labels[middle])] * len(examples)


class Grade(TextType):
    head: Any = "grade"
    target = GradeTarget()
    reader_type = ClassificationTable
    spec_fields = TextType.spec_fields | {"labels"}


class GradeHead(SequenceHead):
    """Grades in training: the squared distance of the mean grade, by the softmax of the logits."""

    problem_type = "single_label_classification"

    def loss(self, model: Any, logits: Tensor, batch: Batch) -> Tensor:
        is_known = batch.targets >= 0
        grades = torch.arange(logits.shape[-1], dtype=logits.dtype, device=logits.device)
        distances = self.pool(model, logits, batch).softmax(dim=-1) @ grades - batch.targets
        return (distances.square() * is_known).sum() / is_known.sum()

    def soft_loss(self, logits: Tensor, teacher_logits: Tensor, batch: Batch, temperature: float) -> Tensor:
        return soft_target_loss(logits, teacher_logits, temperature)


@pytest.mark.training
def test_a_new_type_is_read_trained_scored_and_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASK_TYPES, "grade", Grade())  # type: ignore[arg-type]
    monkeypatch.setitem(HEADS, "grade", GradeHead())  # type: ignore[arg-type]
    task = load_task(tiny_tasks.regression(tmp_path).model_copy(update={"head": "grade"}))
    assert (task.labels, task.metric) == (("0", "1", "2", "3"), "nearness")
    tokenizer, recipe = tiny_tasks.load_tokenizer(tmp_path), tiny_tasks.RECIPE
    model, options = build_model(task, recipe, None, tokenizer), task.type.options_type.of_recipe(recipe)
    train, validation = (
        build_features(task, task.examples(split), tokenizer, options)
        for split in ("train", "validation")  # type: ignore[arg-type]
    )

    def evaluate() -> tuple[float, None]:
        return score_model(model, task, validation, "validation", options).metrics["nearness"], None

    best = fine_tune(model, train, recipe, evaluate, lambda evaluation, best_score: None)
    assert best.score > majority_baseline(task, "validation")["nearness"] + 0.05
    fine_tuned = FineTunedModel(model, tokenizer, FineTuningRecord(task, options))
    request = Request({"text": "the road"}, 1, task.head, task.type.request.keys)
    (prediction,) = predict_examples(fine_tuned, [task.type.example_of(task, request)])
    assert task.target.answer(task, prediction).keys() == {"label", "probabilities"}
