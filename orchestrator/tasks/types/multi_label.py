"""Multi-label classification: a text, or a pair of texts, has any number of labels, or none.

The model's outputs are label logits (N, C), each a choice of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from bert_core.calibration import fit_temperature, tune_threshold
from bert_core.metrics import multi_label_metrics
from orchestrator.base.errors import SpecError
from orchestrator.specs.recipe import LABEL_LOSS_FIELDS
from orchestrator.specs.task import TaskSpec
from orchestrator.tasks.catalogue import KnownTask
from orchestrator.tasks.cell_values import (
    is_missing,
    label_text,
    other_spelling,
    read_flag,
    read_label,
    stands_for_no_label,
    unpack_cell,
)
from orchestrator.tasks.features import Array
from orchestrator.tasks.text_examples import LabelColumn, TextExample, TextTable, table_columns
from orchestrator.tasks.types.base import Outputs, Scores, TaskDefinition, sigmoid
from orchestrator.tasks.types.text import Examples, LabelOptions, TextTarget, TextType, check_classes


@dataclass(frozen=True, slots=True)
class LabelsPrediction:
    """The labels that are likelier than not, and every label's probability; both in the order of the task's labels."""

    labels: tuple[str, ...]
    probabilities: tuple[float, ...]

    @classmethod
    def from_probabilities(
        cls, labels: Sequence[str], probabilities: Sequence[float], thresholds: Sequence[float] | None = None
    ) -> Self:
        """The prediction of the labels whose probability is above one half, or above its own threshold."""
        thresholds = thresholds or [0.5] * len(labels)
        likely = (label for label, p, least in zip(labels, probabilities, thresholds, strict=True) if p > least)
        return cls(tuple(likely), tuple(probabilities))


@dataclass(frozen=True, kw_only=True)
class MultiLabelOptions(LabelOptions):
    """Thresholds of probabilities."""

    decoding_fields = LabelOptions.decoding_fields | {"tune_thresholds", "thresholds"}

    tune_thresholds: bool = False
    """Whether the thresholds are tuned on labeled examples."""
    thresholds: tuple[float, ...] | None = None
    """Probability above which each label is predicted; None for one half."""


@dataclass(frozen=True)
class MultiLabelTable(TextTable):
    """Reads texts with any number of labels: a list, a list written as text, names apart by `separator`, or columns."""

    labels: tuple[str, ...] | None = None
    """Names to accept; None takes every label as it stands."""
    separator: str = "|"
    label_columns: tuple[str, ...] = ()
    """Columns of 0 and 1 or of yes and no, one for each label; `label_column` is not read then."""

    @classmethod
    def of_spec(cls, spec: TaskSpec, labels: tuple[str, ...] | None, known: KnownTask | None = None) -> Self:
        """The reader of a column with lists of labels, or of a column for each label. Raises: SpecError."""
        if spec.label_columns and spec.label_column is not None:
            raise SpecError(
                "task.label_column: task.label_columns names a column for each label; leave one of them out"
            )
        if spec.label_columns and set(spec.labels or spec.label_columns) != set(spec.label_columns):
            raise SpecError("task.labels: task.label_columns are the labels; leave task.labels out")
        columns = table_columns(spec)
        return cls(**columns, labels=labels, separator=spec.label_separator, label_columns=spec.label_columns)

    @property
    def label_names(self) -> tuple[str, ...]:
        return self.label_columns or super().label_names

    def label_of(self, record: Mapping[str, object], column: LabelColumn) -> tuple[str, ...] | None:
        """The labels' names, each once."""
        if self.label_columns:
            flags = {name: read_flag(record[name]) for name in self.label_columns}
            return None if None in flags.values() else tuple(name for name, flag in flags.items() if flag)
        value = record[self.label_column]
        if is_missing(value) and not (isinstance(value, str) and not value.strip()):
            return None
        written, known = self._parse(value), self.labels or ()
        if len(written) > 1 and not isinstance(written[0], str) and column.num_flags:
            places = [column.name_of(str(place)) for place in range(len(written))]
            # Labels that were learned from such lists are some of the places' own names, sorted as texts.
            names = places if {*known} <= {*places} and [*known] == sorted(known) else known
            if len(names) == len(written):
                remark = "lists of 0 and 1, read as a label for each place (task.labels names these in order)"
                column.remarks[remark] += 1
                return self._checked([name for name, flag in zip(names, written, strict=True) if flag])
        found = list(dict.fromkeys(column.name_of(self._name(label)) for label in written))
        if "-1" in found and "-1" not in known:
            labels = known or column.labels
            if column.labels == {"-1"} or stands_for_no_label("-1", labels, are_known=bool(known)):
                found.remove("-1")
                if not found:
                    return None
        return self._checked(found)

    def _checked(self, found: Sequence[str]) -> tuple[str, ...]:
        """The labels, all of which the task knows. Raises: ValueError."""
        known = self.labels
        if known is not None and (unknown := [label for label in found if label not in known]):
            like = other_spelling(unknown[0], known)
            raise ValueError(f"has {unknown[0]!r}, which is none of the labels {', '.join(known)}{like}")
        return tuple(found)

    def _parse(self, value: object) -> Sequence[object]:
        """The labels in a column's value. Raises: ValueError when some of it is no label."""
        written = unpack_cell(value)
        if isinstance(written, str):
            if written.strip().startswith("["):
                raise ValueError(f'begins as a list and is none, {written[:60]}; write ["x", "y"]')
            written = [name.strip() for name in written.split(self.separator)] if written.strip() else []
        written = written if isinstance(written, list) else [written]
        if any(isinstance(label, list) or is_missing(label) for label in written):
            raise ValueError(f"{written!r} holds something that is no label; names stand apart by {self.separator!r}")
        return written

    def _name(self, label: object) -> str:
        return str(label_text(label) if label_text(label) in (self.labels or ()) else read_label(label))


class LabelSetTarget(TextTarget[LabelsPrediction]):
    """Any number of labels for each text."""

    field = "labels"
    metrics = ("micro_f1", "macro_f1", "subset_accuracy", "label_ranking_average_precision")

    def encode(self, task: TaskDefinition, examples: Examples) -> Array:
        """Whether each label is there, (N, C) int32; -100 where labels are not known."""
        rows = np.array(_indicators(task, [example.label or () for example in examples]), dtype=np.int32)
        rows[[number for number, example in enumerate(examples) if example.label is None]] = -100
        return rows

    def decode(
        self, task: TaskDefinition, examples: Examples, rows: Outputs, options: MultiLabelOptions
    ) -> list[LabelsPrediction]:
        """The logistic function of each logit: (N, C)."""
        check_classes(task, rows)
        probabilities = sigmoid(rows / options.logit_temperature).tolist()
        return [LabelsPrediction.from_probabilities(task.labels, row, options.thresholds) for row in probabilities]

    def fit(
        self, task: TaskDefinition, examples: Examples, rows: Outputs, options: MultiLabelOptions
    ) -> MultiLabelOptions:
        """The temperature that makes the examples' labels likeliest, then the thresholds with the best F1."""
        has_labels = self.encode(task, examples)
        if options.calibrate:
            choices = np.stack([np.zeros(rows.size), rows.ravel()], axis=1)  # of each label, absent or there
            options = replace(options, logit_temperature=fit_temperature(choices, has_labels.ravel()))
        if options.tune_thresholds:
            columns = zip(sigmoid(rows / options.logit_temperature).T, has_labels.T == 1, strict=True)
            options = replace(options, thresholds=tuple(tune_threshold(*column) for column in columns))
        return options

    def score(self, task: TaskDefinition, examples: Examples, predictions: Sequence[LabelsPrediction]) -> Scores:
        """F1 over all labels and per label, wholly right examples, and how well probabilities rank the labels."""
        return multi_label_metrics(
            _indicators(task, [prediction.labels for prediction in predictions]),
            _indicators(task, [example.label or () for example in examples]),
            [prediction.probabilities for prediction in predictions],
        )

    def baseline(self, task: TaskDefinition, learned: Examples, examples: Examples) -> list[LabelsPrediction]:
        """The labels that more than half of the examples have."""
        shares = np.mean(_indicators(task, [example.label or () for example in learned]), axis=0).tolist()
        return [LabelsPrediction.from_probabilities(task.labels, shares)] * len(examples)

    def row(self, task: TaskDefinition, example: TextExample, prediction: LabelsPrediction) -> dict[str, Any]:
        """The order of labels does not count."""
        is_correct = set(prediction.labels) == set(example.label or ())
        return super().row(task, example, prediction) | {"correct": is_correct}


class MultiLabel(TextType):
    head = "multi_label"
    target = LabelSetTarget()
    reader_type = MultiLabelTable
    spec_fields = TextType.spec_fields | {"labels", "label_separator", "label_columns"}
    recipe_fields = TextType.recipe_fields | LABEL_LOSS_FIELDS | {"calibrate", "tune_thresholds"}
    options_type = MultiLabelOptions
    labeled_layout = """lists of names as JSON has them, ["rock", "pop"], or a column of 0 and 1 for each label"""


def _indicators(task: TaskDefinition, labels: Sequence[Sequence[str]]) -> list[list[bool]]:
    """Whether each of the task's labels is there: (N, C)."""
    return [[label in some for label in task.labels] for some in labels]
