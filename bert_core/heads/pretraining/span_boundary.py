"""The head of the span-boundary objective: a masked span's tokens, predicted from the two tokens beside the span.

Joshi et al. 2020 (SpanBERT), section 3.2. A span is a run of masked positions, so adjacent spans are one. Tokens beyond
the 20th of a run are not predicted.

Shapes: T tokens, P masked positions, E embedding size, H hidden, V vocabulary.
"""

import torch
from torch import Tensor, nn

from bert_core.config import BertConfig
from bert_core.constants import IGNORE_INDEX
from bert_core.heads.pretraining.base import LossSums, ObjectiveHead, PretrainingLabels
from bert_core.kernels.linear import Linear
from bert_core.kernels.linear_cross_entropy import linear_cross_entropy_sums
from bert_core.layers.encoder_layer import ACTIVATIONS
from bert_core.model import BertModel
from bert_core.packed_sequences import PackedSequences

_LONGEST = 20
_POSITION_WIDTH = 200


class SpanBoundaryLayers(nn.Module):
    """Two layers on (left neighbor, right neighbor, place in the span); the output matrix is the word embedding."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width, hidden = config.embedding_size or config.hidden_size, config.hidden_size
        self.place = nn.Embedding(_LONGEST, _POSITION_WIDTH)
        self.first = Linear(2 * hidden + _POSITION_WIDTH, hidden)
        self.first_norm = nn.LayerNorm(hidden, eps=config.layer_norm_eps)
        self.second = Linear(hidden, width)
        self.second_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.activation = ACTIVATIONS["gelu"]
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden: Tensor, masked_positions: Tensor, masked_labels: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the vectors that the output matrix multiplies, and their labels: (T, H), (P,), (P,) → (P, E), (P,).

        The label of a token beyond the first `_LONGEST` of its run is -100, so that shapes depend on no value.
        """
        left, right, place = span_borders(masked_positions)
        # Only a position that pads the batch, with a label of -100, has a neighbor outside.
        left, right = left.clamp(min=0), right.clamp(max=len(hidden) - 1)
        place_vectors = self.place(place.clamp(max=_LONGEST - 1)).to(hidden.dtype)
        x = torch.cat([hidden[left], hidden[right], place_vectors], dim=-1)
        x = self.first_norm(self.activation(self.first(x)))  # (P, H)
        x = self.second_norm(self.activation(self.second(x)))  # (P, E)
        return x, masked_labels.where(place < _LONGEST, IGNORE_INDEX)


class SpanBoundaryHead(ObjectiveHead[SpanBoundaryLayers]):
    """Spans are read off the masked positions."""

    module_name = "span_boundary"

    def build(self, config: BertConfig) -> SpanBoundaryLayers | None:
        """The head, where the configuration asks for the objective."""
        return SpanBoundaryLayers(config) if config.span_boundary_objective else None

    def rows(self, bert: BertModel, seqs: PackedSequences, labels: PretrainingLabels) -> Tensor | None:
        """All tokens: the borders of the spans are found by the module."""
        return None

    def loss_sums(
        self,
        module: SpanBoundaryLayers,
        bert: BertModel,
        seqs: PackedSequences,
        hidden: Tensor,
        labels: PretrainingLabels,
    ) -> LossSums:
        """Cross entropy of the hidden tokens; all masked positions count as predictions, also those beyond the 20th."""
        masked_labels = labels.masked_labels.long()
        inner, targets = module(hidden, labels.masked_positions, masked_labels)  # (P, E), (P,)
        loss, num_correct, _ = linear_cross_entropy_sums(inner, bert.embeddings.word.weight, module.bias, targets)
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
