"""The contract of a task type, torch-free: how text becomes a model's input, and its outputs predictions and scores.

A task type is one object without state, and so is its target. Everything else in the project asks the object of
`orchestrator.tasks.types.TASK_TYPES`; no code outside of a type's own file asks which head a task has.

To add a task type, write

1. a `Target`, what is predicted: `field` and `metrics` name it, `decode` makes predictions of outputs, `score` compares
   them with examples, `baseline` predicts without reading. A target of texts also has `encode`, labels as numbers.
2. a `TaskType`, how text is read: `reader_type` reads files by the `spec_fields` of a task, `windows` lays examples out
   as tokens, `gather` brings outputs back to a row for each example, `example_of` reads a request. Texts and pairs of
   texts have the last three in `text.TextType`.
3. a `HeadTraining` (`orchestrator.finetuning.heads`): `loss` on labels, and `soft_loss` on a teacher's logits.
4. its name in `Head` (`orchestrator.specs.task`), and its objects in the lists `TYPES` and `HEADS`.

Everything else has a default. `tests/orchestrator/tasks/types/test_new_type.py` adds a type for texts in this way.

Shapes: N examples, W windows, T tokens, C classes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from bert_core.errors import DataError
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import SpecError
from orchestrator.base.results import Split
from orchestrator.specs.recipe import RecipeSpec
from orchestrator.specs.task import EmbeddingObjectiveName, Head, TaskSpec
from orchestrator.tasks.catalogue import KnownTask
from orchestrator.tasks.cell_values import shown_name
from orchestrator.tasks.features import Array, Features, HeadArrays, Windows
from orchestrator.tasks.text_examples import NO_COLUMNS, TabularColumns
from orchestrator.tasks.text_files import Reader
from orchestrator.tasks.types.requests import Request, RequestForm

Outputs: TypeAlias = NDArray[Any]
"""A model's outputs for a split, in a shape that each type's file names."""
Scores: TypeAlias = dict[str, float]
"""Fractions by their names, 1 being the best."""
HEAD_FIELDS = frozenset(
    {"freeze_encoder", "unfreeze_every_epochs", "layer_pooling", "head_learning_rate", "scalar_mix_learning_rate"}
)
"""Fields of a recipe for models with a head above the encoder."""


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """The options that every type has; a subclass adds those of its type.

    Fields that recipes have as well are the recipe's. Any other has a default, and `Target.fit` sets it.
    """

    decoding_fields: ClassVar[frozenset[str]] = frozenset()
    """Names of the fields that only predictions depend on; the others decide the windows."""

    max_seq_length: int
    """Tokens of a window, special tokens included."""

    @classmethod
    def of_recipe(cls, recipe: RecipeSpec) -> Self:
        """The options that a recipe asks for, not fitted."""
        return cls(**cls._given_by(recipe))

    def with_recipe(self, recipe: RecipeSpec) -> Self:
        """The options that a recipe asks for, fitted as these are."""
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
    columns: TabularColumns = NO_COLUMNS
    """A person's own columns beside the text, and how the model reads them."""
    text_columns: tuple[str, ...] = ()
    """Columns of the text in the tables that the task was read from; empty where it is not known."""

    @property
    def head(self) -> Head:
        return self.type.head

    @property
    def objective(self) -> EmbeddingObjectiveName | None:
        return self.type.objective

    @property
    def request_columns(self) -> tuple[str, ...]:
        """The columns of the text where they hold the keys of a request, in their order; else none."""
        return self.text_columns if len(self.text_columns) <= self.type.request.num_columns else ()

    @property
    def request_example(self) -> dict[str, Any]:
        """A request, to try the model with: of as many texts as it was trained on, its own columns without a value."""
        form = self.type.request
        texts = dict.fromkeys(form.keys[: len(self.request_columns)], "It rained.")
        return {**texts, **form.example, **dict.fromkeys(self.columns.names)}

    @property
    def target(self) -> "Target[Any, Any]":
        return self.type.target


E = TypeVar("E")
P = TypeVar("P")


class Target(ABC, Generic[E, P]):
    """Predictions `P` that outputs become, and their comparison with the labels of examples `E`.

    Every method is pure: the same arguments give the same result.
    """

    field: ClassVar[str]
    """Field of a prediction with the predicted label; of examples that are no texts with the label, too."""
    metrics: ClassVar[tuple[str, ...]]
    """Names of the scores that a person's own task can be ranked by; the first one is the default."""
    ranks_documents: ClassVar[bool] = False
    """Whether the prediction for a query and a document says how relevant it is: by its `value`, or by the probability
    of a class."""

    @abstractmethod
    def decode(self, task: TaskDefinition, examples: Sequence[E], rows: Any, options: Any) -> list[P]:
        """A prediction for each example, from its row of outputs.

        Args:
            rows: one for each example, as the type's `gather` gives them.
            options: the type's own.

        Raises: DataError for outputs of another shape.
        """

    def fit(self, task: TaskDefinition, examples: Sequence[E], rows: Any, options: Any) -> Any:
        """The options with what labeled examples decide of decoding: a temperature, a threshold. See `decode`."""
        return options

    @abstractmethod
    def score(self, task: TaskDefinition, examples: Sequence[E], predictions: Sequence[P]) -> Scores:
        """The scores of predictions, one for each labeled example in order; each is a fraction, 1 being the best."""

    @abstractmethod
    def baseline(self, task: TaskDefinition, learned: Sequence[E], examples: Sequence[E]) -> list[P]:
        """Predictions for `examples` that need no reading of their text, learned from the labels of `learned`."""

    def metric_names(self, task: TaskDefinition) -> tuple[str, ...]:
        """Names of the scores that a task can be ranked by."""
        return self.metrics

    def positive_label(self, task: TaskDefinition) -> str | None:
        """The class whose F1 the score `f1` is; None where `f1` is not the score of one class."""
        return None

    # Labels

    def gold(self, example: E) -> Any:
        """The label of an example; None where it is not known."""
        return getattr(example, self.field, None)

    def label_names(self, example: E) -> tuple[str, ...]:
        """The names among an example's labels; of tagged words the entity types."""
        label = self.gold(example)
        names = label if isinstance(label, tuple) else (label,)
        return tuple(name for name in names if isinstance(name, str))

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

    # Predictions for people

    def row(self, task: TaskDefinition, example: E, prediction: P) -> dict[str, Any]:
        """A prediction beside its labeled example, in JSON values: `prediction`, `gold`, and how well they agree."""
        predicted, gold = json_value(getattr(prediction, self.field)), json_value(self.gold(example))
        own = {"prediction": predicted, "gold": gold, "correct": predicted == gold}
        return {**own, **_confidence(task, prediction)}

    def answer(self, task: TaskDefinition, prediction: P) -> dict[str, Any]:
        """A prediction in JSON values, and how sure the model is; what was predicted comes first."""
        return {self.field: json_value(getattr(prediction, self.field)), **_confidence(task, prediction)}

    def agreement(self, first: Sequence[P], second: Sequence[P]) -> float:
        """Agreement of two models' predictions for the same examples: the share of equal ones."""
        return share_equal(*([getattr(prediction, self.field) for prediction in side] for side in (first, second)))


class TaskType(ABC, Generic[E]):
    """One kind of labeled task. Every method is pure: the same arguments give the same result."""

    head: ClassVar[Head]
    """Name of the type, in specs and in the records of models."""
    objective: ClassVar[EmbeddingObjectiveName | None] = None
    """Name of what tells types with the same head apart (embedding)."""
    target: Target[E, Any]
    """Target of the task: its predictions and scores."""
    reader_type: ClassVar[type[Reader[Any]]]
    """Class of the readers of files, where one class reads all."""
    request: RequestForm = RequestForm()
    """Form of the requests that `example_of` reads."""
    spec_fields: ClassVar[frozenset[str]]
    """Fields of a task's spec that the type reads to find its data; the spec must leave out those of other types."""
    recipe_fields: ClassVar[frozenset[str]] = HEAD_FIELDS
    """Fields of a recipe that are made for this type; types that do not list them refuse them."""
    arrays_type: type[HeadArrays] = HeadArrays
    """Class of the arrays that `windows` gives."""
    options_type: type[TaskOptions] = TaskOptions
    """Class of the options that windows and decoding take."""
    labeled_layout: ClassVar[str] = "columns of text and a column of labels"
    """Layouts of labeled files, in words for messages."""
    own_layout: ClassVar[str] = ""
    """Name of a layout that only this type reads; empty where it has none."""
    default_columns: ClassVar[tuple[str, ...]] = ()
    """Columns that hold the request's keys in tables whose task names none."""
    splits_long_examples: ClassVar[bool] = False
    """Whether an example that is longer than a window becomes several windows."""
    usual_length: ClassVar[int | None] = None
    """`max_seq_length` of a model folder without a record of its options; None for as many tokens as it reads."""
    shortest_lengths: ClassVar[Mapping[str, int]] = {}
    """Shortest useful `max_seq_length`, and the other lengths of a recipe that suit it; empty where any is useful."""
    is_searched: ClassVar[bool] = False
    """Whether an example is a query for documents of a collection, for which no head is fine-tuned."""
    needs_case: ClassVar[bool] = False
    """Whether a vocabulary should keep capitals, as for names."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @property
    def name(self) -> str:
        """The head's name, and the objective where it has several."""
        return self.head if self.objective is None else f"{self.head} ({self.objective})"

    @property
    def has_labels(self) -> bool:
        """Whether the model's outputs stand for labels, which are listed in the spec or found in the training split."""
        return "labels" in self.spec_fields

    # Reading

    def find_files(self, spec: TaskSpec) -> Mapping[Split, str]:
        """The file of each split of a person's own task; empty when the spec names none. Raises: TaskDataError."""
        return spec.files

    def check_spec(self, spec: TaskSpec) -> None:
        """Check that the spec of a person's own task says what the type needs. Raises: SpecError."""

    def reader(self, spec: TaskSpec, labels: tuple[str, ...] | None, known: KnownTask | None = None) -> Reader[E]:
        """The reader of the task's files, of the type's own class.

        Args:
            spec: complete: fields that a known task has of its own are filled in.
            labels: names to accept; None accepts all, for finding them.
            known: the published layout, for a known task.

        Raises: SpecError, TaskDataError where the spec leads to no file.
        """
        return self.reader_type.of_spec(spec, labels, known)

    def unlabeled_reader(self, path: str) -> Reader[E] | None:
        """The reader, without labels, of a file in the type's own layout; None where each line is a request.

        Raises: InputError for a file that cannot be read.
        """
        return None

    @abstractmethod
    def example_of(self, task: TaskDefinition, request: Request) -> E:
        """Parse a request into an example without a label. Raises: InputError, naming line and key."""

    def inputs(self, example: E) -> dict[str, Any]:
        """Values of an example by the keys of a request."""
        values = {key: json_value(getattr(example, key, None)) for key in self.request.keys}
        return {key: value for key, value in values.items() if value is not None}

    def split_text(self, example: E) -> str:
        """Text of an example that no other split may have."""
        said = self.inputs(example).values()
        return "\t".join(value if isinstance(value, str) else " ".join(map(str, value)) for value in said)

    def has_unanswerable(self, examples: Iterable[E]) -> bool:
        """Whether some question has no answer; reads examples only where the type has questions."""
        return False

    def goal(self, spec: TaskSpec) -> str:
        """Describe what a task of one's own predicts, by the columns of its tables."""
        labels = ", ".join(map(shown_name, spec.label_columns or (str(spec.label_column),)))
        apart = f", several apart by {spec.label_separator!r}" if "label_separator" in spec.model_fields_set else ""
        return f"{labels} from {' and '.join(map(shown_name, spec.text_columns))}{apart}"

    # Windows

    @abstractmethod
    def windows(self, task: TaskDefinition, examples: Sequence[E], tokenizer: Tokenizer, options: Any) -> Windows[Any]:
        """Examples, labeled or not, as windows of tokens; each example has at least one, in the examples' order.

        A label that is not known is -100 or NaN in the arrays. Raises: SpecError when lengths leave no room for text.
        """

    def gather(self, features: Features[Any], outputs: Outputs, options: Any) -> Any:
        """A model's outputs as a row for each example, for the target to decode: (N, …), or a list of arrays.

        Raises: DataError when the outputs do not fit the features.
        """
        check_length(outputs, features.num_examples, "example")
        return outputs


AnyTaskType: TypeAlias = TaskType[Any]
"""A task type where it does not matter which."""


def json_value(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _confidence(task: TaskDefinition, prediction: object) -> dict[str, Any]:
    """Confidence of a prediction in JSON values: probabilities by label or choice, scores."""
    found = {name: getattr(prediction, name, None) for name in ("probabilities", "scores")}
    return {
        name: dict(zip(task.labels, values, strict=False)) if task.type.has_labels else list(values)
        for name, values in found.items()
        if values is not None
    }


def share_equal(first: Iterable[object], second: Iterable[object]) -> float:
    """Share of equal parts of two models' predictions."""
    return fmean(one == other for one, other in zip(first, second, strict=True))


def check_length(outputs: Outputs, expected: int, unit: str) -> None:
    """Check that there is an output for each unit. Raises: DataError."""
    if len(outputs) != expected:
        raise DataError(f"{len(outputs)} outputs for {expected} {unit}s; there must be one for each")


def softmax(logits: Array) -> NDArray[np.float64]:
    """Probabilities over the last axis."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True).astype(np.float64))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def sigmoid(logits: Array) -> NDArray[np.float64]:
    """Probability of each logit, whose counterpart is 0."""
    return np.exp(-np.logaddexp(0.0, -logits.astype(np.float64)))
