"""Sentence embeddings: the vectors of two texts are compared, as the task's objective says.

Each objective is an object without state, and its predictions are those of another task type, which decodes, scores
and answers them: its judge. Outputs have the shape that the judge decodes. The other half of an objective is the object
of the same name in `orchestrator.finetuning.heads.embedding`, which has the loss.

Shapes: N pairs of texts, W texts of all pairs.
"""

from abc import ABC
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import InputError, SpecError
from orchestrator.specs.task import EmbeddingObjectiveName, TaskSpec
from orchestrator.tasks.catalogue import KnownTask
from orchestrator.tasks.cell_values import unpack_cell
from orchestrator.tasks.features import (
    PER_EXAMPLE,
    PER_WINDOW,
    Array,
    Features,
    HeadArrays,
    Windows,
    build_text_windows,
)
from orchestrator.tasks.table_files import read_rows
from orchestrator.tasks.text_examples import TextExample, are_texts
from orchestrator.tasks.text_files import BadRecords, Reader
from orchestrator.tasks.types.base import AnyTaskType, Outputs, Request, TaskDefinition, TaskOptions, TaskType
from orchestrator.tasks.types.classification import Classification
from orchestrator.tasks.types.regression import Regression, RegressionTable
from orchestrator.tasks.types.retrieval import Retrieval
from orchestrator.tasks.types.text import check_text_columns, table_columns

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


@dataclass(frozen=True, slots=True)
class MatchExample(TextExample):
    """Two texts that belong together, and to no other of their file."""

    negatives: tuple[str, ...] = ()
    """Texts that do not belong to the first one, though they may look like it."""

    @property
    def gains(self) -> Mapping[str, float]:
        """Gain by the id of a pair: the own second text is the one to find."""
        return {self.id: 1.0}


@dataclass(frozen=True)
class SimilarityTable(RegressionTable):
    """Reads pairs with a score, mapped to 0 for unrelated and 1 for the same."""

    _: KW_ONLY
    least: float
    greatest: float

    def scale(self, score: float) -> float:
        """The score's place between the least and the greatest. Raises: ValueError, saying what is wrong with it."""
        if not self.least <= score <= self.greatest:
            raise ValueError(f"{score:g} is not from {self.least:g} to {self.greatest:g}")
        return (score - self.least) / (self.greatest - self.least)


@dataclass(frozen=True)
class MatchTable(Reader[MatchExample]):
    """Reads pairs of texts that belong together, and texts that do not."""

    text_columns: tuple[str, ...]
    negative_columns: tuple[str, ...] = ()
    """Columns of texts, or of lists of texts, that do not belong to the first; empty ones are passed over."""

    def read(self, path: str, bad: BadRecords) -> Iterator[MatchExample]:
        rows = read_rows(path, (*self.text_columns, *self.negative_columns), bad)
        for number, (place, values) in enumerate(rows):
            pair, cells = list(values[:2]), [unpack_cell(cell) for cell in values[2:] if cell is not None]
            negatives = [text for cell in cells for text in (cell if isinstance(cell, list) else [cell])]
            if not are_texts(pair) or not all(map(str.strip, pair)):
                bad.found(place, f"{' or '.join(self.text_columns)} holds no text")
            elif not are_texts(negatives):
                bad.found(place, f"{' or '.join(self.negative_columns)} holds neither a text nor a list of texts")
            else:
                first, second = pair
                yield MatchExample(str(number), first, second, tuple(filter(str.strip, negatives)))

    def without_labels(self) -> Self:
        return replace(self, negative_columns=())


class EmbeddingObjective(ABC):
    """One way to train and to judge the vectors of pairs of texts."""

    name: ClassVar[EmbeddingObjectiveName]
    """Name of the objective, in specs and in the records of models."""
    pairs: ClassVar[str]
    """Description of its pairs, in words, for the message that lists the objectives."""
    purpose: ClassVar[str] = ""
    """Purpose of the objective's recipe fields, in words; empty where there are none."""
    recipe_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields of a recipe that are made for this objective; the others refuse them."""
    reads_negatives: ClassVar[bool] = False
    """Whether a pair may have further texts, which do not belong to its first one."""
    judge: AnyTaskType
    """The task type whose predictions the objective gives."""

    @property
    def default_metric(self) -> str:
        return self.judge.default_metric(None)

    def check_spec(self, spec: TaskSpec) -> None:
        """Check that the spec of a task says of its pairs what the objective needs, and no more. Raises: SpecError."""
        if spec.score_range is not None:
            raise SpecError(f"task.score_range: pairs have no score with objective {self.name}; leave it out")

    def reader(self, spec: TaskSpec, labels: tuple[str, ...] | None) -> Reader[Any]:
        """The reader of a table of pairs; `labels` are the classes to accept, None accepts all."""
        return self.judge.reader(spec, labels)

    def texts(self, example: Any) -> tuple[str, ...]:
        return example.text, example.text_pair or ""

    def arrays(self, task: TaskDefinition, examples: Sequence[Any], windows: Windows[Any]) -> dict[str, Array]:
        """The arrays of the pairs, each of whose texts is a window, by name: labels (N,)."""
        judge: Any = self.judge
        return {"labels": judge.label_array(task, examples)}


class PairClassification(EmbeddingObjective):
    """Pairs with a class, judged as classification; outputs are class logits (N, C)."""

    name = "classification"
    pairs = "pairs with a class"
    judge = Classification()


class Cosine(EmbeddingObjective):
    """Pairs with a score, judged as regression; outputs are cosines (N,)."""

    name = "cosine"
    pairs = "pairs with a score"
    purpose = "scores"
    recipe_fields = frozenset({"matryoshka_dims"})
    judge = Regression()
    default_metric = "spearman"  # of cosines only the order counts

    def check_spec(self, spec: TaskSpec) -> None:
        if spec.score_range is None:
            raise SpecError("task.score_range: objective cosine needs the least and the greatest score")
        if spec.score_range[0] >= spec.score_range[1]:
            raise SpecError(f"task.score_range {list(spec.score_range)}: the least score comes first")

    def reader(self, spec: TaskSpec, labels: tuple[str, ...] | None) -> SimilarityTable:
        assert spec.score_range is not None, "check_spec asks for it"
        least, greatest = spec.score_range
        return SimilarityTable(**table_columns(spec), least=least, greatest=greatest)


class InBatchNegatives(EmbeddingObjective):
    """Pairs of texts that belong together, judged as retrieval; outputs are rows of the nearest pairs (N, K)."""

    name = "in_batch_negatives"
    pairs = "pairs that belong together"
    purpose = "finding partners"
    recipe_fields = frozenset({"temperature", "matryoshka_dims"})
    reads_negatives = True
    judge = Retrieval()

    def check_spec(self, spec: TaskSpec) -> None:
        super().check_spec(spec)
        if spec.label_column is not None:
            raise SpecError("task.label_column: pairs that belong together have no label; leave it out")

    def reader(self, spec: TaskSpec, labels: tuple[str, ...] | None) -> MatchTable:
        return MatchTable(spec.text_columns, spec.negative_columns)

    def texts(self, example: MatchExample) -> tuple[str, ...]:
        """The texts of a pair, then its negatives."""
        return *super().texts(example), *example.negatives

    def arrays(self, task: TaskDefinition, examples: Sequence[Any], windows: Windows[Any]) -> dict[str, Array]:
        """A number for each text, the same for texts that a model cannot tell apart: (W,)."""
        texts = np.split(windows.input_ids, windows.cu_seqlens[1:-1])
        numbers: dict[bytes, int] = {}
        found = [numbers.setdefault(text.tobytes(), len(numbers)) for text in texts]
        return {"text_numbers": np.array(found, np.int32)}


_OBJECTIVES: tuple[EmbeddingObjective, ...] = (Cosine(), InBatchNegatives(), PairClassification())

EMBEDDING_OBJECTIVES: Mapping[EmbeddingObjectiveName, EmbeddingObjective] = MappingProxyType(
    {objective.name: objective for objective in _OBJECTIVES}
)
"""Every embedding objective by its name."""


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
    labeled_layouts = "columns of two texts that belong together, and texts or lists of texts 'negative'"
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
    answer = _judged("answer")
    brief_answer = _judged("brief_answer")

    def check_spec(self, spec: TaskSpec) -> None:
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
        return _objective(spec.objective).reader(spec, labels)

    def has_labels(self, objective: EmbeddingObjectiveName | None) -> bool:
        return _objective(objective).judge.has_labels(None)

    def split_text(self, example: Any) -> str:
        """The query, which may have several partners; both texts of a pair with a score or a class."""
        return example.text if isinstance(example, MatchExample) else super().split_text(example)

    def find_labels(self, examples: Iterable[Any]) -> tuple[str, ...]:
        return Classification().find_labels(examples)

    def goal(self, spec: TaskSpec) -> str:
        far = f", far from {', '.join(spec.negative_columns)}" if spec.negative_columns else ""
        return f"vectors of {spec.text_columns[0]} near those of {spec.text_columns[1]}{far}"

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
        sizes = [len(group) for group in groups]
        made = build_text_windows(texts, tokenizer, options.max_seq_length, sizes=sizes)
        return made.with_arrays(PairArrays(**objective.arrays(task, examples, made)))

    def decode(
        self,
        task: TaskDefinition,
        features: Features[Any],
        examples: Sequence[TextExample],
        outputs: Outputs,
        options: TaskOptions,
    ) -> list[Any]:
        judge = _objective(task.objective).judge
        own = judge.options_type(max_seq_length=options.max_seq_length)
        return judge.decode(task, features, examples, outputs, own)

    def default_metric(self, objective: EmbeddingObjectiveName | None) -> str:
        return _objective(objective).default_metric

    def decisions(self, prediction: Any) -> Sequence[object]:
        return [prediction]

    def parse_text(self, line: str) -> dict[str, Any]:
        return Classification().parse_text(line)

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
