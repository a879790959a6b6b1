"""Sentence embeddings: the vectors of two texts are compared, as the task's objective says.

Each objective is a type of its own. Its target is that of another task type, and outputs have the shape that this one
decodes. The other half of an objective is the object of the same name in `orchestrator.finetuning.heads.embedding`,
which has the loss.

Shapes: N pairs of texts, W texts of all pairs.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from bert_core.metrics import retrieval_metrics
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import InputError, SpecError
from orchestrator.specs.task import EmbeddingObjectiveName, TaskSpec
from orchestrator.tasks.catalogue import KnownTask
from orchestrator.tasks.cell_values import unpack_cell
from orchestrator.tasks.features import (
    PER_EXAMPLE,
    PER_WINDOW,
    Array,
    HeadArrays,
    Windows,
    build_text_windows,
)
from orchestrator.tasks.table_files import read_rows
from orchestrator.tasks.text_examples import TextExample, are_texts, table_columns
from orchestrator.tasks.text_files import BadRecords, Reader
from orchestrator.tasks.types.base import Outputs, Scores, TaskDefinition, TaskOptions, TaskType
from orchestrator.tasks.types.classification import (
    Classification,
    ClassificationTable,
    ClassTarget,
)
from orchestrator.tasks.types.regression import RegressionTable, ValueTarget
from orchestrator.tasks.types.requests import Request, RequestForm
from orchestrator.tasks.types.retrieval import IS_SEARCHED, RANK_CUTOFFS, RankingPrediction, RankingTarget
from orchestrator.tasks.types.text import check_text_columns, split_pair


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
    """Two texts that belong together."""

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

    @classmethod
    def of_spec(cls, spec: TaskSpec, labels: tuple[str, ...] | None, known: KnownTask | None = None) -> Self:
        if spec.score_range is None:
            raise SpecError("task.score_range: objective cosine needs the least and the greatest score")
        least, greatest = spec.score_range
        if least >= greatest:
            raise SpecError(f"task.score_range {list(spec.score_range)}: the least score comes first")
        return cls(**table_columns(spec), least=least, greatest=greatest)

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

    @classmethod
    def of_spec(cls, spec: TaskSpec, labels: tuple[str, ...] | None, known: KnownTask | None = None) -> Self:
        return cls(spec.text_columns, spec.negative_columns)

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
                yield MatchExample(str(number), first, second, negatives=tuple(filter(str.strip, negatives)))

    def without_labels(self) -> Self:
        return replace(self, negative_columns=())


class Embedding(TaskType[Any]):
    """Vectors of texts, compared in pairs."""

    head = "embedding"
    objective: ClassVar[EmbeddingObjectiveName]
    pairs: ClassVar[str]
    """Description of the objective's pairs, in words, for the message that lists the objectives."""
    reader_type: ClassVar[Any]
    arrays_type = PairArrays
    options_type = EmbeddingOptions
    spec_fields = frozenset({"text_columns", "objective"})
    recipe_fields = frozenset({"pooling", "query_prompt", "document_prompt"})
    request = RequestForm(
        ("text", "text_pair"), {"text": "A charming film.", "text_pair": "A lovely picture."}, split_pair
    )
    labeled_layout = "columns of two texts that belong together, and texts or lists of texts 'negative'"

    def check_spec(self, spec: TaskSpec) -> None:
        check_text_columns(spec)
        if len(spec.text_columns) != 2:
            raise SpecError("task.text_columns: name the two columns whose texts make a pair")

    def example_of(self, task: TaskDefinition, request: Request) -> TextExample:
        """A pair of texts."""
        text, pair = request.text("text"), request.optional_text("text_pair")
        if pair is None:
            raise InputError(
                f"line {request.line}: this model compares two texts; give text and text_pair, or a tab between them; "
                "`embed` gives the vector of one text"
            )
        return TextExample(request.id, text, pair)

    def goal(self, spec: TaskSpec) -> str:
        far = f", far from {', '.join(spec.negative_columns)}" if spec.negative_columns else ""
        return f"vectors of {spec.text_columns[0]} near those of {spec.text_columns[1]}{far}"

    def texts(self, example: Any) -> tuple[str, ...]:
        """Texts of an example that are embedded, the first two being the pair."""
        return example.text, example.text_pair or ""

    def arrays(self, task: TaskDefinition, examples: Sequence[Any], windows: Windows[Any]) -> PairArrays:
        """The arrays of pairs, each of whose texts is a window."""
        target: Any = self.target
        return PairArrays(labels=target.encode(task, examples))

    def windows(
        self, task: TaskDefinition, examples: Sequence[Any], tokenizer: Tokenizer, options: EmbeddingOptions
    ) -> Windows[PairArrays]:
        """A window for each text of an example."""
        query, document = options.query_prompt or "", options.document_prompt or ""
        groups = [self.texts(example) for example in examples]
        texts = [((document if place else query) + text, None) for group in groups for place, text in enumerate(group)]
        sizes = [len(group) for group in groups]
        made = build_text_windows(texts, tokenizer, options.max_seq_length, sizes=sizes)
        return made.with_arrays(self.arrays(task, examples, made))


class PairClassTarget(ClassTarget):
    """A class for each pair; pairs are divided by their texts alone."""

    ranks_documents = False

    def label_names(self, example: TextExample) -> tuple[str, ...]:
        return ()

    def find_labels(self, examples: Iterable[TextExample]) -> tuple[str, ...]:
        return Classification.target.find_labels(examples)


class PairClassification(Embedding):
    """Pairs with a class; outputs are class logits (N, C)."""

    objective = "classification"
    pairs = "pairs with a class"
    reader_type = ClassificationTable
    target = PairClassTarget()
    spec_fields = Embedding.spec_fields | {"label_column", "labels"}


class CosineTarget(ValueTarget):
    """A number for each pair, of which only the order counts."""

    metrics = ("spearman", "pearson")
    ranks_documents = False


class Cosine(Embedding):
    """Pairs with a score; outputs are cosines (N,)."""

    objective = "cosine"
    pairs = "pairs with a score"
    reader_type = SimilarityTable
    target = CosineTarget()
    spec_fields = Embedding.spec_fields | {"label_column", "score_range"}
    recipe_fields = Embedding.recipe_fields | {"matryoshka_dims"}


class PartnerTarget(RankingTarget):
    """A ranking of second texts for each first text: equal texts are one document, all partners are relevant."""

    def decode(
        self, task: TaskDefinition, examples: Sequence[Any], rows: Outputs, options: TaskOptions
    ) -> list[RankingPrediction]:
        """Ids of pairs, best first; of those with equal second texts the own pair, else the file's first one."""
        first = {example.text_pair: example.id for example in reversed(examples)}
        texts = np.array([example.text_pair for example in examples], dtype=object)
        rankings = []
        for example, row in zip(examples, rows.astype(np.int64), strict=True):
            ids = (example.id if text == example.text_pair else first[text] for text in texts[row])
            rankings.append(RankingPrediction(tuple(dict.fromkeys(ids))))
        return rankings

    def score(self, task: TaskDefinition, examples: Sequence[Any], predictions: Sequence[RankingPrediction]) -> Scores:
        """NDCG, reciprocal rank and recall of all partners of a text."""
        texts = {example.id: example.text_pair for example in examples}
        partners: dict[str, dict[str, float]] = defaultdict(dict)
        for example in examples:
            partners[example.text][example.text_pair] = 1.0
        found = {
            example.id: tuple(dict.fromkeys(texts[pair] for pair in ranking.documents))
            for example, ranking in zip(examples, predictions, strict=True)
        }
        return retrieval_metrics(found, {example.id: partners[example.text] for example in examples}, RANK_CUTOFFS)


class InBatchNegatives(Embedding):
    """Pairs of texts that belong together; outputs are rows of the nearest pairs (N, K)."""

    objective = "in_batch_negatives"
    pairs = "pairs that belong together"
    reader_type = MatchTable
    target = PartnerTarget()
    spec_fields = Embedding.spec_fields | {"negative_columns"}
    recipe_fields = Embedding.recipe_fields | {"temperature", "matryoshka_dims"}

    def example_of(self, task: TaskDefinition, request: Request) -> TextExample:
        """Refuse a request. Raises: InputError."""
        raise InputError(IS_SEARCHED)

    def split_text(self, example: MatchExample) -> str:
        """The query, which may have several partners."""
        return example.text

    def texts(self, example: MatchExample) -> tuple[str, ...]:
        """The texts of a pair, then its negatives."""
        return *super().texts(example), *example.negatives

    def arrays(self, task: TaskDefinition, examples: Sequence[MatchExample], windows: Windows[Any]) -> PairArrays:
        """A number for each text, the same for texts that a model cannot tell apart."""
        texts = np.split(windows.input_ids, windows.cu_seqlens[1:-1])
        numbers: dict[bytes, int] = {}
        found = [numbers.setdefault(text.tobytes(), len(numbers)) for text in texts]
        return PairArrays(text_numbers=np.array(found, np.int32))


EMBEDDING_TYPES: Mapping[EmbeddingObjectiveName, Embedding] = {
    some.objective: some for some in (Cosine(), InBatchNegatives(), PairClassification())
}
"""Every type of embeddings by its objective."""
