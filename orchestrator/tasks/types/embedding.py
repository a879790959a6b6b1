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
from orchestrator.tasks.features import PER_EXAMPLE, Array, Features, HeadArrays, Windows
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
    """Labels of pairs of texts; the windows of a pair are its two texts."""

    are_windows_grouped = True

    labels: Array = field(metadata=PER_EXAMPLE)
    """(N,) scores or class numbers; or (N, 2) numbers of two texts that belong together, equal where tokens are."""


_CLASSIFICATION = Classification()


class Embedding(TaskType[TextExample, Any, PairArrays, TaskOptions]):
    """Vectors of texts, compared in pairs."""

    head = "embedding"
    metrics = ()
    purpose = "vectors of texts"
    arrays_type = PairArrays
    options_type = TaskOptions
    spec_fields = frozenset({"text_columns", "label_column", "labels", "objective", "score_range"})
    recipe_fields = frozenset({"pooling"}).union(*(some.recipe_fields for some in EMBEDDING_OBJECTIVES.values()))
    request_keys = ("text", "text_pair")
    example_request: ClassVar[Mapping[str, Any]] = {"text": "A charming film.", "text_pair": "A lovely picture."}
    usual_objective = "cosine"

    def check_spec(self, spec: TaskSpec) -> None:
        """Check that the spec says what its pairs are. Raises: SpecError."""
        check_text_columns(spec)
        if len(spec.text_columns) != 2:
            raise SpecError("task.text_columns: name the two columns whose texts make a pair")
        if spec.objective is None:
            listed = ", ".join(f"{some.name} ({some.pairs})" for some in EMBEDDING_OBJECTIVES.values())
            raise SpecError(f"task.objective: say what vectors are compared by, one of {listed}")
        _objective(spec.objective).check_spec(spec)

    def reader(
        self, spec: TaskSpec, labels: tuple[str, ...] | None, known: KnownTask | None = None
    ) -> Reader[TextExample]:
        """A table of pairs, with a score, a class or neither."""
        return _objective(spec.objective).reader(spec, labels)

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
        self, task: TaskDefinition, examples: Sequence[TextExample], tokenizer: Tokenizer, options: TaskOptions
    ) -> Windows[PairArrays]:
        """Two windows for each example, one for each of its texts."""
        texts = [(text, None) for example in examples for text in (example.text, example.text_pair or "")]
        made = build_text_windows(texts, tokenizer, options.max_seq_length)
        return Windows(
            input_ids=made.input_ids,
            token_type_ids=made.token_type_ids,
            cu_seqlens=made.cu_seqlens,
            example_index=np.repeat(np.arange(len(examples), dtype=np.int32), 2),
            head_arrays=PairArrays(_objective(task.objective).labels(task, examples, made)),
            counts={
                "num_truncated": int(made.num_cut.reshape(-1, 2).any(axis=1).sum()),
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

    def metric_names(self, task: TaskDefinition) -> tuple[str, ...]:
        """Those of the judging type."""
        return _objective(task.objective).judge.metric_names(task)

    def score(
        self, task: TaskDefinition, examples: Sequence[TextExample], predictions: Sequence[Any]
    ) -> dict[str, float]:
        """The scores of the judging type."""
        return _objective(task.objective).judge.score(task, examples, predictions)

    def baseline(
        self, task: TaskDefinition, learned: Sequence[TextExample], examples: Sequence[TextExample]
    ) -> list[Any]:
        """The baseline of the judging type."""
        return _objective(task.objective).judge.baseline(task, learned, examples)

    def row(self, task: TaskDefinition, example: TextExample, prediction: Any) -> dict[str, Any]:
        """The row of the judging type."""
        return _objective(task.objective).judge.row(task, example, prediction)

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

    def wrongness(self, task: TaskDefinition, example: Any, prediction: Any) -> float:
        """The wrongness that the judging type sees."""
        return _objective(task.objective).judge.wrongness(task, example, prediction)

    def breakdown(
        self, task: TaskDefinition, examples: Sequence[Any], predictions: Sequence[Any]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """The tables of the judging type."""
        return _objective(task.objective).judge.breakdown(task, examples, predictions)

    def answer(self, task: TaskDefinition, prediction: Any) -> dict[str, Any]:
        """The answer of the judging type."""
        return _objective(task.objective).judge.answer(task, prediction)

    def brief_answer(self, task: TaskDefinition, prediction: Any) -> tuple[object, float | None]:
        """The brief answer of the judging type."""
        return _objective(task.objective).judge.brief_answer(task, prediction)


def _objective(name: EmbeddingObjectiveName | None) -> EmbeddingObjective:
    assert name is not None, "a task for embeddings has an objective: check_spec asks for it"
    return EMBEDDING_OBJECTIVES[name]
