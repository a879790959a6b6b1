"""Common part of the heads on a sequence's [CLS]: logits, and a label for each window.

Shapes: W windows, C classes, E numbers beside the text.
"""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bert_core.heads import BertForSequenceClassification
from orchestrator.finetuning.heads.base import Batch, HeadTraining
from orchestrator.tasks import Features
from orchestrator.tasks.features import Array
from orchestrator.tasks.types.text import TextArrays


class SequenceHead(HeadTraining[BertForSequenceClassification, TextArrays]):
    """A linear layer on the pooled [CLS] of each window."""

    model_type = BertForSequenceClassification

    def targets(self, features: Features[TextArrays], windows: NDArray[np.int64], tokens: NDArray[np.int64]) -> Array:
        """The label of each window."""
        return features.head_arrays.labels[features.examples_of(windows)]

    def tabular_features(
        self, features: Features[TextArrays], windows: NDArray[np.int64]
    ) -> NDArray[np.float32] | None:
        """A person's own columns, where the task has some: (W, E)."""
        numbers = features.head_arrays.tabular_features
        return None if numbers is None else numbers[features.example_index[windows]]

    def logits(self, model: BertForSequenceClassification, batch: Batch) -> Tensor:
        """Logits of each window's class: (W, C)."""
        return model.packed_logits(batch.seqs, batch.tabular_features).float()
