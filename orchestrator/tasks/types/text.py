"""Common part of the types of tasks on texts and pairs of texts: tables, one window per example, requests.

Shapes: N examples, C classes, E numbers of a person's own columns.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from bert_core.errors import DataError
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import InputError, SpecError, TaskDataError
from orchestrator.specs.recipe import LongDocuments
from orchestrator.specs.task import TaskSpec
from orchestrator.tasks.features import PER_EXAMPLE, Array, Features, HeadArrays, Windows, build_text_windows
from orchestrator.tasks.text_examples import TextExample, TextTable
from orchestrator.tasks.types import base
from orchestrator.tasks.types.conll import is_named_conll
from orchestrator.tasks.types.requests import Request, RequestForm

Examples: TypeAlias = Sequence[TextExample]
P = TypeVar("P")


@dataclass(frozen=True)
class TextArrays(HeadArrays):
    """Labels, and the numbers beside the text."""

    are_windows_grouped = True
    labels: Array = field(metadata=PER_EXAMPLE)
    """(N,) int32 class numbers, -100 where unknown; (N,) float32 values, NaN where unknown; (N, C) 0 or 1."""
    tabular_features: NDArray[np.float32] | None = field(default=None, metadata=PER_EXAMPLE)
    """(N, E) a person's own columns, where the task has some."""


TextFeatures: TypeAlias = Features[TextArrays]


def split_pair(line: str) -> dict[str, Any]:
    """A line of plain text as a text, or a pair with a tab between its two."""
    first, tab, second = line.partition("\t")
    return {"text": first, "text_pair": second} if tab else {"text": first}


@dataclass(frozen=True, kw_only=True)
class TextOptions(base.TaskOptions):
    """Treatment of texts longer than a window."""

    long_documents: LongDocuments = "cut"
    """Way to read them: their beginning, or windows whose logits are pooled by their mean or maximum."""
    window_stride: int | None = None
    """Tokens between the starts of two windows; None for windows that do not overlap."""

    def window_values(self) -> dict[str, Any]:
        """The length, and the stride where texts are not cut; the pooling changes no window."""
        is_cut = self.long_documents == "cut"
        return {"max_seq_length": self.max_seq_length} | ({} if is_cut else {"window_stride": self.window_stride})


@dataclass(frozen=True, kw_only=True)
class LabelOptions(TextOptions):
    """Temperature of probabilities."""

    decoding_fields = frozenset({"calibrate", "logit_temperature"})

    calibrate: bool = False
    """Whether the temperature is fitted to labeled examples."""
    logit_temperature: float = 1.0
    """Divisor of logits."""


class TextTarget(base.Target[TextExample, P]):
    """Target of texts, or of pairs of texts."""

    def gold(self, example: TextExample) -> Any:
        return example.label

    @abstractmethod
    def encode(self, task: base.TaskDefinition, examples: Examples) -> Array:
        """The labels of examples as numbers: the array `TextArrays.labels`."""


class TextType(base.TaskType[TextExample]):
    """A task type whose examples are texts or pairs of texts."""

    target: TextTarget[Any]
    reader_type: ClassVar[type[TextTable]]
    arrays_type = TextArrays
    options_type: type[TextOptions] = TextOptions
    recipe_fields = base.HEAD_FIELDS | {"long_documents", "window_stride"}
    spec_fields = frozenset({"text_columns", "label_column", "numerical_columns", "categorical_columns"})
    request = RequestForm(("text", "text_pair"), {"text": "A charming film."}, split_pair)

    def check_spec(self, spec: TaskSpec) -> None:
        check_text_columns(spec)

    def example_of(self, task: base.TaskDefinition, request: Request) -> TextExample:
        """A text, perhaps its pair, and the values of the task's own columns."""
        text, pair = request.text("text"), request.optional_text("text_pair")
        if task.text_columns and (len(task.text_columns) == 2) != (pair is not None):
            trained = "pairs; give text_pair, too" if pair is None else "single texts; leave text_pair, or the tab, out"
            raise InputError(
                f"line {request.line}: the model reads {' and '.join(task.text_columns)}: it was trained on {trained}"
            )
        try:
            numbers, categories = task.columns.read(request.columns(task.columns.names))
        except ValueError as error:
            raise InputError(f"line {request.line}: {error}; null stands for a value that is missing") from None
        return TextExample(request.id, text, pair, numbers=numbers, categories=categories)

    def windows(
        self, task: base.TaskDefinition, examples: Examples, tokenizer: Tokenizer, options: TextOptions
    ) -> Windows[TextArrays]:
        """One window for each example, without the end of a text that is too long; or windows over all of it."""
        pairs = [(example.text, example.text_pair) for example in examples]
        is_cut = options.long_documents == "cut"
        made = build_text_windows(pairs, tokenizer, options.max_seq_length, is_cut, options.window_stride)
        tabular_features = task.columns.encode(examples) if task.columns.width else None
        return made.with_arrays(TextArrays(self.target.encode(task, examples), tabular_features))

    def gather(self, features: TextFeatures, outputs: base.Outputs, options: TextOptions) -> base.Outputs:
        """The outputs of each example, its windows pooled: (N, …) or (W, …) → (N, …)."""
        if options.long_documents == "cut":
            base.check_length(outputs, features.num_examples, "example")
            return outputs
        base.check_length(outputs, features.num_windows, "window")
        starts = features.group_starts
        if options.long_documents == "max":
            return np.asarray(np.maximum.reduceat(outputs, starts[:-1], axis=0))
        sizes = np.diff(starts).reshape(-1, *[1] * (outputs.ndim - 1))
        return np.asarray(np.add.reduceat(outputs, starts[:-1], axis=0) / sizes.astype(outputs.dtype))


def check_classes(task: base.TaskDefinition, logits: Array) -> None:
    """Check that logits are (N, C). Raises: DataError."""
    if logits.shape[1:] != (len(task.labels),):
        raise DataError(f"logits have the shape {logits.shape}; task {task.id} has {len(task.labels)} classes")


def check_text_columns(spec: TaskSpec) -> None:
    """Check that the spec names columns of text, and tables that may have them. Raises: SpecError, TaskDataError."""
    if not spec.text_columns:
        raise SpecError("task.text_columns: name the one or two columns that hold the text")
    for split, path in spec.files.items():
        if is_named_conll(path):
            raise TaskDataError(
                f"task.files.{split}: {path} has CoNLL columns by its name, and a {spec.head} task reads tables: CSV, "
                "TSV, JSONL or Parquet with a row for each text. Words and their tags are read by a ner task and its "
                "models"
            )
