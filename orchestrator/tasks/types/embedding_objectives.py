"""The contract of an embedding objective: all that the torch-free half knows of one way to compare two texts' vectors.

An objective is an object without state, and its predictions are those of another task type, which decodes, scores and
answers them: its judge. The other half of an objective is the object of the same name in
`orchestrator.finetuning.embedding_objectives`, which has the loss.

Shapes: N pairs of texts.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import SpecError
from orchestrator.specs.task import EmbeddingObjectiveName, TaskSpec
from orchestrator.tasks.features import Array
from orchestrator.tasks.readers import Reader
from orchestrator.tasks.text_examples import TextExample
from orchestrator.tasks.text_windows import TextWindows
from orchestrator.tasks.types.base import AnyTaskType, TaskDefinition
from orchestrator.tasks.types.classification import Classification, ClassificationExample, ClassificationTable
from orchestrator.tasks.types.pair_tables import MatchTable, SimilarityTable
from orchestrator.tasks.types.regression import Regression, RegressionExample
from orchestrator.tasks.types.retrieval import Retrieval


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

    @abstractmethod
    def labels(self, task: TaskDefinition, examples: Sequence[Any], windows: TextWindows) -> Array:
        """Labels of the pairs, each of whose two texts are two windows: (N,) or (N, 2)."""


class PairClassification(EmbeddingObjective):
    """Pairs with a class, judged as classification; outputs are class logits (N, C)."""

    name = "classification"
    pairs = "pairs with a class"
    judge = Classification()

    def reader(self, spec: TaskSpec, labels: tuple[str, ...] | None) -> ClassificationTable:
        """A table of pairs with a class."""
        classes = None if labels is None else {name: name for name in labels}
        return ClassificationTable(spec.text_columns, spec.label_column or "label", classes)

    def labels(self, task: TaskDefinition, examples: Sequence[ClassificationExample], windows: TextWindows) -> Array:
        """Numbers of classes, (N,) int32; -100 where they are not known."""
        return self.judge.label_array(task, examples)


class Cosine(EmbeddingObjective):
    """Pairs with a score, judged as regression; outputs are cosines (N,)."""

    name = "cosine"
    pairs = "pairs with a score"
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
        return SimilarityTable(spec.text_columns, spec.label_column or "label", least=least, greatest=greatest)

    def labels(self, task: TaskDefinition, examples: Sequence[RegressionExample], windows: TextWindows) -> Array:
        """Scores, (N,) float32; NaN where they are not known."""
        return self.judge.label_array(task, examples)


class InBatchNegatives(EmbeddingObjective):
    """Pairs of texts that belong together, judged as retrieval; outputs are rows of the nearest pairs (N, K)."""

    name = "in_batch_negatives"
    pairs = "pairs that belong together"
    purpose = "finding partners"
    recipe_fields = frozenset({"temperature"})
    judge = Retrieval()

    def check_spec(self, spec: TaskSpec) -> None:
        """Check that the spec names no column of labels. Raises: SpecError."""
        super().check_spec(spec)
        if spec.label_column is not None:
            raise SpecError("task.label_column: pairs that belong together have no label; leave it out")

    def reader(self, spec: TaskSpec, labels: tuple[str, ...] | None) -> MatchTable:
        """A table of pairs without labels."""
        return MatchTable(spec.text_columns)

    def labels(self, task: TaskDefinition, examples: Sequence[TextExample], windows: TextWindows) -> NDArray[np.int32]:
        """A number for each text, the same for texts that a model cannot tell apart: (N, 2)."""
        texts = np.split(windows.input_ids, windows.cu_seqlens[1:-1])
        numbers: dict[bytes, int] = {}
        found = [numbers.setdefault(text.tobytes(), len(numbers)) for text in texts]
        return np.array(found, np.int32).reshape(-1, 2)


_OBJECTIVES: tuple[EmbeddingObjective, ...] = (Cosine(), InBatchNegatives(), PairClassification())

EMBEDDING_OBJECTIVES: Mapping[EmbeddingObjectiveName, EmbeddingObjective] = MappingProxyType(
    {objective.name: objective for objective in _OBJECTIVES}
)
"""Every embedding objective by its name."""
