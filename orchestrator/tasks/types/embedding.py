"""Sentence embeddings: the vectors of two texts are compared, as the task's objective says.

An objective is judged as another task type is: `cosine` as regression on a score, `classification` as classes of
pairs, `in_batch_negatives` as retrieval of each text's partner. What concerns predictions is asked of that type.
Outputs are cosines (N,), class logits (N, C), or rows of the pairs whose second texts are nearest (N, K).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import InputError, SpecError
from orchestrator.specs.task import EmbeddingObjectiveName, TaskSpec
from orchestrator.tasks.catalogue import KnownTask
from orchestrator.tasks.features import PER_EXAMPLE, Array, FeatureOptions, Features, HeadArrays, Windows
from orchestrator.tasks.text_examples import TextExample
from orchestrator.tasks.text_windows import TextWindows, build_text_windows
from orchestrator.tasks.types.base import AnyTaskType, DecodingOptions, Outputs, TaskDefinition, TaskType
from orchestrator.tasks.types.classification import Classification, ClassificationTable
from orchestrator.tasks.types.pair_tables import MatchTable, SimilarityTable
from orchestrator.tasks.types.readers import Reader
from orchestrator.tasks.types.regression import Regression
from orchestrator.tasks.types.requests import Request
from orchestrator.tasks.types.retrieval import Retrieval
from orchestrator.tasks.types.text import check_text_columns

_NO_HEAD = "an embedding has no head above its encoder"


@dataclass(frozen=True)
class PairArrays(HeadArrays):
    """Labels of pairs of texts; the windows of a pair are its two texts."""

    are_windows_grouped = True

    labels: Array = field(metadata=PER_EXAMPLE)
    """(N,) scores or class numbers; or (N, 2) numbers of two texts that belong together, equal where tokens are."""


@dataclass(frozen=True)
class _Judgment:
    """Rules by which one objective's pairs are read, labeled and judged."""

    judge: AnyTaskType
    reader: Callable[[TaskSpec, tuple[str, ...] | None], Reader[TextExample]]
    labels: Callable[[TaskDefinition, Sequence[Any], TextWindows], Array]


def _read_scores(spec: TaskSpec, labels: tuple[str, ...] | None) -> SimilarityTable:
    assert spec.score_range is not None, "check_spec asks for it"
    least, greatest = spec.score_range
    return SimilarityTable(spec.text_columns, spec.label_column or "label", least=least, greatest=greatest)


def _read_classes(spec: TaskSpec, labels: tuple[str, ...] | None) -> ClassificationTable:
    classes = None if labels is None else {name: name for name in labels}
    return ClassificationTable(spec.text_columns, spec.label_column or "label", classes)


def _number_texts(task: TaskDefinition, examples: Sequence[Any], windows: TextWindows) -> NDArray[np.int32]:
    """A number for each text, the same for texts that a model cannot tell apart: (N, 2)."""
    texts = np.split(windows.input_ids, windows.cu_seqlens[1:-1])
    numbers: dict[bytes, int] = {}
    found = [numbers.setdefault(text.tobytes(), len(numbers)) for text in texts]
    return np.array(found, np.int32).reshape(-1, 2)


_REGRESSION, _CLASSIFICATION, _RETRIEVAL = Regression(), Classification(), Retrieval()
_JUDGMENTS: Mapping[EmbeddingObjectiveName, _Judgment] = MappingProxyType(
    {
        "cosine": _Judgment(_REGRESSION, _read_scores, lambda task, some, _: _REGRESSION.label_array(task, some)),
        "in_batch_negatives": _Judgment(_RETRIEVAL, lambda spec, labels: MatchTable(spec.text_columns), _number_texts),
        "classification": _Judgment(
            _CLASSIFICATION, _read_classes, lambda task, some, _: _CLASSIFICATION.label_array(task, some)
        ),
    }
)


class Embedding(TaskType[TextExample, Any, PairArrays]):
    """Vectors of texts, compared in pairs."""

    head = "embedding"
    metrics = ()
    purpose = "vectors of texts"
    arrays_type = PairArrays
    spec_fields = frozenset({"text_columns", "label_column", "labels", "objective", "score_range"})
    recipe_fields = frozenset({"pooling", "temperature"})
    request_keys = ("text", "text_pair")
    usual_objective = "cosine"

    def check_spec(self, spec: TaskSpec) -> None:
        """Check that the spec says what its pairs are. Raises: SpecError."""
        check_text_columns(spec)
        if len(spec.text_columns) != 2:
            raise SpecError("task.text_columns: name the two columns whose texts make a pair")
        if spec.objective is None:
            raise SpecError("task.objective: say cosine (pairs with a score), in_batch_negatives, or classification")
        if (spec.objective == "cosine") != (spec.score_range is not None):
            raise SpecError(
                "task.score_range: objective cosine needs the least and the greatest score, others have none"
            )
        if spec.score_range is not None and spec.score_range[0] >= spec.score_range[1]:
            raise SpecError(f"task.score_range {list(spec.score_range)}: the least score comes first")
        if spec.objective == "in_batch_negatives" and spec.label_column is not None:
            raise SpecError("task.label_column: pairs that belong together have no label; leave it out")

    def reader(
        self, spec: TaskSpec, labels: tuple[str, ...] | None, known: KnownTask | None = None
    ) -> Reader[TextExample]:
        """A table of pairs, with a score, a class or neither."""
        return _judgment(spec.objective).reader(spec, labels)

    def has_labels(self, objective: EmbeddingObjectiveName | None) -> bool:
        """Whether pairs have classes."""
        return _judgment(objective).judge.has_labels(None)

    def find_labels(self, examples: Iterable[Any]) -> tuple[str, ...]:
        """The classes that occur, sorted."""
        return _CLASSIFICATION.find_labels(examples)

    def refused_recipe_fields(self, objective: EmbeddingObjectiveName | None) -> Mapping[str, str]:
        """Fields of a head above the encoder, with the reason; the temperature, where no partners are found."""
        refused = dict.fromkeys(("freeze_encoder", "unfreeze_every_epochs", "layer_pooling"), _NO_HEAD)
        if objective not in (None, "in_batch_negatives"):
            refused["temperature"] = (
                f"it is for finding partners (in_batch_negatives); the task's objective is {objective}"
            )
        return refused

    def windows(
        self, task: TaskDefinition, examples: Sequence[TextExample], tokenizer: Tokenizer, options: FeatureOptions
    ) -> Windows[PairArrays]:
        """Two windows for each example, one for each of its texts."""
        texts = [(text, None) for example in examples for text in (example.text, example.text_pair or "")]
        made = build_text_windows(texts, tokenizer, options.max_seq_length)
        return Windows(
            input_ids=made.input_ids,
            token_type_ids=made.token_type_ids,
            cu_seqlens=made.cu_seqlens,
            example_index=np.repeat(np.arange(len(examples), dtype=np.int32), 2),
            head_arrays=PairArrays(_judgment(task.objective).labels(task, examples, made)),
            counts={"num_truncated": int(made.is_cut.reshape(-1, 2).any(axis=1).sum())},
        )

    def decode(
        self,
        task: TaskDefinition,
        features: Features[Any],
        examples: Sequence[TextExample],
        outputs: Outputs,
        options: DecodingOptions,
    ) -> list[Any]:
        """Predictions of the type that judges the objective."""
        return _judgment(task.objective).judge.decode(task, features, examples, outputs, options)

    def default_metric(self, objective: EmbeddingObjectiveName | None) -> str:
        """Spearman's correlation for cosines, of which only the order counts; else the judging type's own."""
        return "spearman" if objective == "cosine" else _judgment(objective).judge.default_metric(None)

    def metric_names(self, task: TaskDefinition) -> tuple[str, ...]:
        """Names of the judging type's scores."""
        return _judgment(task.objective).judge.metric_names(task)

    def score(
        self, task: TaskDefinition, examples: Sequence[TextExample], predictions: Sequence[Any]
    ) -> dict[str, float]:
        """The scores of the judging type."""
        return _judgment(task.objective).judge.score(task, examples, predictions)

    def baseline(
        self, task: TaskDefinition, learned: Sequence[TextExample], examples: Sequence[TextExample]
    ) -> list[Any]:
        """The baseline of the judging type."""
        return _judgment(task.objective).judge.baseline(task, learned, examples)

    def row(self, task: TaskDefinition, example: TextExample, prediction: Any) -> dict[str, Any]:
        """The row of the judging type."""
        return _judgment(task.objective).judge.row(task, example, prediction)

    def decisions(self, prediction: Any) -> Sequence[object]:
        """The prediction as one: of embeddings, vectors are compared."""
        return [prediction]

    def parse_text(self, line: str) -> dict[str, Any]:
        """A text, or two with a tab between them."""
        return _CLASSIFICATION.parse_text(line)

    def example_of(self, task: TaskDefinition, request: Request) -> TextExample:
        """A pair of texts, where the objective compares two."""
        example: TextExample = _judgment(task.objective).judge.example_of(task, request)
        if example.text_pair is None:
            raise InputError(
                f"line {request.line}: this model compares two texts; give text and text_pair, or a tab between them; "
                "`embed` gives the vector of one text"
            )
        return example

    def answer(self, task: TaskDefinition, prediction: Any) -> dict[str, Any]:
        """The answer of the judging type."""
        return _judgment(task.objective).judge.answer(task, prediction)


def _judgment(objective: EmbeddingObjectiveName | None) -> _Judgment:
    assert objective is not None, "a task for embeddings has an objective: check_spec asks for it"
    return _JUDGMENTS[objective]
