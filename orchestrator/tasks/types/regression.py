"""Regression: a text, or a pair of texts, has a number.

The model's outputs are values (N,) or (N, 1).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from bert_core.metrics import glue_metric_names, regression_metrics
from orchestrator.errors import InputError
from orchestrator.specs.task import TaskSpec
from orchestrator.tasks.catalogue import KnownTask
from orchestrator.tasks.cell_values import read_number
from orchestrator.tasks.features import Array, Features
from orchestrator.tasks.text_examples import LabelColumn, TextExample, TextTable
from orchestrator.tasks.types.base import Outputs, TaskDefinition
from orchestrator.tasks.types.outputs import check_length
from orchestrator.tasks.types.text import TextArrays, TextOptions, TextType, table_columns


@dataclass(frozen=True, slots=True)
class RegressionExample(TextExample):
    """A text or a pair, and its number."""

    value: float | None = None
    """None where it is not known."""


@dataclass(frozen=True, slots=True)
class ValuePrediction:
    """A number."""

    value: float


@dataclass(frozen=True)
class RegressionTable(TextTable[RegressionExample]):
    """Reads texts with a number."""

    kind = RegressionExample

    def label_fields(self, record: Mapping[str, object], column: LabelColumn) -> Mapping[str, float] | None:
        """Make the example's label: a number."""
        value = record[self.label_column]
        decimal_comma = isinstance(value, str) and "," in value and column.has_decimal_commas
        number = read_number(value, decimal_comma=decimal_comma)
        if number is None or (number == -1.0 and column.labels == {"-1"}):  # a test file that keeps its scores back
            return None
        if decimal_comma:
            column.remarks["decimal commas, read as points"] += 1
        return {"value": self.scale(number)}

    def scale(self, score: float) -> float:
        """The number to learn for a score. Raises: ValueError, saying what is wrong with it."""
        return score


class Regression(TextType[RegressionExample, ValuePrediction, TextOptions]):
    """A number for each text."""

    head = "regression"
    metrics = ("pearson", "spearman")
    purpose = "numbers"
    options_type = TextOptions
    example_type = RegressionExample
    label_field = "value"

    def reader(self, spec: TaskSpec, labels: tuple[str, ...] | None, known: KnownTask | None = None) -> RegressionTable:
        """A table with a column of numbers."""
        return RegressionTable(**table_columns(spec))

    def labels_note(self, examples: Sequence[RegressionExample]) -> str | None:
        """Equal values correlate with nothing."""
        values = {example.value for example in examples}
        return f"all scores are {values.pop()}: there is no correlation to measure" if len(values) == 1 else None

    def label_array(self, task: TaskDefinition, examples: Sequence[RegressionExample]) -> Array:
        """Labels of the examples: their values, (N,) float32."""
        return np.array([math.nan if e.value is None else e.value for e in examples], dtype=np.float32)

    def decode(
        self,
        task: TaskDefinition,
        features: Features[TextArrays],
        examples: Sequence[RegressionExample],
        outputs: Outputs,
        options: TextOptions,
    ) -> list[ValuePrediction]:
        """The values as they are: (N,) or (N, 1), or of windows (W, 1)."""
        outputs = self.pool(features, outputs, options)
        check_length(outputs, features.num_examples, "example")
        return [ValuePrediction(value) for value in outputs.reshape(-1).tolist()]

    def metric_names(self, task: TaskDefinition) -> tuple[str, ...]:
        """Both correlations, for a task of GLUE in its order."""
        return glue_metric_names(task.id) or self.metrics

    def score(
        self, task: TaskDefinition, examples: Sequence[RegressionExample], predictions: Sequence[ValuePrediction]
    ) -> dict[str, float]:
        """Pearson's and Spearman's correlations."""
        found = [prediction.value for prediction in predictions]
        return regression_metrics(found, [example.value or 0.0 for example in examples])

    def baseline(
        self, task: TaskDefinition, learned: Sequence[RegressionExample], examples: Sequence[RegressionExample]
    ) -> list[ValuePrediction]:
        """Predict the mean value of the training examples, for every example."""
        return [ValuePrediction(fmean(example.value or 0.0 for example in learned))] * len(examples)

    def row(self, task: TaskDefinition, example: RegressionExample, prediction: ValuePrediction) -> dict[str, Any]:
        """Both values, and their difference."""
        error = prediction.value - (example.value or 0.0)
        return {"prediction": prediction.value, "gold": example.value, "error": error}

    def wrongness(self, task: TaskDefinition, example: RegressionExample, prediction: ValuePrediction) -> float:
        """Distance of the predicted value from the right one."""
        return abs(prediction.value - (example.value or 0.0))

    def decisions(self, prediction: ValuePrediction) -> Sequence[object]:
        """List the predicted value alone."""
        return [prediction.value]

    def agreement(self, first: Sequence[ValuePrediction], second: Sequence[ValuePrediction]) -> float:
        """Pearson's correlation of the values."""
        return regression_metrics(*([one.value for one in side] for side in (first, second)))["pearson"]

    def answer(self, task: TaskDefinition, prediction: ValuePrediction) -> dict[str, Any]:
        """Answer a request with the predicted value."""
        return {"value": prediction.value}

    def relevance(self, task: TaskDefinition, label: str | None, folder: str) -> Callable[[ValuePrediction], float]:
        """Return a function that scores a prediction by its value."""
        if label is not None:
            raise InputError(f"{folder} gives a score and has no label {label!r}; leave the label out")
        return lambda prediction: prediction.value
