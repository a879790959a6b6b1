"""The encoder (Devlin et al. 2018), run on packed sequences.

Shapes: B sequences, S slots of a padded row, T tokens, H hidden, N heads, D head size, I intermediate.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.attention import attention
from bert_core.config import BertConfig
from bert_core.errors import DataError
from bert_core.packed_sequences import PackedSequences
from bert_core.pretrained import PretrainedModel

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


@dataclass(frozen=True)
class BertOutput:
    """What the encoder gives for padded input."""

    last_hidden_state: Tensor
    """(B, S, H), zero at padding"""
    pooler_output: Tensor
    """(B, H)"""


class Embeddings(nn.Module):
    """Sum of word, position and segment embeddings, normalised."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.position = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, seqs: PackedSequences) -> Tensor:
        x = self.word(seqs.input_ids)  # (T, H)
        x = x + self.position(seqs.position_ids) + self.token_type(seqs.token_type_ids)
        return self.dropout(self.norm(x))  # type: ignore[no-any-return]


class Layer(nn.Module):
    """Attention and an MLP, each added to its input and normalised afterwards."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.layer_norm_eps
        self.num_heads = config.num_attention_heads
        self.attention_dropout_p = config.attention_probs_dropout_prob
        self.qkv = nn.Linear(width, 3 * width)
        self.attention_output = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, eps=eps)
        self.intermediate = nn.Linear(width, config.intermediate_size)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.output = nn.Linear(config.intermediate_size, width)
        self.output_norm = nn.LayerNorm(width, eps=eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x: Tensor, seqs: PackedSequences) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).unbind(1)  # (T, N, D) each
        context = attention(q, k, v, seqs, self.attention_dropout_p if self.training else 0.0)
        x = self.attention_norm(x + self.dropout(self.attention_output(context.flatten(1))))  # (T, H)
        inner = self.activation(self.intermediate(x))  # (T, I)
        return self.output_norm(x + self.dropout(self.output(inner)))  # type: ignore[no-any-return]


class BertModel(PretrainedModel):
    """The encoder without a head."""

    def __init__(self, config: BertConfig, seed: int | None = 0, with_pooler: bool = True) -> None:
        self.with_pooler = with_pooler
        super().__init__(config, seed)

    def build(self, config: BertConfig) -> None:
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        if self.with_pooler:
            self.pooler = nn.Linear(config.hidden_size, config.hidden_size)

    def encode(self, seqs: PackedSequences) -> Tensor:
        """The last layer's output: (T, H). Raises: DataError when a sequence is longer than the model can read."""
        if seqs.max_seqlen > self.config.max_position_embeddings:
            raise DataError(
                f"a sequence has {seqs.max_seqlen} tokens, but the model reads at most "
                f"{self.config.max_position_embeddings} (max_position_embeddings); cut it or split it"
            )
        x: Tensor = self.embeddings(seqs)  # (T, H)
        for layer in self.layers:
            x = layer(x, seqs)
        return x

    def pool(self, hidden: Tensor, seqs: PackedSequences) -> Tensor:
        """A summary of each sequence from its first token: (T, H) → (B, H)."""
        summary: Tensor = self.pooler(hidden.index_select(0, seqs.first_tokens))  # (B, H)
        return F.tanh(summary)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> BertOutput:
        """For padded rows (B, S); padding is taken out before the encoder and comes back as zeros."""
        seqs = PackedSequences.from_padded(input_ids, attention_mask, token_type_ids)
        hidden = self.encode(seqs)  # (T, H)
        return BertOutput(seqs.unpack(hidden, input_ids.shape[1]), self.pool(hidden, seqs))
