"""The contract of an embedding objective: all that the torch-free half knows of one way to compare two texts' vectors.

An objective is an object without state, and its predictions are those of another task type, which decodes, scores and
answers them: its judge. The other half of an objective is the object of the same name in
`orchestrator.finetuning.embedding_objectives`, which has the loss.

Shapes: N pairs of texts, W texts of all pairs.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from orchestrator.errors import SpecError
from orchestrator.specs.task import EmbeddingObjectiveName, TaskSpec
from orchestrator.tasks.catalogue import KNOWN_TASKS
from orchestrator.tasks.cell_values import unpack_cell
from orchestrator.tasks.features import Array
from orchestrator.tasks.readers import Reader
from orchestrator.tasks.table_files import read_rows
from orchestrator.tasks.text_examples import TextExample, are_texts
from orchestrator.tasks.text_files import BadRecords
from orchestrator.tasks.text_windows import TextWindows
from orchestrator.tasks.types.base import AnyTaskType, TaskDefinition
from orchestrator.tasks.types.classification import Classification, ClassificationTable
from orchestrator.tasks.types.regression import Regression, RegressionTable
from orchestrator.tasks.types.retrieval import Retrieval


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
        """The file's pairs in order."""
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
        """A reader of the pairs alone."""
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
        """Name of the score that ranks a task of one's own."""
        return self.judge.default_metric(None)

    def check_spec(self, spec: TaskSpec) -> None:
        """Check that the spec of a task says of its pairs what the objective needs, and no more. Raises: SpecError."""
        if spec.score_range is not None:
            raise SpecError(f"task.score_range: pairs have no score with objective {self.name}; leave it out")

    @abstractmethod
    def reader(self, spec: TaskSpec, labels: tuple[str, ...] | None) -> Reader[TextExample]:
        """The reader of a table of pairs; `labels` are the classes to accept, None accepts all."""

    def texts(self, example: Any) -> tuple[str, ...]:
        """The texts of a pair."""
        return example.text, example.text_pair or ""

    def arrays(self, task: TaskDefinition, examples: Sequence[Any], windows: TextWindows) -> dict[str, Array]:
        """The arrays of the pairs, each of whose texts is a window, by name: labels (N,)."""
        judge: Any = self.judge
        return {"labels": judge.label_array(task, examples)}


class PairClassification(EmbeddingObjective):
    """Pairs with a class, judged as classification; outputs are class logits (N, C)."""

    name = "classification"
    pairs = "pairs with a class"
    judge = Classification()

    def reader(self, spec: TaskSpec, labels: tuple[str, ...] | None) -> ClassificationTable:
        """A table of pairs with a class."""
        classes = None if labels is None else {name: name for name in labels}
        may_quote = spec.id not in KNOWN_TASKS
        return ClassificationTable(spec.text_columns, spec.label_column or "label", classes, may_quote=may_quote)


class Cosine(EmbeddingObjective):
    """Pairs with a score, judged as regression; outputs are cosines (N,)."""

    name = "cosine"
    pairs = "pairs with a score"
    purpose = "scores"
    recipe_fields = frozenset({"matryoshka_dims"})
    judge = Regression()
    default_metric = "spearman"  # of cosines only the order counts

    def check_spec(self, spec: TaskSpec) -> None:
        """Check that the spec has a range of scores. Raises: SpecError."""
        if spec.score_range is None:
            raise SpecError("task.score_range: objective cosine needs the least and the greatest score")
        if spec.score_range[0] >= spec.score_range[1]:
            raise SpecError(f"task.score_range {list(spec.score_range)}: the least score comes first")

    def reader(self, spec: TaskSpec, labels: tuple[str, ...] | None) -> SimilarityTable:
        """A table of pairs with a score, mapped to 0 to 1."""
        assert spec.score_range is not None, "check_spec asks for it"
        least, greatest = spec.score_range
        return SimilarityTable(
            spec.text_columns,
            spec.label_column or "label",
            least=least,
            greatest=greatest,
            may_quote=spec.id not in KNOWN_TASKS,
        )


class InBatchNegatives(EmbeddingObjective):
    """Pairs of texts that belong together, judged as retrieval; outputs are rows of the nearest pairs (N, K)."""

    name = "in_batch_negatives"
    pairs = "pairs that belong together"
    purpose = "finding partners"
    recipe_fields = frozenset({"temperature", "matryoshka_dims"})
    reads_negatives = True
    judge = Retrieval()

    def check_spec(self, spec: TaskSpec) -> None:
        """Check that the spec names no column of labels. Raises: SpecError."""
        super().check_spec(spec)
        if spec.label_column is not None:
            raise SpecError("task.label_column: pairs that belong together have no label; leave it out")

    def reader(self, spec: TaskSpec, labels: tuple[str, ...] | None) -> MatchTable:
        """A table of pairs without labels, perhaps with negatives."""
        return MatchTable(spec.text_columns, spec.negative_columns)

    def texts(self, example: MatchExample) -> tuple[str, ...]:
        """The texts of a pair, then its negatives."""
        return *super().texts(example), *example.negatives

    def arrays(self, task: TaskDefinition, examples: Sequence[Any], windows: TextWindows) -> dict[str, Array]:
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
