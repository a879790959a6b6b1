"""Sentence selection in training: a logit for each token (T,), of which those on the sentences' [CLS] count.

Shapes: T tokens, K sentences.
"""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bert_core.config import BertConfig
from bert_core.distillation import soft_target_loss
from bert_core.heads.sentence_selection import BertForSentenceSelection
from orchestrator.finetuning.heads.base import Batch, HeadTraining
from orchestrator.tasks import Features
from orchestrator.tasks.features import Array
from orchestrator.tasks.types.sentence_selection import SentenceArrays


class SentenceSelectionHead(HeadTraining[BertForSentenceSelection, SentenceArrays]):
    """A score for each sentence of a document."""

    model_type = BertForSentenceSelection
    gives_token_outputs = True

    def targets(
        self, features: Features[SentenceArrays], windows: NDArray[np.int64], tokens: NDArray[np.int64]
    ) -> Array:
        """Whether a sentence matters, on its [CLS], -100 elsewhere: (T,)."""
        return features.head_arrays.token_labels[tokens]

    def logits(self, model: BertForSentenceSelection, batch: Batch) -> Tensor:
        """A logit for each token, (T,)."""
        return model.packed_logits(batch.seqs).float()

    def loss(self, model: BertForSentenceSelection, logits: Tensor, batch: Batch) -> Tensor:
        """Mean binary cross entropy over sentences."""
        return model.compute_loss(logits, batch.targets)

    def soft_loss(
        self,
        logits: Tensor,
        teacher_logits: Tensor,
        features: Features[SentenceArrays],
        batch: Batch,
        temperature: float,
    ) -> Tensor:
        """Divergence for each sentence, a choice between it and its absence, whose logit is 0; mean over sentences."""
        is_sentence = features.head_arrays.is_sentence_start[features.token_index(batch.windows)]  # (T,)
        places = torch.from_numpy(np.flatnonzero(is_sentence)).to(logits.device, non_blocking=True)  # (K,)
        student, teacher = (F.pad(values[places, None], (0, 1)) for values in (logits, teacher_logits))  # (K, 2)
        return soft_target_loss(student, teacher, temperature)

    def num_imitated(self, features: Features[SentenceArrays], windows: NDArray[np.int64]) -> int:
        """Count the sentences."""
        return int(np.count_nonzero(features.head_arrays.is_sentence_start[features.token_index(windows)]))

    def tokens_read(self, config: BertConfig, features: Features[SentenceArrays]) -> NDArray[np.int64]:
        """The sentences' [CLS], and that of the query in front of a window."""
        return np.union1d(features.cu_seqlens[:-1], np.flatnonzero(features.head_arrays.is_sentence_start))
