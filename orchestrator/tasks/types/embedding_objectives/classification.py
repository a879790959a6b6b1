"""Classification as an embedding objective: the class of a pair is to follow from its two vectors."""

from collections.abc import Sequence

from orchestrator.specs.task import TaskSpec
from orchestrator.tasks.features import Array
from orchestrator.tasks.text_windows import TextWindows
from orchestrator.tasks.types.base import TaskDefinition
from orchestrator.tasks.types.classification import Classification, ClassificationExample, ClassificationTable
from orchestrator.tasks.types.embedding_objectives.base import EmbeddingObjective


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
