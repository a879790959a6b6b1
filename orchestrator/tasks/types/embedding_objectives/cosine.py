"""Cosine as an embedding objective: the cosine of a pair is to be its score, from 0 for unrelated to 1 for the same."""

from collections.abc import Sequence

from orchestrator.errors import SpecError
from orchestrator.specs.task import TaskSpec
from orchestrator.tasks.features import Array
from orchestrator.tasks.text_windows import TextWindows
from orchestrator.tasks.types.base import TaskDefinition
from orchestrator.tasks.types.embedding_objectives.base import EmbeddingObjective
from orchestrator.tasks.types.pair_tables import SimilarityTable
from orchestrator.tasks.types.regression import Regression, RegressionExample


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
