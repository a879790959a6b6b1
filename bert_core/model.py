"""The encoder (Devlin et al. 2018), run on packed sequences.

Shapes: B sequences, S slots of a padded row, T tokens, E embedding size, H hidden, N heads, D head size,
I intermediate, L layers.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.attention import attention
from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.errors import DataError
from bert_core.kernels.dropout import Dropout
from bert_core.kernels.linear import Linear
from bert_core.layer_pooling import HeadInput
from bert_core.packed_sequences import PackedSequences
from bert_core.positions import Positions

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "tanh": F.tanh,
}


@dataclass(frozen=True)
class BertOutput:
    """What the encoder gives for padded input."""

    last_hidden_state: Tensor
    """(B, S, H), zero at padding"""
    pooler_output: Tensor | None
    """(B, H); None where the family has no pooler"""


class Embeddings(nn.Module):
    """Sum of word, position and segment embeddings, normalized and, where they are narrow, widened."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.embedding_size or config.hidden_size
        self.position_offset = config.position_offset
        self.word = nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id)
        if config.position_embedding_type == "absolute":
            row_of_padding = config.position_offset - 1 if config.position_offset else None
            self.position = nn.Embedding(config.max_position_embeddings, width, padding_idx=row_of_padding)
        if config.type_vocab_size:
            self.token_type = nn.Embedding(config.type_vocab_size, width)
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps, bias=config.use_bias)
        self.dropout = Dropout(config.hidden_dropout_prob)
        if config.embedding_size is not None:
            self.projection = Linear(width, config.hidden_size)

    def forward(self, seqs: PackedSequences) -> Tensor:
        x = self.word(seqs.input_ids)  # (T, E)
        if hasattr(self, "position"):
            x = x + self.position(seqs.position_ids + self.position_offset)
        if hasattr(self, "token_type"):
            x = x + self.token_type(seqs.token_type_ids)
        x = self.dropout(self.norm(x))
        return self.projection(x) if hasattr(self, "projection") else x  # type: ignore[no-any-return]


class Gated(nn.Module):
    """act(x·W)·(x·V), the two products laid side by side (Shazeer 2020): (…, 2I) → (…, I)."""

    def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, products: Tensor) -> Tensor:
        inner, gate = products.chunk(2, dim=-1)
        return self.activation(inner) * gate


class Layer(nn.Module):
    """Attention and a feed-forward layer, each added to its input, with a LayerNorm behind or in front."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width, eps, bias = config.hidden_size, config.layer_norm_eps, config.use_bias
        gated = config.feed_forward == "gated"
        self.pre_norm = config.norm_placement == "pre"
        self.num_heads = config.num_attention_heads
        self.attention_dropout_p = config.attention_probs_dropout_prob
        self.qkv = Linear(width, 3 * width, bias=bias)
        self.attention_output = Linear(width, width, bias=bias)
        self.attention_norm = nn.LayerNorm(width, eps=eps, bias=bias)
        self.intermediate = Linear(width, (1 + gated) * config.intermediate_size, bias=bias)
        self.activation = Gated(ACTIVATIONS[config.hidden_act]) if gated else ACTIVATIONS[config.hidden_act]
        self.output = Linear(config.intermediate_size, width, bias=bias)
        self.output_norm = nn.LayerNorm(width, eps=eps, bias=bias)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, x: Tensor, seqs: PackedSequences, positions: Positions) -> Tensor:
        if self.pre_norm:
            x = self.dropout.add(x, self.attend(self.attention_norm(x), seqs, positions))
            return self.dropout.add(x, self.feed_forward(self.output_norm(x)))
        x = self.attention_norm(self.dropout.add(x, self.attend(x, seqs, positions)))
        return self.output_norm(self.dropout.add(x, self.feed_forward(x)))  # type: ignore[no-any-return]

    def attend(self, x: Tensor, seqs: PackedSequences, positions: Positions) -> Tensor:
        """(T, H) → (T, H)"""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).unbind(1)  # (T, N, D) each
        dropout_p = self.attention_dropout_p if self.training else 0.0
        context = attention(positions.turn(q), positions.turn(k), v, seqs, dropout_p, positions.slopes)
        return self.attention_output(context.flatten(1))  # type: ignore[no-any-return]

    def feed_forward(self, x: Tensor) -> Tensor:
        """(T, H) → (T, H)"""
        return self.output(self.activation(self.intermediate(x)))  # type: ignore[no-any-return]


class BertModel(PretrainedModel):
    """The encoder without a head."""

    is_encoder_alone = True

    def __init__(self, config: BertConfig, seed: int | None = 0, with_pooler: bool | None = None) -> None:
        """Without `with_pooler` the family decides whether there is one."""
        wanted = config.family.has_base_pooler if with_pooler is None else with_pooler
        self.with_pooler = wanted and config.pooler_activation is not None
        super().__init__(config, seed)

    def build(self, config: BertConfig) -> None:
        self.embeddings = Embeddings(config)
        num_groups = config.num_hidden_groups or config.num_hidden_layers
        self.layers = nn.ModuleList(Layer(config) for _ in range(num_groups))
        if config.norm_placement == "pre" and config.final_norm:
            self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=config.use_bias)
        if self.with_pooler:
            self.pooler = Linear(config.head_input_size, config.hidden_size)
        self.layer_pooling = HeadInput(config)

    def pack(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        keep_padding: bool = False,
    ) -> PackedSequences:
        """Padded rows (B, S) as the encoder eats them. Raises: DataError for shapes or ids that cannot be."""
        _check_range("input_ids", input_ids, self.config.vocab_size)
        if token_type_ids is not None and self.config.type_vocab_size:
            _check_range("token_type_ids", token_type_ids, self.config.type_vocab_size)
        padding_id = self.config.pad_token_id if self.config.position_offset else None
        return PackedSequences.from_padded(input_ids, attention_mask, token_type_ids, keep_padding, padding_id)

    def encode(self, seqs: PackedSequences) -> Tensor:
        """The last layer's output: (T, H). Raises: DataError when a sequence is longer than the model can read."""
        return deque(self.layer_outputs(seqs), maxlen=1).pop()

    def head_states(self, seqs: PackedSequences) -> Tensor:
        """What a head for a task reads, as `config.layer_pooling` says: (T, W)."""
        kept = self.layer_pooling.select(self.layer_outputs(seqs)) if seqs.states is None else seqs.states
        return self.layer_pooling(kept)  # type: ignore[no-any-return]

    def layer_outputs(self, seqs: PackedSequences) -> Iterator[Tensor]:
        """The embeddings, then the output of each layer, the last one normalized: L + 1 times (T, H).

        Raises: DataError when a sequence is longer than the model can read.
        """
        if seqs.max_seqlen > self.config.max_seq_length:
            raise DataError(
                f"a sequence has {seqs.max_seqlen} tokens, but the model reads at most "
                f"{self.config.max_seq_length} (max_position_embeddings); cut it or split it"
            )
        positions = Positions.of(self.config, seqs.position_ids)
        x: Tensor = self.embeddings(seqs)  # (T, H)
        yield x
        num_layers = self.config.num_hidden_layers
        for place in range(num_layers):
            x = self.layers[place * len(self.layers) // num_layers](x, seqs, positions)
            is_last = place == num_layers - 1
            yield self.norm(x) if is_last and hasattr(self, "norm") else x

    def pool(self, hidden: Tensor, seqs: PackedSequences, dropout: nn.Module | None = None) -> Tensor:
        """A summary of each sequence from its first token, which `dropout` may go over first: (T, W) → (B, H)."""
        summary = hidden.index_select(0, seqs.first_tokens)  # (B, W)
        summary = summary if dropout is None else dropout(summary)
        if not self.with_pooler:
            return summary
        activation = self.config.pooler_activation
        assert activation is not None
        return ACTIVATIONS[activation](self.pooler(summary))

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> BertOutput:
        """For padded rows (B, S); padding is taken out before the encoder and comes back as zeros."""
        seqs = self.pack(input_ids, attention_mask, token_type_ids)
        outputs = deque(
            self.layer_outputs(seqs), maxlen=1 if self.config.layer_pooling == "last" else None
        )  # (T, H) each
        pooled = self.pool(self.layer_pooling(self.layer_pooling.select(outputs)), seqs) if self.with_pooler else None
        return BertOutput(seqs.unpack(outputs[-1], input_ids.shape[1]), pooled)


def _check_range(name: str, ids: Tensor, size: int) -> None:
    if ids.numel() == 0:
        return
    low, high = (int(bound) for bound in ids.aminmax())
    if low < 0 or high >= size:
        wrong = low if low < 0 else high
        raise DataError(f"{name} holds {wrong}; the model knows 0 to {size - 1}: use the tokenizer it was trained with")
