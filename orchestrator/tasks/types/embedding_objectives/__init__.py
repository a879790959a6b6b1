"""The objectives of sentence embeddings, torch-free: an object and a file for each.

The contract is `base.EmbeddingObjective`. A new objective adds a file here and its line in the list, likewise in
`orchestrator.finetuning.embedding_objectives`, which has its loss, and its name in `orchestrator.specs.task`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from orchestrator.specs.task import EmbeddingObjectiveName
from orchestrator.tasks.types.embedding_objectives.base import EmbeddingObjective
from orchestrator.tasks.types.embedding_objectives.classification import PairClassification
from orchestrator.tasks.types.embedding_objectives.cosine import Cosine
from orchestrator.tasks.types.embedding_objectives.in_batch_negatives import InBatchNegatives

_OBJECTIVES: tuple[EmbeddingObjective, ...] = (Cosine(), InBatchNegatives(), PairClassification())

EMBEDDING_OBJECTIVES: Mapping[EmbeddingObjectiveName, EmbeddingObjective] = MappingProxyType(
    {objective.name: objective for objective in _OBJECTIVES}
)
"""Every embedding objective by its name."""
