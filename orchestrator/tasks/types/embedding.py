"""Sentence embeddings: the vectors of two texts are compared, as the task's objective says.

Each objective is an object of `embedding_objectives` and has another task type for its judge, which is asked for all
that concerns predictions. Outputs have the shape that the judge decodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import InputError, SpecError
from orchestrator.specs.task import EmbeddingObjectiveName, TaskSpec
from orchestrator.tasks.catalogue import KnownTask
from orchestrator.tasks.features import PER_EXAMPLE, PER_WINDOW, Array, Features, HeadArrays, Windows
from orchestrator.tasks.options import TaskOptions
from orchestrator.tasks.readers import Reader
from orchestrator.tasks.text_examples import TextExample
from orchestrator.tasks.text_windows import build_text_windows
from orchestrator.tasks.types.base import Outputs, TaskDefinition, TaskType
from orchestrator.tasks.types.classification import Classification
from orchestrator.tasks.types.embedding_objectives import EMBEDDING_OBJECTIVES, EmbeddingObjective
from orchestrator.tasks.types.requests import Request
from orchestrator.tasks.types.text import check_text_columns

_NO_HEAD = "an embedding has no head above its encoder"


@dataclass(frozen=True)
class PairArrays(HeadArrays):
    """Labels of pairs of texts; the windows of a pair are its two texts, and those that do not belong to the first."""

    are_windows_grouped = True

    labels: Array | None = field(default=None, metadata=PER_EXAMPLE)
    """(N,) scores or class numbers, for objectives that have some."""
    text_numbers: Array | None = field(default=None, metadata=PER_WINDOW)
    """(W,) numbers of texts, equal where tokens are, for an objective that compares pairs with one another."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingOptions(TaskOptions):
    """Lengths of texts, and the text before each of them."""

    query_prompt: str | None = None
    """Text before each first text."""
    document_prompt: str | None = None
    """Text before each other text."""


_CLASSIFICATION = Classification()


def _judged(name: str) -> Any:
    """The method of the type that judges the task's objective."""

    def method(self: TaskType[Any, Any, Any, Any], task: TaskDefinition, *arguments: Any) -> Any:
        return getattr(_objective(task.objective).judge, name)(task, *arguments)

    return method


class Embedding(TaskType[TextExample, Any, PairArrays, EmbeddingOptions]):
    """Vectors of texts, compared in pairs."""

    head = "embedding"
    metrics = ()
    purpose = "vectors of texts"
    arrays_type = PairArrays
    options_type = EmbeddingOptions
    spec_fields = frozenset({"text_columns", "negative_columns", "label_column", "labels", "objective", "score_range"})
    recipe_fields = frozenset({"pooling", "query_prompt", "document_prompt"}).union(
        *(some.recipe_fields for some in EMBEDDING_OBJECTIVES.values())
    )
    request_keys = ("text", "text_pair")
    example_request: ClassVar[Mapping[str, Any]] = {"text": "A charming film.", "text_pair": "A lovely picture."}
    usual_objective = "cosine"

    metric_names = _judged("metric_names")
    score = _judged("score")
    baseline = _judged("baseline")
    row = _judged("row")
    wrongness = _judged("wrongness")
    breakdown = _judged("breakdown")
    answer = _judged("answer")
    brief_answer = _judged("brief_answer")

    def check_spec(self, spec: TaskSpec) -> None:
        """Check that the spec says what its pairs are. Raises: SpecError."""
        check_text_columns(spec)
        if len(spec.text_columns) != 2:
            raise SpecError("task.text_columns: name the two columns whose texts make a pair")
        if spec.objective is None:
            listed = ", ".join(f"{some.name} ({some.pairs})" for some in EMBEDDING_OBJECTIVES.values())
            raise SpecError(f"task.objective: say what vectors are compared by, one of {listed}")
        objective = _objective(spec.objective)
        if spec.negative_columns and not objective.reads_negatives:
            raise SpecError(f"task.negative_columns: objective {objective.name} compares pairs alone; leave it out")
        objective.check_spec(spec)

    def reader(
        self, spec: TaskSpec, labels: tuple[str, ...] | None, known: KnownTask | None = None
    ) -> Reader[TextExample]:
        """A table of pairs, with a score, a class or neither."""
        return _objective(spec.objective).reader(spec, labels)

    def split_fields(self, spec: TaskSpec) -> Mapping[str, Any]:
        """A column for each text of a pair, and one for the texts that do not belong to it."""
        return {"text_columns": ("query", "positive"), "negative_columns": ("negatives",), "label_column": None}

    def split_row(self, spec: TaskSpec, example: Any) -> Mapping[str, Any]:
        """The pair, and the texts that do not belong to its first one."""
        return {"query": example.text, "positive": example.text_pair, "negatives": example.negatives}

    def has_labels(self, objective: EmbeddingObjectiveName | None) -> bool:
        """Whether pairs have classes."""
        return _objective(objective).judge.has_labels(None)

    def find_labels(self, examples: Iterable[Any]) -> tuple[str, ...]:
        """The classes that occur, sorted."""
        return _CLASSIFICATION.find_labels(examples)

    def refused_recipe_fields(self, objective: EmbeddingObjectiveName | None) -> Mapping[str, str]:
        """Fields of a head above the encoder, and those made for other objectives, with the reason."""
        of_head = ("freeze_encoder", "unfreeze_every_epochs", "layer_pooling", "head_learning_rate")
        refused = dict.fromkeys(of_head, _NO_HEAD)
        if objective is not None:
            own = _objective(objective).recipe_fields
            for other in EMBEDDING_OBJECTIVES.values():
                reason = f"it is for {other.purpose} ({other.name}); the task's objective is {objective}"
                refused |= dict.fromkeys(other.recipe_fields - own, reason)
        return refused

    def windows(
        self, task: TaskDefinition, examples: Sequence[TextExample], tokenizer: Tokenizer, options: EmbeddingOptions
    ) -> Windows[PairArrays]:
        """A window for each text of an example: its two, and those that do not belong to the first."""
        query, document = options.query_prompt or "", options.document_prompt or ""
        objective = _objective(task.objective)
        groups = [objective.texts(example) for example in examples]
        texts = [((document if place else query) + text, None) for group in groups for place, text in enumerate(group)]
        made = build_text_windows(texts, tokenizer, options.max_seq_length)
        example_index = np.repeat(np.arange(len(examples), dtype=np.int32), [len(group) for group in groups])
        return Windows(
            input_ids=made.input_ids,
            token_type_ids=made.token_type_ids,
            cu_seqlens=made.cu_seqlens,
            example_index=example_index,
            head_arrays=PairArrays(**objective.arrays(task, examples, made)),
            counts={
                "num_truncated": len(np.unique(example_index[made.num_cut > 0])),
                "num_tokens_cut": int(made.num_cut.sum()),
            },
        )

    def decode(
        self,
        task: TaskDefinition,
        features: Features[Any],
        examples: Sequence[TextExample],
        outputs: Outputs,
        options: TaskOptions,
    ) -> list[Any]:
        """Predictions of the type that judges the objective."""
        judge = _objective(task.objective).judge
        own = judge.options_type(max_seq_length=options.max_seq_length)
        return judge.decode(task, features, examples, outputs, own)

    def default_metric(self, objective: EmbeddingObjectiveName | None) -> str:
        """Name of the score that ranks by the objective."""
        return _objective(objective).default_metric

    def decisions(self, prediction: Any) -> Sequence[object]:
        """The prediction as one: of embeddings, vectors are compared."""
        return [prediction]

    def parse_text(self, line: str) -> dict[str, Any]:
        """A text, or two with a tab between them."""
        return _CLASSIFICATION.parse_text(line)

    def example_of(self, task: TaskDefinition, request: Request) -> TextExample:
        """A pair of texts, where the objective compares two."""
        example: TextExample = _objective(task.objective).judge.example_of(task, request)
        if example.text_pair is None:
            raise InputError(
                f"line {request.line}: this model compares two texts; give text and text_pair, or a tab between them; "
                "`embed` gives the vector of one text"
            )
        return example


def _objective(name: EmbeddingObjectiveName | None) -> EmbeddingObjective:
    assert name is not None, "a task for embeddings has an objective: check_spec asks for it"
    return EMBEDDING_OBJECTIVES[name]
