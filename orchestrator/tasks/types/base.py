"""The contract of a task type: all that the torch-free half knows of one kind of labeled task.

A task type is one object without state. It reads examples from files, turns them into windows of tokens, decodes a
model's outputs into predictions, scores them, and answers requests. Everything else in the project asks the object of
`orchestrator.tasks.types.TASK_TYPES`; no code outside of a type's own file asks which head a task has.

Each type has four kinds of values of its own: the example `E`, the prediction `P`, the arrays `A` of its features, and
its options `Opt`, plain `TaskOptions` for most.

Shapes: N examples, W windows, T tokens, C classes, K ranks.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from bert_core.errors import DataError
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import InputError, SpecError
from orchestrator.base.results import Split
from orchestrator.specs.recipe import RecipeSpec
from orchestrator.specs.task import EmbeddingObjectiveName, Head, TaskSpec
from orchestrator.storage.text_lines import check_has
from orchestrator.tasks.catalogue import KnownTask
from orchestrator.tasks.cell_values import shown_name
from orchestrator.tasks.features import Array, Features, HeadArrays, Windows
from orchestrator.tasks.text_examples import NO_COLUMNS, TabularColumns
from orchestrator.tasks.text_files import Example, Reader

Outputs: TypeAlias = NDArray[Any]
"""A model's outputs for a split, in a shape that each type's file names."""
Scores: TypeAlias = dict[str, float]
"""Fractions by their names, 1 being the best."""


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """The options that every type has; a subclass adds those of its type.

    Fields that recipes have as well are the recipe's. Any other has a default, and `TaskType.calibrate` sets it.
    """

    decoding_fields: ClassVar[frozenset[str]] = frozenset()
    """Names of the fields that only predictions depend on; the others decide the windows."""

    max_seq_length: int
    """Tokens of a window, special tokens included."""

    @classmethod
    def of_recipe(cls, recipe: RecipeSpec) -> Self:
        """The options that a recipe asks for, not calibrated."""
        return cls(**cls._given_by(recipe))

    def with_recipe(self, recipe: RecipeSpec) -> Self:
        """The options that a recipe asks for, calibrated as these are."""
        return replace(self, **self._given_by(recipe))

    @classmethod
    def _given_by(cls, recipe: RecipeSpec) -> dict[str, Any]:
        return {part.name: getattr(recipe, part.name) for part in fields(cls) if part.name in RecipeSpec.model_fields}

    @classmethod
    def window_fields(cls) -> tuple[str, ...]:
        """Names of the fields that decide the windows."""
        return tuple(part.name for part in fields(cls) if part.name not in cls.decoding_fields)

    def window_values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.window_fields()}


E = TypeVar("E", bound=Example)
P = TypeVar("P")
A = TypeVar("A", bound=HeadArrays)
Opt = TypeVar("Opt", bound=TaskOptions)


@dataclass(frozen=True, kw_only=True)
class TaskDefinition:
    """Definition of a task: what is predicted, which score ranks. A fine-tuned model knows this much of its task."""

    id: str
    type: "AnyTaskType"
    labels: tuple[str, ...]
    """Names of classes or tags, in the order of the model's outputs; empty where outputs stand for no labels."""
    metric: str
    """Name of the score that ranks; higher is better."""
    unanswerable: bool = False
    """Whether a question may have no answer."""
    objective: EmbeddingObjectiveName | None = None
    """Objective that the vectors of a pair of texts are judged by (embedding)."""
    columns: TabularColumns = NO_COLUMNS
    """A person's own columns beside the text, and how the model reads them."""
    text_columns: tuple[str, ...] = ()
    """Columns of the text in the tables that the task was read from; empty where it is not known."""

    @property
    def head(self) -> Head:
        return self.type.head


@dataclass(frozen=True)
class Request:
    """A request to a fine-tuned model: the values of one line, by key."""

    values: dict[str, Any]
    line: int
    """Number of the line in its file, from 1."""
    head: Head
    """Name of the task type that is asked."""
    keys: tuple[str, ...]
    """Keys that the task type reads."""

    @property
    def id(self) -> str:
        """The `id` that the line gives, else its number."""
        return str(self.values.get("id", self.line))

    def text(self, key: str) -> str:
        """A value that is text. Raises: InputError, naming line and key."""
        check_has(key, self.values, self.line)
        if not isinstance(self.values[key], str):
            raise InputError(
                f"line {self.line}: {key} must be text; the keys of {self.head} are {', '.join(self.keys)}"
            )
        return str(self.values[key])

    def optional_text(self, key: str) -> str | None:
        """A value that is text, or None where it is missing or null. Raises: InputError, naming line and key."""
        return None if self.values.get(key) is None else self.text(key)

    def texts(self, key: str, least: int = 1) -> tuple[str, ...]:
        """A value that is a list of texts, of a least length. Raises: InputError, naming line and key."""
        check_has(key, self.values, self.line)
        texts = self.values[key]
        if not isinstance(texts, list) or len(texts) < least or not all(isinstance(text, str) for text in texts):
            at_least = f", at least {least}" if least > 1 else ""
            raise InputError(f"line {self.line}: {key} must be a list of texts{at_least}")
        return tuple(texts)

    def columns(self, names: tuple[str, ...]) -> Mapping[str, object]:
        """The values of a person's own columns, all of which must be there. Raises: InputError, naming the key."""
        for name in names:
            check_has(name, self.values, self.line)
        return self.values


class TaskType(ABC, Generic[E, P, A, Opt]):
    """One kind of labeled task. Every method is pure: the same arguments give the same result."""

    head: ClassVar[Head]
    """Name of the type, in specs and in the records of models."""
    metrics: ClassVar[tuple[str, ...]]
    """Names of the scores that a person's own task can be ranked by; the first one is the default."""
    arrays_type: type[A]
    """Class of the arrays that `windows` gives."""
    options_type: type[Opt]
    """Class of the options that `windows` and `decode` take."""
    spec_fields: ClassVar[frozenset[str]]
    """Fields of a task's spec that the type reads to find its data; the spec must leave out those of other types."""
    recipe_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields of a recipe that are made for this type; types that do not list them refuse them."""
    purpose: ClassVar[str]
    """Purpose of the type's recipe fields, for the message to a task of another type: "it is for {purpose}"."""
    label_field: ClassVar[str]
    """Field of an example with its label."""
    prediction_field: ClassVar[str]
    """Field of a prediction with the predicted label."""
    request_keys: ClassVar[tuple[str, ...]] = ()
    """Keys of a request that `example_of` reads, beside the names of own columns."""
    example_request: ClassVar[Mapping[str, Any]] = {}
    """A request, to try a model with: it has the keys that every request must have."""
    own_layout: ClassVar[str] = ""
    """Name of a file layout that only this type reads; empty where it has none."""
    labeled_layouts: ClassVar[str] = "columns of text and a column of labels"
    """Layouts of labeled files, for messages."""
    usual_text_columns: ClassVar[tuple[str, ...]] = ()
    """Columns that hold the request's keys in tables whose task names none."""
    is_searched: ClassVar[bool] = False
    """Whether an example is a query for documents of a collection, for which no head is fine-tuned."""
    needs_case: ClassVar[bool] = False
    """Whether a vocabulary should keep capitals, as for names."""
    splits_long_examples: ClassVar[bool] = False
    """Whether an example that is longer than a window becomes several windows."""
    short_lengths: ClassVar[Mapping[str, int]] = {}
    """Shortest useful `max_seq_length`, and the other lengths of a recipe that suit it; empty where any is useful."""
    usual_max_seq_length: ClassVar[int | None] = None
    """Length for a model folder without a record of its options; None for the recipe's default."""
    usual_objective: ClassVar[EmbeddingObjectiveName | None] = None
    """Objective for a model folder without a record of its objective."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    # Reading

    def find_files(self, spec: TaskSpec) -> Mapping[Split, str]:
        """The file of each split of a person's own task; empty when the spec names none. Raises: TaskDataError."""
        return spec.files

    def check_spec(self, spec: TaskSpec) -> None:
        """Check that the spec of a person's own task says what the type needs. Raises: SpecError."""

    @abstractmethod
    def reader(self, spec: TaskSpec, labels: tuple[str, ...] | None, known: KnownTask | None = None) -> Reader[E]:
        """The reader of the task's files.

        Args:
            spec: complete: fields that a known task has of its own are filled in.
            labels: names to accept; None accepts all, for finding them.
            known: the published layout, for a known task.

        Raises: SpecError, TaskDataError where the spec leads to no file.
        """

    def has_labels(self, objective: EmbeddingObjectiveName | None) -> bool:
        """Whether the model's outputs stand for labels, which are listed in the spec or found in the training split."""
        return "labels" in self.spec_fields

    def find_labels(self, examples: Iterable[E]) -> tuple[str, ...]:
        """The labels of a training split, in the order that outputs will have."""
        return tuple(sorted({name for example in examples for name in self.label_names(example)}))

    def check_labels(self, labels: tuple[str, ...]) -> None:
        """Check that labels can be told apart. Raises: SpecError."""
        if len(labels) < 2 or len(set(labels)) < len(labels):
            raise SpecError(f"task.labels {', '.join(labels)}: at least two labels, each once, can be told apart")

    def labels_note(self, examples: Sequence[E]) -> str | None:
        """Reason why the labels of a split cannot tell a good model from a bad one; None where they can."""
        return None

    def label_names(self, example: E) -> tuple[str, ...]:
        """The labels of an example; of tagged words the entity types."""
        return ()

    def has_unanswerable(self, examples: Iterable[E]) -> bool:
        """Whether some question has no answer; reads examples only where the type has questions."""
        return False

    def goal(self, spec: TaskSpec) -> str:
        """Describe what a task of one's own predicts, by the columns of its tables."""
        labels = ", ".join(map(shown_name, spec.label_columns or (str(spec.label_column),)))
        apart = f", several apart by {spec.label_separator!r}" if "label_separator" in spec.model_fields_set else ""
        return f"{labels} from {' and '.join(map(shown_name, spec.text_columns))}{apart}"

    def refused_recipe_fields(self, objective: EmbeddingObjectiveName | None) -> Mapping[str, str]:
        """Recipe fields of every type that do not apply to this one or to the objective, with the reason."""
        return {}

    # Windows

    @abstractmethod
    def windows(self, task: TaskDefinition, examples: Sequence[E], tokenizer: Tokenizer, options: Opt) -> Windows[A]:
        """Examples, labeled or not, as windows of tokens; each example has at least one, in the examples' order.

        A label that is not known is -100 or NaN in the arrays. Raises: SpecError when lengths leave no room for text.
        """

    # Decoding and scoring

    @abstractmethod
    def decode(
        self, task: TaskDefinition, features: Features[A], examples: Sequence[E], outputs: Outputs, options: Opt
    ) -> list[P]:
        """A prediction for each example, from finite outputs in the shape that the type's file names.

        Raises: DataError when the outputs do not fit the features.
        """

    def default_metric(self, objective: EmbeddingObjectiveName | None) -> str:
        """Name of the score that ranks a task of one's own."""
        return self.metrics[0]

    def metric_names(self, task: TaskDefinition) -> tuple[str, ...]:
        """Names of the scores that a task can be ranked by."""
        return self.metrics

    def positive_label(self, task: TaskDefinition) -> str | None:
        """The class whose F1 the score `f1` is; None where `f1` is not the score of one class."""
        return None

    @abstractmethod
    def score(self, task: TaskDefinition, examples: Sequence[E], predictions: Sequence[P]) -> Scores:
        """The scores of predictions, one for each labeled example in order; each is a fraction, 1 being the best."""

    @abstractmethod
    def baseline(self, task: TaskDefinition, learned: Sequence[E], examples: Sequence[E]) -> list[P]:
        """Predictions for `examples` that need no reading of their text, learned from the labels of `learned`."""

    def row(self, task: TaskDefinition, example: E, prediction: P) -> dict[str, Any]:
        """A prediction beside its labeled example, in JSON values: `prediction`, `gold`, and how well they agree."""
        predicted = _json_value(getattr(prediction, self.prediction_field))
        gold = _json_value(getattr(example, self.label_field))
        return {
            "prediction": predicted,
            "gold": gold,
            "correct": predicted == gold,
            **self.confidence(task, prediction),
        }

    def confidence(self, task: TaskDefinition, prediction: P) -> dict[str, Any]:
        """Confidence of a prediction in JSON values: probabilities by label or choice, scores."""
        found = {name: getattr(prediction, name, None) for name in ("probabilities", "scores")}
        return {
            name: dict(zip(task.labels, values, strict=False)) if self.has_labels(task.objective) else list(values)
            for name, values in found.items()
            if values is not None
        }

    def decisions(self, prediction: P) -> Sequence[object]:
        """Parts of a prediction that two models agree on or not, such as each tag; no probabilities."""
        return [getattr(prediction, self.prediction_field)]

    def agreement(self, first: Sequence[P], second: Sequence[P]) -> float:
        """Share of equal decisions in two models' predictions for the same examples."""
        one, other = ([part for prediction in side for part in self.decisions(prediction)] for side in (first, second))
        return fmean(part == its for part, its in zip(one, other, strict=True))

    def calibrate(
        self,
        task: TaskDefinition,
        features: Features[A],
        examples: Sequence[E],
        outputs: Outputs,
        options: Opt,
        predictions: Sequence[P],
    ) -> tuple[Opt, list[P]]:
        """The options fitted to labeled examples, and the examples' predictions decoded with them.

        Args:
            options: those that `predictions` were decoded with, from the outputs.
        """
        return options, list(predictions)

    def split_text(self, example: E) -> str:
        """Text of an example that no other split may have."""
        said = self.inputs(example).values()
        return "\t".join(value if isinstance(value, str) else " ".join(map(str, value)) for value in said)

    def inputs(self, example: E) -> dict[str, Any]:
        """Values of an example by the keys of a request."""
        values = {key: _json_value(getattr(example, key, None)) for key in self.request_keys}
        return {key: value for key, value in values.items() if value is not None}

    # Answers

    def unlabeled_reader(self, path: str) -> Reader[E] | None:
        """The reader, without labels, of a file in the type's own layout; None where each line is a request.

        Raises: InputError for a file that cannot be read.
        """
        return None

    def parse_text(self, line: str) -> dict[str, Any] | None:
        """A line of plain text as the values of a request; None where only JSON says enough."""
        return None

    @property
    def reads_plain_text(self) -> bool:
        return self.parse_text("a") is not None

    @property
    def optional_keys(self) -> frozenset[str]:
        """Keys that a request may leave out."""
        return frozenset(self.request_keys) - self.example_request.keys()

    @property
    def list_keys(self) -> frozenset[str]:
        """Keys whose values are lists of texts, which CSV and TSV cannot hold."""
        return frozenset(key for key, value in self.example_request.items() if isinstance(value, list))

    @abstractmethod
    def example_of(self, task: TaskDefinition, request: Request) -> E:
        """Parse a request into an example without a label. Raises: InputError, naming line and key."""

    def answer(self, task: TaskDefinition, prediction: P) -> dict[str, Any]:
        """A prediction in JSON values, and how sure the model is."""
        predicted = _json_value(getattr(prediction, self.prediction_field))
        return {self.prediction_field: predicted, **self.confidence(task, prediction)}

    def brief_answer(self, task: TaskDefinition, prediction: P) -> tuple[object, float | None]:
        """The prediction as a cell of a table, and its probability where it has one."""
        first = next(iter(self.answer(task, prediction).values()))
        if isinstance(first, list):
            return ", ".join(map(str, first)), None
        return first, max(getattr(prediction, "probabilities", ()), default=None)

    def relevance(self, task: TaskDefinition, label: str | None, folder: str) -> Callable[[P], float]:
        """Function from the prediction for a pair of query and document to the document's relevance.

        Args:
            label: the class that marks a document as relevant.
            folder: the model's, for messages.

        Raises: InputError when predictions say nothing about pairs of texts, or the label does not fit.
        """
        raise InputError(
            f"{folder} is a model for {self.head}; documents are scored again by one fine-tuned on pairs of texts, "
            "for regression or classification"
        )


AnyTaskType: TypeAlias = TaskType[Any, Any, Any, Any]
"""A task type where it does not matter which."""


def _json_value(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def check_length(outputs: Outputs, expected: int, unit: str) -> None:
    """Check that there is an output for each unit. Raises: DataError."""
    if len(outputs) != expected:
        raise DataError(f"{len(outputs)} outputs for {expected} {unit}s; there must be one for each")


def softmax(logits: Array) -> NDArray[np.float64]:
    """Probabilities over the last axis."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True).astype(np.float64))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))
