"""Classification: a text, or a pair of texts, has one class.

The model's outputs are class logits (N, C).
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from bert_core.calibration import fit_temperature
from bert_core.constants import IGNORE_INDEX
from bert_core.metrics import binary_metrics, classification_metrics, glue_metric_names, glue_metrics
from orchestrator.specs.recipe import LABEL_LOSS_FIELDS
from orchestrator.specs.task import TaskSpec
from orchestrator.tasks.catalogue import KnownTask
from orchestrator.tasks.cell_values import NO_LABEL_MARKS, label_text, other_spelling, read_label, stands_for_no_label
from orchestrator.tasks.features import Array
from orchestrator.tasks.text_examples import LabelColumn, TextTable, table_columns
from orchestrator.tasks.types.base import Outputs, Scores, TaskDefinition, softmax
from orchestrator.tasks.types.text import Examples, LabelOptions, TextTarget, TextType, check_classes


@dataclass(frozen=True, slots=True)
class ClassPrediction:
    """The likeliest class, and every class's probability in the order of the task's labels."""

    label: str
    probabilities: tuple[float, ...] = ()


@dataclass(frozen=True)
class ClassificationTable(TextTable):
    """Reads texts with a class."""

    classes: Mapping[str, str] | None = None
    """Class name by the label in the file; None takes every label as it stands."""

    @classmethod
    def of_spec(cls, spec: TaskSpec, labels: tuple[str, ...] | None, known: KnownTask | None = None) -> Self:
        """The reader of a task's files; a known task has names for what stands in them."""
        if known is not None:
            return cls(**table_columns(spec), classes=known.classes, header=known.header)
        return cls(**table_columns(spec), classes=None if labels is None else {label: label for label in labels})

    @cached_property
    def _by_spelling(self) -> Mapping[str, str]:
        return {read_label(label) or label: name for label, name in (self.classes or {}).items()}

    def label_of(self, record: Mapping[str, object], column: LabelColumn) -> str | None:
        """The name of a row's class. A label that the task lists is a class, however written,
        except where the file has names of classes: its labels are numbers of these."""
        value = record[self.label_column]
        as_written = label_text(value)
        is_name = value is not None and not column.class_names
        if is_name and self.classes is not None and as_written in self.classes:
            return self.classes[as_written]
        is_comma = isinstance(value, str) and re.search(r"\d,", value) is not None and column.has_decimal_commas
        label = read_label(value, decimal_comma=is_comma)
        if label is None or self._is_mark(label, column):
            return None
        if label != as_written:
            column.remarks["labels in another spelling (1.0 for 1, True for true, blanks, invisible characters)"] += 1
        if self.classes is None:
            return column.name_of(label)
        found = self._by_spelling.get(column.name_of(label)) or self._by_spelling.get(label)
        if found is None:
            like = other_spelling(label, self._by_spelling)
            raise ValueError(f"{value!r} is none of the labels {', '.join(self.classes)}{like}")
        return found

    def _is_mark(self, label: str, column: LabelColumn) -> bool:
        if label not in NO_LABEL_MARKS:
            return False
        if column.class_names:
            return label != "-"
        if label in self._by_spelling:
            return False
        if self.classes is not None:
            return stands_for_no_label(label, self._by_spelling, are_known=True)
        if stands_for_no_label(label, column.labels):
            return True
        if label == "-1" and column.labels == {"-1", "0", "1"}:
            column.remarks["labels -1, a class here; where it means no label, list the others as task.labels"] += 1
        return False


class ClassTarget(TextTarget[ClassPrediction]):
    """One class for each text."""

    field = "label"
    metrics = ("accuracy", "macro_f1", "matthews_correlation")
    ranks_documents = True

    def encode(self, task: TaskDefinition, examples: Examples) -> Array:
        """Numbers of classes, (N,) int32."""
        number = {label: i for i, label in enumerate(task.labels)}
        numbers = [IGNORE_INDEX if example.label is None else number[example.label] for example in examples]
        return np.array(numbers, dtype=np.int32)

    def decode(self, task: TaskDefinition, examples: Examples, rows: Outputs, options: object) -> list[ClassPrediction]:
        """The class of the largest logit, and the softmax: (N, C)."""
        check_classes(task, rows)
        best = [task.labels[number] for number in rows.argmax(axis=1).tolist()]
        probabilities = softmax(rows / getattr(options, "logit_temperature", 1.0)).tolist()
        return list(map(ClassPrediction, best, map(tuple, probabilities)))

    def fit(self, task: TaskDefinition, examples: Examples, rows: Outputs, options: Any) -> Any:
        """The temperature that makes the examples' classes likeliest."""
        if not getattr(options, "calibrate", False):  # options of embeddings have no temperature
            return options
        return replace(options, logit_temperature=fit_temperature(rows, self.encode(task, examples)))

    def metric_names(self, task: TaskDefinition) -> tuple[str, ...]:
        """GLUE's scores for a task of GLUE; with two classes also `f1`, of the second one."""
        own = (*self.metrics, "f1") if len(task.labels) == 2 else self.metrics
        return glue_metric_names(task.id) or own

    def positive_label(self, task: TaskDefinition) -> str | None:
        """The second of two classes, where `f1` is among the scores."""
        return task.labels[1] if len(task.labels) == 2 and "f1" in self.metric_names(task) else None

    def score(self, task: TaskDefinition, examples: Examples, predictions: Sequence[ClassPrediction]) -> Scores:
        """Scores as the official scripts count them."""
        number = {label: i for i, label in enumerate(task.labels)}
        predicted = [number[prediction.label] for prediction in predictions]
        gold = self.encode(task, examples).tolist()
        if glue_metric_names(task.id):
            return glue_metrics(task.id, predicted, gold)
        return (binary_metrics if len(task.labels) == 2 else classification_metrics)(predicted, gold)

    def baseline(self, task: TaskDefinition, learned: Examples, examples: Examples) -> list[ClassPrediction]:
        """Predict the class that is most frequent in training, for every example."""
        counts = Counter(str(example.label) for example in learned)
        return [ClassPrediction(max(task.labels, key=lambda label: counts[label]))] * len(examples)


class Classification(TextType):
    head = "classification"
    target = ClassTarget()
    reader_type = ClassificationTable
    spec_fields = TextType.spec_fields | {"labels"}
    recipe_fields = TextType.recipe_fields | LABEL_LOSS_FIELDS | {"calibrate"}
    options_type = LabelOptions
