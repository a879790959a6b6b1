"""The objectives of sentence embeddings in training: an object and a file for each name of the torch-free half.

The contract is `base.EmbeddingLoss`; the torch-free half is `orchestrator.tasks.types.embedding_objectives`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from orchestrator.finetuning.embedding_objectives.base import EmbeddingLoss, PairModel
from orchestrator.finetuning.embedding_objectives.classification import PairClassificationLoss
from orchestrator.finetuning.embedding_objectives.cosine import CosineLoss
from orchestrator.finetuning.embedding_objectives.in_batch_negatives import InBatchNegativesLoss
from orchestrator.specs.task import EmbeddingObjectiveName

EMBEDDING_LOSSES: Mapping[EmbeddingObjectiveName, EmbeddingLoss] = MappingProxyType(
    {
        "cosine": CosineLoss(),
        "in_batch_negatives": InBatchNegativesLoss(),
        "classification": PairClassificationLoss(),
    }
)
"""Every embedding objective in training by its name."""

__all__ = ["EMBEDDING_LOSSES", "EmbeddingLoss", "PairModel"]
