"""Regression: a text, or a pair of texts, has a number.

The model's outputs are values (N,) or (N, 1).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from bert_core.metrics import glue_metric_names, regression_metrics
from orchestrator.tasks.cell_values import read_number
from orchestrator.tasks.features import Array
from orchestrator.tasks.text_examples import LabelColumn, TextExample, TextTable
from orchestrator.tasks.types.base import Outputs, Scores, TaskDefinition
from orchestrator.tasks.types.text import Examples, TextTarget, TextType


@dataclass(frozen=True, slots=True)
class ValuePrediction:
    """A number."""

    value: float


@dataclass(frozen=True)
class RegressionTable(TextTable):
    """Reads texts with a number."""

    def label_of(self, record: Mapping[str, object], column: LabelColumn) -> float | None:
        value = record[self.label_column]
        decimal_comma = isinstance(value, str) and "," in value and column.has_decimal_commas
        has_thousands = isinstance(value, str) and "." in value and column.has_thousands_points
        if has_thousands:
            raise ValueError(f"{value!r} may have a point between thousands; leave it out, or write 1.0 in place of 1")
        number = read_number(value, decimal_comma=decimal_comma)
        if number is None or (number == -1.0 and column.labels == {"-1"}):  # a test file that keeps its scores back
            return None
        if decimal_comma:
            column.remarks["decimal commas, read as points"] += 1
        if has_thousands is None:
            column.remarks["points before three digits, read as decimal points; leave out points of thousands"] += 1
        return self.scale(number)

    def scale(self, score: float) -> float:
        return score


class ValueTarget(TextTarget[ValuePrediction]):
    """A number for each text."""

    field = "value"
    metrics = ("pearson", "spearman")
    ranks_documents = True

    def encode(self, task: TaskDefinition, examples: Examples) -> Array:
        """Values of the examples, (N,) float32."""
        return np.array([math.nan if e.label is None else e.label for e in examples], dtype=np.float32)

    def decode(self, task: TaskDefinition, examples: Examples, rows: Outputs, options: object) -> list[ValuePrediction]:
        """The values as they are: (N,) or (N, 1)."""
        return list(map(ValuePrediction, rows.reshape(-1).tolist()))

    def metric_names(self, task: TaskDefinition) -> tuple[str, ...]:
        """Both correlations, for a task of GLUE in its order."""
        return glue_metric_names(task.id) or self.metrics

    def score(self, task: TaskDefinition, examples: Examples, predictions: Sequence[ValuePrediction]) -> Scores:
        found = [prediction.value for prediction in predictions]
        return regression_metrics(found, [example.label or 0.0 for example in examples])

    def baseline(self, task: TaskDefinition, learned: Examples, examples: Examples) -> list[ValuePrediction]:
        """Predict the mean value of the training examples, for every example."""
        return [ValuePrediction(fmean(example.label or 0.0 for example in learned))] * len(examples)

    def labels_note(self, examples: Examples) -> str | None:
        """Equal values correlate with nothing."""
        values = {example.label for example in examples}
        return f"all scores are {values.pop()}: there is no correlation to measure" if len(values) == 1 else None

    def row(self, task: TaskDefinition, example: TextExample, prediction: ValuePrediction) -> dict[str, Any]:
        error = prediction.value - (example.label or 0.0)
        return {"prediction": prediction.value, "gold": example.label, "error": error}

    def agreement(self, first: Sequence[ValuePrediction], second: Sequence[ValuePrediction]) -> float:
        """Pearson's correlation of the values."""
        return regression_metrics(*([one.value for one in side] for side in (first, second)))["pearson"]


class Regression(TextType):
    head = "regression"
    target = ValueTarget()
    reader_type = RegressionTable
