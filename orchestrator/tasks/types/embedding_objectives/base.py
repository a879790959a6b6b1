"""The contract of an embedding objective: all that the torch-free half knows of one way to compare two texts' vectors.

An objective is an object without state, and its predictions are those of another task type, which decodes, scores and
answers them: its judge. The other half of an objective is the object of the same name in
`orchestrator.finetuning.embedding_objectives`, which has the loss.

Shapes: N pairs of texts.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from orchestrator.errors import SpecError
from orchestrator.specs.task import EmbeddingObjectiveName, TaskSpec
from orchestrator.tasks.features import Array
from orchestrator.tasks.readers import Reader
from orchestrator.tasks.text_examples import TextExample
from orchestrator.tasks.text_windows import TextWindows
from orchestrator.tasks.types.base import AnyTaskType, TaskDefinition


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
