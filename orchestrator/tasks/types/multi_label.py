"""Multi-label classification: a text, or a pair of texts, has any number of labels, or none.

The model's outputs are label logits (N, C), each a choice of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bert_core.calibration import fit_temperature, tune_threshold
from bert_core.metrics import class_scores, confusion_matrix, multi_label_metrics
from orchestrator.errors import SpecError
from orchestrator.specs.recipe import LABEL_LOSS_FIELDS
from orchestrator.specs.task import EmbeddingObjectiveName, TaskSpec
from orchestrator.tasks.catalogue import KnownTask
from orchestrator.tasks.cell_values import is_missing, label_text, read_label, unpack_cell
from orchestrator.tasks.features import Array, Features
from orchestrator.tasks.text_examples import LabelColumn, TextExample, TextTable
from orchestrator.tasks.types.base import Outputs, TaskDefinition
from orchestrator.tasks.types.outputs import check_classes
from orchestrator.tasks.types.text import LabelOptions, TextArrays, TextType, one_label_problem, table_columns


@dataclass(frozen=True, slots=True)
class MultiLabelExample(TextExample):
    """A text or a pair, and its labels."""

    labels: tuple[str, ...] | None = None
    """Names in the order of the file; None where they are not known."""


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
class MultiLabelTable(TextTable[MultiLabelExample]):
    """Reads texts with any number of labels: a list, a list written as text, names apart by `separator`, or columns."""

    labels: tuple[str, ...] | None = None
    """Names to accept; None takes every label as it stands."""
    separator: str = "|"
    label_columns: tuple[str, ...] = ()
    """Columns of 0 and 1, one for each label; `label_column` is not read then."""

    kind = MultiLabelExample

    @property
    def label_names(self) -> tuple[str, ...]:
        """The columns that hold labels."""
        return self.label_columns or super().label_names

    def label_fields(self, record: Mapping[str, object], column: LabelColumn) -> Mapping[str, tuple[str, ...]] | None:
        """The labels' names, each once."""
        if self.label_columns:
            flags = {name: read_flag(record[name]) for name in self.label_columns}
            return None if None in flags.values() else {"labels": tuple(name for name, flag in flags.items() if flag)}
        value = record[self.label_column]
        if is_missing(value) and not (isinstance(value, str) and not value.strip()):
            return None
        found = tuple(dict.fromkeys(column.name_of(label) for label in self._parse(value)))
        unknown = [label for label in found if self.labels is not None and label not in self.labels]
        if unknown:
            raise ValueError(f"has {unknown[0]!r}, which is none of the labels {', '.join(self.labels or ())}")
        return {"labels": found}

    def _parse(self, value: object) -> list[str]:
        """The names in a column's value. Raises: ValueError when some of it is no label."""
        if isinstance(value, str) and value.strip().startswith("["):
            cell, value = value, unpack_cell(value)
            if not isinstance(value, list):
                raise ValueError(f'begins as a list and is none, {cell[:60]}; write ["x", "y"]')
        if isinstance(value, str):
            value = [name.strip() for name in value.split(self.separator)] if value.strip() else []
        written = value if isinstance(value, list) else [value]
        if any(isinstance(label, list) or is_missing(label) for label in written):
            raise ValueError(f"{written!r} holds something that is no label; names stand apart by {self.separator!r}")
        known = self.labels or ()
        return [str(label_text(label) if label_text(label) in known else read_label(label)) for label in written]


def read_flag(value: object) -> bool | None:
    """Whether a column of 0 and 1 says that its label is there; None where it says nothing: empty, NaN, -1.

    Raises: ValueError for any other value.
    """
    flag = read_label(value)
    if flag not in (None, "-1", "0", "1", "false", "true"):
        raise ValueError(f"{value!r} is neither 0 nor 1")
    return None if flag in (None, "-1") else flag in ("1", "true")


class MultiLabel(TextType[MultiLabelExample, LabelsPrediction, MultiLabelOptions]):
    """Any number of labels for each text."""

    head = "multi_label"
    metrics = ("micro_f1", "macro_f1", "subset_accuracy", "label_ranking_average_precision")
    purpose = "texts with several labels"
    spec_fields = TextType.spec_fields | {"labels", "label_separator", "label_columns"}
    options_type = MultiLabelOptions
    recipe_fields = TextType.recipe_fields | LABEL_LOSS_FIELDS | {"calibrate", "tune_thresholds"}
    example_type = MultiLabelExample
    label_field = "labels"

    def check_spec(self, spec: TaskSpec) -> None:
        """Check that the spec names columns of text, and labels in one way. Raises: SpecError."""
        super().check_spec(spec)
        if spec.label_columns and spec.label_column is not None:
            raise SpecError(
                "task.label_column: task.label_columns names a column for each label; leave one of them out"
            )
        if spec.label_columns and set(spec.labels or spec.label_columns) != set(spec.label_columns):
            raise SpecError("task.labels: task.label_columns are the labels; leave task.labels out")

    def reader(self, spec: TaskSpec, labels: tuple[str, ...] | None, known: KnownTask | None = None) -> MultiLabelTable:
        """A table with a column of lists of labels, or with a column for each label."""
        columns = table_columns(spec)
        return MultiLabelTable(
            **columns, labels=labels, separator=spec.label_separator, label_columns=spec.label_columns
        )

    def has_labels(self, objective: EmbeddingObjectiveName | None) -> bool:
        """True: each output stands for a label."""
        return True

    def find_labels(self, examples: Iterable[MultiLabelExample]) -> tuple[str, ...]:
        """The labels that occur, sorted."""
        return tuple(sorted({label for example in examples for label in example.labels or ()}))

    def labels_problem(self, spec: TaskSpec, labels: Sequence[str]) -> str | None:
        """One label leaves nothing to tell apart."""
        return one_label_problem(spec, labels)

    def label_array(self, task: TaskDefinition, examples: Sequence[MultiLabelExample]) -> Array:
        """Whether each label is there, (N, C) int32; none is where labels are not known."""
        return np.array(_indicators(task, [example.labels or () for example in examples]), dtype=np.int32)

    def decode(
        self,
        task: TaskDefinition,
        features: Features[TextArrays],
        examples: Sequence[MultiLabelExample],
        outputs: Outputs,
        options: MultiLabelOptions,
    ) -> list[LabelsPrediction]:
        """The logistic function of each logit: (N, C), or of windows (W, C)."""
        logits = self.pool(features, outputs, options)
        check_classes(task, features, logits)
        rows = _logistic(logits / options.logit_temperature).tolist()
        return [LabelsPrediction.from_probabilities(task.labels, row, options.thresholds) for row in rows]

    def fit(
        self, task: TaskDefinition, examples: Sequence[MultiLabelExample], logits: Outputs, options: MultiLabelOptions
    ) -> MultiLabelOptions:
        """The temperature that makes the examples' labels likeliest, then the thresholds with the best F1."""
        has_labels = self.label_array(task, examples)
        if options.calibrate:
            choices = np.stack([np.zeros(logits.size), logits.ravel()], axis=1)  # of each label, absent or there
            options = replace(options, logit_temperature=fit_temperature(choices, has_labels.ravel()))
        if options.tune_thresholds:
            columns = zip(_logistic(logits / options.logit_temperature).T, has_labels.T == 1, strict=True)
            options = replace(options, thresholds=tuple(tune_threshold(*column) for column in columns))
        return options

    def score(
        self, task: TaskDefinition, examples: Sequence[MultiLabelExample], predictions: Sequence[LabelsPrediction]
    ) -> dict[str, float]:
        """F1 over all labels and per label, wholly right examples, and how well probabilities rank the labels."""
        return multi_label_metrics(
            _indicators(task, [prediction.labels for prediction in predictions]),
            _indicators(task, [example.labels or () for example in examples]),
            [prediction.probabilities for prediction in predictions],
        )

    def baseline(
        self, task: TaskDefinition, learned: Sequence[MultiLabelExample], examples: Sequence[MultiLabelExample]
    ) -> list[LabelsPrediction]:
        """The labels that more than half of the examples have."""
        rows = _indicators(task, [example.labels or () for example in learned])
        shares = [fmean(column) for column in zip(*rows, strict=True)]
        return [LabelsPrediction.from_probabilities(task.labels, shares)] * len(examples)

    def row(self, task: TaskDefinition, example: MultiLabelExample, prediction: LabelsPrediction) -> dict[str, Any]:
        """Both sets of labels, and the probabilities."""
        return {
            "prediction": list(prediction.labels),
            "gold": list(example.labels or ()),
            "correct": set(prediction.labels) == set(example.labels or ()),
            "probabilities": dict(zip(task.labels, prediction.probabilities, strict=True)),
        }

    def breakdown(
        self, task: TaskDefinition, examples: Sequence[MultiLabelExample], predictions: Sequence[LabelsPrediction]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """`classes`: the scores of each label, each a choice of its own."""
        rows = []
        for label in task.labels:
            predicted = [label in prediction.labels for prediction in predictions]
            gold = [label in (example.labels or ()) for example in examples]
            rows.append({"label": label, **asdict(class_scores(confusion_matrix(predicted, gold, 2))[1])})
        return {"classes": rows}

    def decisions(self, prediction: LabelsPrediction) -> Sequence[object]:
        """The set of labels, as one."""
        return [prediction.labels]

    def answer(self, task: TaskDefinition, prediction: LabelsPrediction) -> dict[str, Any]:
        """The labels, and the probabilities by label."""
        probabilities = dict(zip(task.labels, prediction.probabilities, strict=True))
        return {"labels": list(prediction.labels), "probabilities": probabilities}


def _logistic(logits: Outputs) -> NDArray[np.float64]:
    return np.exp(-np.logaddexp(0.0, -logits.astype(np.float64)))


def _indicators(task: TaskDefinition, labels: Sequence[Sequence[str]]) -> list[list[bool]]:
    """Whether each of the task's labels is there: (N, C)."""
    return [[label in some for label in task.labels] for some in labels]
