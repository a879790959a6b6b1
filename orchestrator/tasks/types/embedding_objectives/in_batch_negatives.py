"""Embedding objective of in-batch negatives: each text is to find its partner among those of all pairs."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import SpecError
from orchestrator.specs.task import TaskSpec
from orchestrator.tasks.text_examples import TextExample
from orchestrator.tasks.text_windows import TextWindows
from orchestrator.tasks.types.base import TaskDefinition
from orchestrator.tasks.types.embedding_objectives.base import EmbeddingObjective
from orchestrator.tasks.types.pair_tables import MatchTable
from orchestrator.tasks.types.retrieval import Retrieval


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
