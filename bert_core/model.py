"""The encoder (Devlin et al. 2018), run on packed sequences.

Shapes: B sequences, S length of a padded row, T tokens, R rows that are read of the last layer, E embedding size,
H hidden, N heads, D head size, I intermediate, L layers, W width of what a head reads.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bert_core.attention import attention
from bert_core.attention.positions import Positions
from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.errors import DataError
from bert_core.kernels.dropout import Dropout
from bert_core.kernels.linear import Linear
from bert_core.layers.layer_norm import LayerNorm
from bert_core.layers.layer_pooling import LayerPooling
from bert_core.packed_sequences import PackedSequences

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "tanh": F.tanh,
}


@dataclass(frozen=True)
class BertOutput:
    """Output of the encoder for padded input."""

    last_hidden_state: Tensor
    """Output of the last layer, (B, S, H), zero at padding."""
    pooler_output: Tensor | None
    """Pooled output of each sequence, (B, H); None where the encoder has no pooler."""


class Embeddings(nn.Module):
    """Sum of word, position and segment embeddings, normalized and, where they are narrow, widened."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.embedding_size or config.hidden_size
        self.position_offset = config.position_offset
        self.word = nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id)
        self.position = None
        if config.position_embedding_type == "absolute":
            row_of_padding = config.position_offset - 1 if config.position_offset else None
            self.position = nn.Embedding(config.max_position_embeddings, width, padding_idx=row_of_padding)
        self.token_type = nn.Embedding(config.type_vocab_size, width) if config.type_vocab_size else None
        self.norm = LayerNorm(width, eps=config.layer_norm_eps, bias=config.use_bias)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.projection = None if config.embedding_size is None else Linear(width, config.hidden_size)

    def forward(self, seqs: PackedSequences) -> Tensor:
        """Embed each token: (T,) → (T, H)."""
        x: Tensor = self.word(seqs.input_ids)  # (T, E)
        if self.position is not None:
            x = x + self.position(seqs.position_ids + self.position_offset)
        if self.token_type is not None:
            x = x + self.token_type(seqs.token_type_ids)
        x = self.dropout(self.norm(x))
        return x if self.projection is None else self.projection(x)  # (T, H)


class GatedLinearUnit(nn.Module):
    """Activation of one half of its input, times the other half: act(x·W)·(x·V) (Shazeer 2020).

    The input holds the two products x·W and x·V side by side: (…, 2I) → (…, I).
    """

    def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, products: Tensor) -> Tensor:
        """Gate the first half of the last dimension by the second: (…, 2I) → (…, I)."""
        inner, gate = products.chunk(2, dim=-1)
        return self.activation(inner) * gate


class EncoderLayer(nn.Module):
    """Attention and a feed-forward network, each added to its input, with a LayerNorm behind or in front."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width, eps, bias = config.hidden_size, config.layer_norm_eps, config.use_bias
        gated = config.feed_forward == "gated"
        self.pre_norm = config.norm_placement == "pre"
        self.num_heads = config.num_attention_heads
        self.attention_dropout_p = config.attention_probs_dropout_prob
        self.causal_attention = config.causal_attention
        self.qkv = Linear(width, 3 * width, bias=bias)  # queries, keys and values of all heads: H → 3H
        self.attention_output = Linear(width, width, bias=bias)  # H → H
        self.attention_norm = LayerNorm(width, eps=eps, bias=bias)
        self.intermediate = Linear(width, (1 + gated) * config.intermediate_size, bias=bias)  # H → I, or 2I if gated
        self.activation = GatedLinearUnit(ACTIVATIONS[config.hidden_act]) if gated else ACTIVATIONS[config.hidden_act]
        self.output = Linear(config.intermediate_size, width, bias=bias)  # I → H
        self.output_norm = LayerNorm(width, eps=eps, bias=bias)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, x: Tensor, seqs: PackedSequences, positions: Positions, rows: Tensor | None = None) -> Tensor:
        """Output of the layer: (T, H) → (T, H), or for the tokens `rows` (R,) alone → (R, H)."""
        residual = x if rows is None else x.index_select(0, rows)
        if self.pre_norm:
            x = self.dropout.add(residual, self.attend(self.attention_norm(x), seqs, positions, rows))
            return self.dropout.add(x, self.feed_forward(self.output_norm(x)))
        x = self.attention_norm(self.dropout.add(residual, self.attend(x, seqs, positions, rows)))
        return self.output_norm(self.dropout.add(x, self.feed_forward(x)))  # type: ignore[no-any-return]

    def attend(self, x: Tensor, seqs: PackedSequences, positions: Positions, rows: Tensor | None = None) -> Tensor:
        """Attention of each token, or of the tokens `rows`, to all tokens of its own sequence: (T, H) → (T or R, H)."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).unbind(1)  # (T, N, D) each
        q, k = positions.apply_rotary(q), positions.apply_rotary(k)
        dropout_p = self.attention_dropout_p if self.training else 0.0
        context = attention(q, k, v, seqs, dropout_p, positions.slopes, self.causal_attention)  # (T, N, D)
        if rows is not None:
            context = context.index_select(0, rows)  # (R, N, D)
        return self.attention_output(context.flatten(1))  # type: ignore[no-any-return]

    def feed_forward(self, x: Tensor) -> Tensor:
        """Feed-forward network of each token by itself: (T, H) → (T, H)."""
        return self.output(self.activation(self.intermediate(x)))  # type: ignore[no-any-return]


class BertModel(PretrainedModel):
    """The encoder without a head."""

    is_encoder_alone = True
    recomputes_layers = False
    """Whether backward computes each layer's inside again (Chen et al. 2016): less memory, a third more time.

    Dropout drops the same again, so that gradients are the same bits.
    """

    def __init__(self, config: BertConfig, seed: int | None = 0, with_pooler: bool | None = None) -> None:
        """Make an encoder with weights drawn from `seed`.

        `with_pooler` says whether the encoder has a pooler; None leaves it to the family.
        """
        wanted = config.family.has_base_pooler if with_pooler is None else with_pooler
        self.with_pooler = wanted and config.pooler_activation is not None
        super().__init__(config, seed)

    def build(self, config: BertConfig) -> None:
        self.embeddings = Embeddings(config)
        num_groups = config.num_hidden_groups or config.num_hidden_layers  # layers with weights of their own
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(num_groups))
        self.norm = None
        if config.norm_placement == "pre" and config.final_norm:
            self.norm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=config.use_bias)
        self.pooler = Linear(config.head_input_size, config.hidden_size) if self.with_pooler else None
        self.layer_pooling = LayerPooling(config)
        self.noted_states: list[Tensor] | None = None  # see `distillation.last_hidden_states`

    def pack(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        keep_padding: bool = False,
    ) -> PackedSequences:
        """Pack padded rows (B, S) for the encoder.

        With `keep_padding`, padding is packed as well, as tokens that nothing attends to.

        Raises: DataError when shapes disagree or an id lies outside the vocabulary.
        """
        _check_range("input_ids", input_ids, self.config.vocab_size)
        if token_type_ids is not None and self.config.type_vocab_size:
            _check_range("token_type_ids", token_type_ids, self.config.type_vocab_size)
        padding_id = self.config.pad_token_id if self.config.position_offset else None
        return PackedSequences.from_padded(input_ids, attention_mask, token_type_ids, keep_padding, padding_id)

    def encode(self, seqs: PackedSequences, rows: Tensor | None = None) -> Tensor:
        """Output of the last layer: (T, H), or for the tokens `rows` (R,) alone: (R, H).

        What a token costs behind the last layer's attention, it costs then only where its output is read.

        Raises: DataError when a sequence is longer than the model can read.
        """
        x, positions = self.embed(seqs)
        *earlier, last = self.layers_in_order()
        for layer in earlier:
            x = layer(x, seqs, positions)
        if self.noted_states is None:
            return self.normalized(last(x, seqs, positions, rows))
        x = self.normalized(last(x, seqs, positions))
        self.noted_states.append(x)
        return x if rows is None else x.index_select(0, rows)

    def encode_each(self, seqs: PackedSequences, parts: Sequence[Tensor | None]) -> list[Tensor]:
        """Output of the last layer for several readers: (R,) → (R, H) each, or (T, H) for None, which is all tokens.

        Parts may overlap. The encoder runs once.
        """
        chosen = [part for part in parts if part is not None]
        if len(chosen) == len(parts) > 0:
            return list(torch.split(self.encode(seqs, torch.cat(chosen)), [len(part) for part in chosen]))
        hidden = self.encode(seqs)  # (T, H)
        return [hidden if part is None else hidden.index_select(0, part) for part in parts]

    def head_states(self, seqs: PackedSequences, rows: Tensor | None = None) -> Tensor:
        """Vectors that a task's head reads, as `config.layer_pooling` says: (T, W), or of `rows` (R,) alone: (R, W).

        They are made from `seqs.frozen_states` where the batch has them, and by running the layers otherwise.
        """
        selected = seqs.frozen_states
        if selected is None and self.config.layer_pooling == "last":
            return self.encode(seqs, rows)
        if selected is None:
            selected = self.layer_pooling.select(self.layer_outputs(seqs))
        if rows is not None:
            selected = selected.index_select(0, rows)
        return self.layer_pooling(selected)  # type: ignore[no-any-return]

    def layer_outputs(self, seqs: PackedSequences) -> Iterator[Tensor]:
        """Yield the embeddings, then the output of each layer, the last one normalized: L + 1 times (T, H).

        Raises: DataError when a sequence is longer than the model can read.
        """
        x, positions = self.embed(seqs)
        yield x
        *earlier, last = self.layers_in_order()
        for layer in earlier:
            x = layer(x, seqs, positions)
            yield x
        x = self.normalized(last(x, seqs, positions))
        if self.noted_states is not None:
            self.noted_states.append(x)
        yield x

    def embed(self, seqs: PackedSequences) -> tuple[Tensor, Positions]:
        """Input of the first layer, (T, H), and the positions that all layers use.

        Raises: DataError when a sequence is longer than the model can read.
        """
        if seqs.max_seqlen > self.config.max_seq_length:
            raise DataError(
                f"a sequence has {seqs.max_seqlen} tokens, but the model reads at most "
                f"{self.config.max_seq_length} (max_position_embeddings); cut it or split it"
            )
        return self.embeddings(seqs), Positions.of_batch(self.config, seqs)

    def layers_in_order(self) -> list[Callable[..., Tensor]]:
        """The L layers in the order in which tokens pass through them; one whose weights are shared occurs again."""
        num_layers, num_groups = self.config.num_hidden_layers, len(self.layers)
        layers: list[Callable[..., Tensor]] = [
            self.layers[place * num_groups // num_layers] for place in range(num_layers)
        ]
        return (
            [partial(checkpoint, layer, use_reentrant=False) for layer in layers] if self.recomputes_layers else layers
        )

    def normalized(self, x: Tensor) -> Tensor:
        """Output of the encoder made from that of its last layer: the same, where there is no norm at the end."""
        return x if self.norm is None else self.norm(x)

    def pooled_states(self, seqs: PackedSequences, dropout: nn.Module | None = None) -> Tensor:
        """Pooled output of each sequence, from the vectors that a task's head reads: (B, H), or (B, W) unpooled."""
        return self.pool(self.head_states(seqs, self.pooled_tokens(seqs)), dropout)

    def pooled_tokens(self, seqs: PackedSequences) -> Tensor:
        """Place of the token that stands for each sequence: (B,).

        That is the first token or, with causal attention, the last one, which alone has seen all others.
        """
        return seqs.last_tokens if self.config.causal_attention else seqs.first_tokens

    def pool(self, tokens: Tensor, dropout: nn.Module | None = None) -> Tensor:
        """Pooled output of each sequence, made from the vector of its token in `pooled_tokens`: (B, W) → (B, H).

        `dropout` is applied in front of the pooler. Without a pooler it is the token's vector itself: (B, W).
        """
        if dropout is not None:
            tokens = dropout(tokens)
        if self.pooler is None:
            return tokens
        activation = self.config.pooler_activation
        assert activation is not None, "a model without this activation has no pooler"
        return ACTIVATIONS[activation](self.pooler(tokens))

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> BertOutput:
        """Encode padded rows (B, S); padding is taken out before the encoder and comes back as zeros."""
        seqs = self.pack(input_ids, attention_mask, token_type_ids)
        only_last = self.config.layer_pooling == "last"  # the other layers' outputs need not be kept then
        outputs = [self.encode(seqs)] if only_last else list(self.layer_outputs(seqs))  # (T, H) each
        pooled = None
        if self.pooler is not None:
            states = self.layer_pooling(self.layer_pooling.select(outputs))  # (T, W)
            pooled = self.pool(states.index_select(0, self.pooled_tokens(seqs)))  # (B, H)
        return BertOutput(seqs.unpack(outputs[-1], input_ids.shape[1]), pooled)


def _check_range(name: str, ids: Tensor, size: int) -> None:
    if ids.numel() == 0:
        return
    low, high = (int(bound) for bound in ids.aminmax())
    if low < 0 or high >= size:
        wrong = low if low < 0 else high
        raise DataError(f"{name} holds {wrong}; the model knows 0 to {size - 1}: use the tokenizer it was trained with")
