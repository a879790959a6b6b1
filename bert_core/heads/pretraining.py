"""BERT with the heads of its pretraining objectives.

An objective has two halves of the same name: the examples, without torch, are those of `bert_core.objectives`; the head
and its loss are here.

Shapes: B sequences, S length of a padded row, T tokens, P predicted positions, R rows that a head reads, E embedding
size, H hidden, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.constants import IGNORE_INDEX
from bert_core.encoder_layer import ACTIVATIONS
from bert_core.errors import DataError
from bert_core.kernels.linear import Linear
from bert_core.kernels.linear_cross_entropy import linear_cross_entropy_sums, look_up, vocabulary_logits
from bert_core.losses import check_labels, cross_entropy_sums
from bert_core.model import BertModel
from bert_core.objectives import OBJECTIVES
from bert_core.packed_sequences import PackedSequences

Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class PretrainingLabels:
    """The labels of a packed batch, integers; empty where the batch has no such labels."""

    masked_positions: Tensor
    """(P,) positions whose tokens were hidden, ascending, into T"""
    masked_labels: Tensor
    """(P,) the token ids that stood there before masking; -100 at positions that only fill up the batch"""
    sentence_labels: Tensor
    """(B,) the label of each pair of segments, 0 or 1; -100 for sequences that only fill up the batch"""
    draws: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    """(P,) int64, a random number below 2³¹ for each masked position; empty where no token is drawn"""


@dataclass(frozen=True)
class LossSums:
    """Sums over a batch, to be added up over micro-batches and workers before anything is divided.

    Each is a float32 tensor without dimensions on the model's device, so that nothing waits for the device.
    """

    loss: Tensor
    num_correct: Tensor
    num_predictions: Tensor


@dataclass(frozen=True)
class HeadInputs:
    """Inputs of the heads of a packed batch beside their rows of the encoder's output."""

    bert: BertModel
    seqs: PackedSequences
    labels: PretrainingLabels
    word_embedding: Tensor
    """(V, E) the encoder's, for output layers that are tied to it"""


class ObjectiveHead(ABC, Generic[Module]):
    """An objective's head and loss in `BertForPreTraining`. The object has no state: the weights are in its module."""

    module_name: ClassVar[str]
    """Attribute of `BertForPreTraining` that is the module; weights are saved under it. Objectives may share one."""

    @abstractmethod
    def build(self, config: BertConfig) -> Module | None:
        """The module, or None where a model of this configuration has none."""

    def rows(self, inputs: HeadInputs) -> Tensor | None:
        """Indices of the tokens whose outputs the head reads, (R,); None: all of them, R = T."""
        return None

    @abstractmethod
    def loss_sums(self, module: Module, inputs: HeadInputs, hidden: Tensor) -> LossSums:
        """Sums over a packed batch, given the encoder's output for the head's rows, `hidden` (R, H).

        `num_predictions` is what the other half's `num_predictions` says of the same batch.
        """


class VocabularyHead(nn.Module):
    """Logits over the vocabulary; the output matrix is the word embedding itself, unless the two are not tied."""

    bias: nn.Parameter | None

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.embedding_size or config.hidden_size
        eps, bias = config.layer_norm_eps, not config.heads.has_head_layer
        self.transform = Linear(config.hidden_size, width, bias=bias) if config.prediction_transform else None
        self.activation = ACTIVATIONS[config.hidden_act]
        self.norm = nn.LayerNorm(width, eps=eps, bias=bias) if config.prediction_transform else None
        self.decoder = None if config.tie_word_embeddings else Linear(width, config.vocab_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size)) if config.prediction_bias else None

    def forward(self, hidden: Tensor, word_embedding: Tensor) -> Tensor:
        """Logits: (P, H), (V, E) → (P, V)"""
        return vocabulary_logits(self.inner(hidden), *self.output_layer(word_embedding))

    def output_layer(self, word_embedding: Tensor) -> tuple[Tensor, Tensor]:
        """Matrix and bias behind the head's own layer: (V, E) → (V, E), (V,)"""
        matrix = word_embedding if self.decoder is None else self.decoder.weight
        return matrix, matrix.new_zeros(len(matrix)) if self.bias is None else self.bias

    def inner(self, hidden: Tensor) -> Tensor:
        """Input of the output matrix: (P, H) → (P, E)"""
        if self.transform is None or self.norm is None:
            return hidden
        return self.norm(self.activation(self.transform(hidden)))  # type: ignore[no-any-return]

    def loss_sums(self, hidden: Tensor, word_embedding: Tensor, labels: Tensor) -> LossSums:
        """Cross entropy of the labels: (P, H), (V, E), (P,)"""
        output_layer = self.output_layer(word_embedding)
        return LossSums(*linear_cross_entropy_sums(self.inner(hidden), *output_layer, labels.long()))


class MaskedLMHead(ObjectiveHead[VocabularyHead]):
    """Masked language modeling (Devlin et al. 2018, section 3.1): logits for the masked positions alone."""

    module_name = "prediction"

    def build(self, config: BertConfig) -> VocabularyHead:
        return VocabularyHead(config)

    def rows(self, inputs: HeadInputs) -> Tensor | None:
        return inputs.labels.masked_positions

    def loss_sums(self, module: VocabularyHead, inputs: HeadInputs, hidden: Tensor) -> LossSums:
        return module.loss_sums(hidden, inputs.word_embedding, inputs.labels.masked_labels)


class LeftToRightHead(MaskedLMHead):
    """Next-token prediction (Devlin et al. 2018, section 5.1): logits for all tokens but the last of each sequence.

    Its weights have the names of masked language modeling's, so that one goes on from a model of the other.
    """

    def rows(self, inputs: HeadInputs) -> Tensor | None:
        return None  # all tokens: leaving out each sequence's last one is not worth a choice

    def loss_sums(self, module: VocabularyHead, inputs: HeadInputs, hidden: Tensor) -> LossSums:
        """Cross entropy of each token, given the output of the token before it."""
        seqs = inputs.seqs
        num_followed = seqs.num_tokens - seqs.num_sequences  # T − B
        order = torch.arange(seqs.num_tokens, device=hidden.device)
        # The number is known beforehand, so that nothing waits for the device.
        sequence = order[: seqs.num_sequences].repeat_interleave(seqs.cu_seqlens.diff() - 1, output_size=num_followed)
        followed = order[:num_followed] + sequence  # (T − B,)
        next_tokens = seqs.input_ids.index_select(0, followed + 1)
        return module.loss_sums(hidden.index_select(0, followed), inputs.word_embedding, next_tokens)


_LONGEST_SPAN = 20
_POSITION_WIDTH = 200


class SpanBoundaryLayers(nn.Module):
    """Two layers on (left neighbor, right neighbor, place in the span); the output matrix is the word embedding."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width, hidden = config.embedding_size or config.hidden_size, config.hidden_size
        self.place = nn.Embedding(_LONGEST_SPAN, _POSITION_WIDTH)
        self.first = Linear(2 * hidden + _POSITION_WIDTH, hidden)
        self.first_norm = nn.LayerNorm(hidden, eps=config.layer_norm_eps)
        self.second = Linear(hidden, width)
        self.second_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.activation = ACTIVATIONS["gelu"]
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden: Tensor, masked_positions: Tensor, masked_labels: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the vectors that the output matrix multiplies, and their labels: (T, H), (P,), (P,) → (P, E), (P,).

        The label of a token beyond the first `_LONGEST_SPAN` of its run is -100, so that shapes depend on no value.
        """
        left, right, place = span_borders(masked_positions)
        # Only a position that pads the batch, with a label of -100, has a neighbor outside.
        left, right = left.clamp(min=0), right.clamp(max=len(hidden) - 1)
        place_vectors = self.place(place.clamp(max=_LONGEST_SPAN - 1)).to(hidden.dtype)
        x = torch.cat([hidden[left], hidden[right], place_vectors], dim=-1)
        x = self.first_norm(self.activation(self.first(x)))  # (P, H)
        x = self.second_norm(self.activation(self.second(x)))  # (P, E)
        return x, masked_labels.where(place < _LONGEST_SPAN, IGNORE_INDEX)


class SpanBoundaryHead(ObjectiveHead[SpanBoundaryLayers]):
    """A masked span's tokens, predicted from the two tokens beside the span (Joshi et al. 2020, SpanBERT, section 3.2).

    A span is a run of masked positions, so adjacent spans are one. Tokens beyond the 20th of a run are not predicted.
    """

    module_name = "span_boundary"

    def build(self, config: BertConfig) -> SpanBoundaryLayers | None:
        return SpanBoundaryLayers(config) if config.span_boundary_objective else None

    def loss_sums(self, module: SpanBoundaryLayers, inputs: HeadInputs, hidden: Tensor) -> LossSums:
        """Cross entropy of the hidden tokens; all masked positions count as predictions, also those beyond the 20th."""
        masked_labels = inputs.labels.masked_labels.long()
        inner, targets = module(hidden, inputs.labels.masked_positions, masked_labels)  # (P, E), (P,)
        loss, num_correct, _ = linear_cross_entropy_sums(inner, inputs.word_embedding, module.bias, targets)
        return LossSums(loss, num_correct, (masked_labels != IGNORE_INDEX).sum(dtype=torch.float32))


def span_borders(masked_positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Find the run of each masked position: the token before it, the token after it, the place in it, (P,) each.

    The first and the last token of a sequence are never masked, so a run has a token on both sides.

    >>> [border.tolist() for border in span_borders(torch.tensor([2, 3, 7]))]
    [[1, 1, 6], [4, 4, 8], [0, 1, 0]]
    """
    order = torch.arange(len(masked_positions), device=masked_positions.device)
    begins = torch.ones_like(masked_positions, dtype=torch.bool)
    begins[1:] = masked_positions.diff() != 1
    ends = begins.roll(-1)  # the last position is before a first one, the first of all
    first = order.where(begins, 0).cummax(0).values  # (P,) number of the run's first position
    last = order.where(ends, len(order)).flip(0).cummin(0).values.flip(0)  # (P,) of its last one
    place = order - first
    return masked_positions - place - 1, masked_positions + (last - order) + 1, place


class SentencePairHead(ObjectiveHead[nn.Linear]):
    """Two classes on the pooled first token of a pair (Devlin et al. 2018, 3.1; Lan et al. 2020, 3.1)."""

    module_name = "next_sentence"

    def build(self, config: BertConfig) -> nn.Linear | None:
        return nn.Linear(config.hidden_size, 2) if config.sentence_head else None

    def rows(self, inputs: HeadInputs) -> Tensor | None:
        return inputs.bert.pooled_tokens(inputs.seqs)

    def loss_sums(self, module: nn.Linear, inputs: HeadInputs, hidden: Tensor) -> LossSums:
        logits = module(inputs.bert.pool(hidden))  # (B, 2)
        return LossSums(*cross_entropy_sums(logits, inputs.labels.sentence_labels.long()))


OBJECTIVE_HEADS: Mapping[str, ObjectiveHead[Any]] = {
    "masked_lm": MaskedLMHead(),
    "span_boundary": SpanBoundaryHead(),
    "next_sentence": SentencePairHead(),
    "sentence_order": SentencePairHead(),
    "left_to_right": LeftToRightHead(),
}
"""Heads by the names of `bert_core.objectives.OBJECTIVES`, without those of `bert_core.heads.replaced_tokens`.

Losses are computed in this order, and their gradients added up in the reverse of it: another order would change the
last bits of a run that is resumed.
"""


@dataclass(frozen=True)
class PretrainingOutput:
    """Output of BertForPreTraining: the mean losses added up, and logits where they were asked for."""

    loss: Tensor | None
    """Sum of the objectives' mean losses; None without labels."""
    prediction_logits: Tensor | None
    """Logits over the vocabulary, (B, S, V), zero at padding; None where they were not asked for."""
    seq_relationship_logits: Tensor | None
    """Logits of the pair of segments, (B, 2); None where the family has no such head."""


class BertForPreTraining(PretrainedModel):
    """BERT with a head for tokens and, as its configuration says, for pairs of segments and for spans.

    `forward` takes padded rows and Hugging Face's argument names, for masked language modeling and pairs of segments
    (Devlin et al. 2018, section 3.1); `packed_loss_sums` takes packed sequences and any objectives.
    """

    prediction: VocabularyHead
    next_sentence: nn.Linear | None
    """None where the configuration has no `sentence_head`."""

    def build(self, config: BertConfig) -> None:
        self.bert = BertModel(config, seed=None, with_pooler=config.sentence_head)
        for name in OBJECTIVES:  # the order in which weights are drawn
            head = OBJECTIVE_HEADS.get(name)
            if head is not None and head.module_name not in self._modules:
                self.register_module(head.module_name, head.build(config))
        if config.sentence_head:
            self.config = config.with_labels(["LABEL_0", "LABEL_1"])  # the width that Hugging Face reads off the labels

    def packed_loss_sums(
        self,
        seqs: PackedSequences,
        labels: PretrainingLabels,
        objectives: Collection[str],
        hidden: Tensor | None = None,
    ) -> dict[str, LossSums]:
        """Sums of the losses and of right predictions of a packed batch, by objective.

        Args:
            hidden: output of the encoder for all tokens, (T, H), where it was run already. It is run once otherwise,
                and its last layer only for the tokens that a head reads.

        Raises: DataError when the model has no head for an objective.
        """
        heads = {name: head for name, head in OBJECTIVE_HEADS.items() if name in objectives}
        for name, head in heads.items():
            if self._modules[head.module_name] is None:
                raise DataError(f"the model ({self.config.model_type}) has no head for {name}; leave it out")
        table = self.bert.embeddings.word
        words, word_embedding = (None, table.weight) if hidden is not None else look_up(table, seqs.input_ids)
        inputs = HeadInputs(self.bert, seqs, labels, word_embedding)
        rows = [head.rows(inputs) for head in heads.values()]  # (R,) or None each
        read = [each for each in rows if each is not None]
        if hidden is None and len(read) == len(rows) > 0:
            whole = self.bert.encode(seqs, torch.cat(read), words)
            states = torch.split(whole, [len(each) for each in read])  # (R, H) each
        else:
            whole = self.bert.encode(seqs, words=words) if hidden is None else hidden  # (T, H)
            states = tuple(whole if each is None else whole.index_select(0, each) for each in rows)
        return {
            name: head.loss_sums(self._modules[head.module_name], inputs, state)
            for (name, head), state in zip(heads.items(), states, strict=True)
        }

    def predict(self, hidden: Tensor) -> Tensor:
        """Logits over the vocabulary: (P, H) → (P, V)."""
        logits: Tensor = self.prediction(hidden, self.bert.embeddings.word.weight)
        return logits

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        next_sentence_label: Tensor | None = None,
        return_logits: bool = False,
    ) -> PretrainingOutput:
        """Loss and logits of padded rows (B, S). With any label there is a loss, and dense logits only on request.

        The loss is the mean over predicted tokens (label not -100, not padding) plus the mean over pairs of segments.

        Args:
            labels: (B, S) the tokens to predict, -100 elsewhere.
            next_sentence_label: (B,) 0 where B follows A, 1 where it does not.
            return_logits: give `prediction_logits` where there are labels, too.
        """
        seqs = self.bert.pack(input_ids, attention_mask, token_type_ids)
        hidden = self.bert.encode(seqs)  # (T, H)
        relationship = None
        if self.next_sentence is not None:
            first = hidden.index_select(0, self.bert.pooled_tokens(seqs))  # (B, H)
            relationship = self.next_sentence(self.bert.pool(first))  # (B, 2)
        losses = []
        if labels is not None:
            check_labels(labels, input_ids.shape, self.config.vocab_size)
            packed_labels = seqs.pack(labels)  # (T,)
            masked = (packed_labels != IGNORE_INDEX).nonzero().squeeze(1)  # (P,)
            losses.append(F.cross_entropy(self.predict(hidden.index_select(0, masked)).float(), packed_labels[masked]))
        if next_sentence_label is not None and relationship is not None:
            check_labels(next_sentence_label.view(-1), relationship.shape[:1], 2)
            losses.append(
                F.cross_entropy(relationship.float(), next_sentence_label.view(-1), ignore_index=IGNORE_INDEX)
            )
        logits = None
        if return_logits or not losses:
            logits = seqs.unpack(self.predict(hidden), input_ids.shape[1])  # (B, S, V)
        return PretrainingOutput(torch.stack(losses).sum() if losses else None, logits, relationship)
