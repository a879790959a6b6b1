"""Heads on each token in training: tags of words, the two ends of an answer, sentences that matter.

Tag logits (T, C) count on words' first sub-tokens, start and end logits (T, 2) on a window's own tokens, logits of
sentences (T,) on their [CLS].

Shapes: T tokens, K words or sentences, C tags, W windows, S length of a padded row.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bert_core.config import BertConfig
from bert_core.constants import IGNORE_INDEX
from bert_core.distillation import soft_span_loss, soft_target_loss
from bert_core.heads import BertForQuestionAnswering, BertForTokenClassification
from bert_core.heads.sentence_selection import BertForSentenceSelection
from orchestrator.finetuning.heads.base import Batch, HeadTraining, Windows, build_class_loss
from orchestrator.specs import RecipeSpec
from orchestrator.specs.task import EmbeddingObjectiveName
from orchestrator.tasks.bio_tags import is_bio
from orchestrator.tasks.features import Array, Features
from orchestrator.tasks.types.ner import NerArrays
from orchestrator.tasks.types.qa import QaArrays
from orchestrator.tasks.types.sentence_selection import SentenceArrays

_MAX_SENTENCES = 512
"""Sentences that are decoded at a time."""


class NerHead(HeadTraining[BertForTokenClassification, NerArrays]):
    """A tag for each word, alone or as a path over the sentence (CRF)."""

    model_type = BertForTokenClassification
    gives_token_outputs = True

    def recognizes(self, folder: Path, config: BertConfig, architectures: Sequence[str]) -> bool:
        return super().recognizes(folder, config, architectures) and all(map(is_bio, config.id2label.values()))

    def follow_teacher(
        self,
        student: BertForTokenClassification,
        teacher: BertForTokenClassification,
        objective: EmbeddingObjectiveName | None,
        recipe: RecipeSpec,
    ) -> None:
        """Start a CRF with the teacher's transitions.

        On equal ones a word's posterior follows from the emissions alone, which are what a student learns.
        """
        if student.crf is not None and teacher.crf is not None:
            student.crf.load_state_dict(teacher.crf.state_dict())

    def prepare_loss(
        self, model: BertForTokenClassification, features: Features[NerArrays], recipe: RecipeSpec
    ) -> None:
        """Weigh tags as the recipe says; they are counted by words."""
        model.class_loss = build_class_loss(model, recipe, features.head_arrays.token_labels)

    def count_labels(self, model: BertForTokenClassification, targets: Array) -> float:
        """Add up the weights of tags; to a path of tags each counts the same."""
        return model.class_loss.total_weight(targets) if model.crf is None else super().count_labels(model, targets)

    def loss(self, model: BertForTokenClassification, logits: Tensor, batch: Batch) -> Tensor:
        """Mean over words: cross entropy, or a word's share of the negative log-likelihood of the paths."""
        return model.compute_loss(logits, batch.targets, batch.seqs, _most_words(batch))

    def soft_loss(self, logits: Tensor, teacher_logits: Tensor, batch: Batch, temperature: float) -> Tensor:
        """Divergence of the distributions over tags, mean over words, tagged or not."""
        words = torch.from_numpy(_word_places(batch.features, batch.windows)).to(
            logits.device, non_blocking=True
        )  # (K,)
        return soft_target_loss(logits[words], teacher_logits[words], temperature)

    def num_imitated(self, features: Features[NerArrays], windows: Windows) -> int:
        return len(_word_places(features, windows))

    def outputs(
        self, model: BertForTokenClassification, features: Features[NerArrays], logits: NDArray[np.float32]
    ) -> NDArray[np.float32] | NDArray[np.int64]:
        """The logits, (T, C), or with a CRF the tags of the best paths, (T,)."""
        return logits if model.crf is None else decode_tags(model, features, logits)

    def tokens_read(self, config: BertConfig, features: Features[NerArrays]) -> NDArray[np.int64] | None:
        """Words' first sub-tokens; all tokens where an LSTM goes over them."""
        if config.num_lstm_layers > 0:
            return None
        return np.unique(np.concatenate([features.cu_seqlens[:-1], features.head_arrays.word_starts]))


class TokenClassificationHead(NerHead):
    """A tag for each word that marks no entity."""

    def recognizes(self, folder: Path, config: BertConfig, architectures: Sequence[str]) -> bool:
        """Whether the folder tags words in another way."""
        return HeadTraining.recognizes(self, folder, config, architectures)


def _word_places(features: Features[NerArrays], windows: Windows) -> NDArray[np.int64]:
    """Places of words' first sub-tokens among the tokens of some windows: (K,)."""
    rows, word_starts = features.token_index(windows), features.head_arrays.word_starts
    nearest = word_starts[np.minimum(np.searchsorted(word_starts, rows), len(word_starts) - 1)]
    return np.flatnonzero(nearest == rows)


def _most_words(batch: Batch) -> int:
    """Count the tagged words of the window that has the most of them, on the host."""
    lengths = batch.seqs.host_lengths
    assert lengths is not None, "make_batch gives them"
    return int(np.add.reduceat(batch.host_targets != IGNORE_INDEX, lengths.cumsum() - lengths).max())


@torch.inference_mode()
def decode_tags(
    model: BertForTokenClassification, features: Features[NerArrays], logits: NDArray[np.float32]
) -> NDArray[np.int64]:
    """The tag of each word on its first sub-token, -100 elsewhere: (T, C) → (T,).

    A sentence is decoded as one, however many windows its words lie in.
    """
    device = next(model.parameters()).device
    arrays = features.head_arrays
    tags = np.full(len(logits), IGNORE_INDEX, np.int64)
    num_words = arrays.num_words[arrays.num_words > 0].astype(np.int64)
    if not len(num_words):
        return tags
    words = torch.from_numpy(logits[arrays.word_starts]).to(device)  # (K, C)
    lengths = torch.split(torch.from_numpy(num_words), _MAX_SENTENCES)
    parts = zip(torch.split(words, [int(some.sum()) for some in lengths]), lengths, strict=True)
    decoded = [model.decode(part, some.to(device), int(some.max())) for part, some in parts]
    tags[arrays.word_starts] = torch.cat(decoded).cpu().numpy()
    return tags


class QuestionAnsweringHead(HeadTraining[BertForQuestionAnswering, QaArrays]):
    """First and last token of the answer."""

    model_type = BertForQuestionAnswering
    gives_token_outputs = True

    def targets(self, features: Features[QaArrays], windows: Windows, tokens: NDArray[np.int64]) -> Array:
        """First and last token of the answer within each window: (W, 2)."""
        arrays = features.head_arrays
        return np.stack([arrays.start_positions[windows], arrays.end_positions[windows]], axis=1)

    def loss(self, model: BertForQuestionAnswering, logits: Tensor, batch: Batch) -> Tensor:
        """Mean of the first and the last token's cross entropy, each over the window's own tokens."""
        rows = batch.seqs.unpack(logits).transpose(1, 2)  # (W, 2, S)
        rows = rows.masked_fill(~batch.seqs.attention_mask[:, None, :], -math.inf)
        return F.cross_entropy(rows.flatten(0, 1), batch.targets.flatten())

    def soft_loss(self, logits: Tensor, teacher_logits: Tensor, batch: Batch, temperature: float) -> Tensor:
        """Divergence of the distributions over a window's tokens, mean over windows and the answer's two ends."""
        return soft_span_loss(logits, teacher_logits, batch.seqs, temperature)

    def tokens_read(self, config: BertConfig, features: Features[QaArrays]) -> None:
        """All tokens: each may begin or end the answer."""


class SentenceSelectionHead(HeadTraining[BertForSentenceSelection, SentenceArrays]):
    """A score for each sentence of a document."""

    model_type = BertForSentenceSelection
    gives_token_outputs = True

    def loss(self, model: BertForSentenceSelection, logits: Tensor, batch: Batch) -> Tensor:
        return model.compute_loss(logits, batch.targets)

    def soft_loss(self, logits: Tensor, teacher_logits: Tensor, batch: Batch, temperature: float) -> Tensor:
        """Divergence for each sentence, a choice between it and its absence, whose logit is 0; mean over sentences."""
        is_sentence = batch.features.head_arrays.is_sentence_start[batch.features.token_index(batch.windows)]  # (T,)
        places = torch.from_numpy(np.flatnonzero(is_sentence)).to(logits.device, non_blocking=True)  # (K,)
        student, teacher = (F.pad(values[places, None], (0, 1)) for values in (logits, teacher_logits))  # (K, 2)
        return soft_target_loss(student, teacher, temperature)

    def num_imitated(self, features: Features[SentenceArrays], windows: Windows) -> int:
        return int(np.count_nonzero(features.head_arrays.is_sentence_start[features.token_index(windows)]))

    def tokens_read(self, config: BertConfig, features: Features[SentenceArrays]) -> NDArray[np.int64]:
        """The sentences' [CLS], and that of the query in front of a window."""
        return np.union1d(features.cu_seqlens[:-1], np.flatnonzero(features.head_arrays.is_sentence_start))
