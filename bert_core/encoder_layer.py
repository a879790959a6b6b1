"""The embeddings and one layer of the encoder, on packed sequences (Vaswani et al. 2017, section 3.1).

Shapes: T tokens, R rows that are read of the layer, E embedding size, H hidden, N heads, K heads of keys and of values,
D head size, I intermediate.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.attention import attention
from bert_core.attention.backend import AttentionOptions
from bert_core.attention.positions import (
    DistanceProjections,
    DistanceTable,
    Positions,
    apply_rotary,
    distance_rows,
    relative_buckets,
)
from bert_core.config import BertConfig
from bert_core.kernels.dropout import Dropout
from bert_core.kernels.linear import Linear
from bert_core.packed_sequences import PackedSequences


class LayerNorm(nn.LayerNorm):
    """Layer normalization (Ba et al. 2016) that leaves a residual stream of 16 bits in 16 bits under autocast.

    PyTorch's autocast computes a LayerNorm in fp32 and leaves its output so, and with it each addition and all that a
    layer moves between its matrix products: on a GPU, twice the memory traffic of 16 bits. Here the output has the type
    of the input, with fp32 inside for mean, variance and the scaled result before it is rounded, as in MosaicBERT's
    low-precision LayerNorm (Portes et al. 2023, section 2). Parameters stay fp32.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last dimension: (…, H) → (…, H)."""
        device = x.device.type
        if x.dtype not in (torch.bfloat16, torch.float16) or not torch.is_autocast_enabled(device):
            return super().forward(x)
        weight, bias = self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype)
        with torch.autocast(device, enabled=False):
            return F.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


class RMSNorm(nn.RMSNorm):
    """Root mean square normalization (Zhang and Sennrich 2019), x / √(mean(x²) + ε) times a weight.

    It computes in fp32, and its output has the type of its input, under autocast as well.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last dimension: (…, H) → (…, H)."""
        # As a view, x gets the gradients of its two uses in one sum, wherever a compiler cuts: equal bits.
        full = x.view_as(x).float()
        with torch.autocast(x.device.type, enabled=False):
            return F.rms_norm(full, self.normalized_shape, self.weight.float(), self.eps).to(x.dtype)


def build_norm(config: BertConfig, width: int) -> nn.Module:
    """Norm of the encoder for vectors of a width."""
    if config.norm == "rms":
        return RMSNorm(width, eps=config.layer_norm_eps)
    return LayerNorm(width, eps=config.layer_norm_eps, bias=config.norms_have_bias)


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
        num_buckets = config.relative_attention_num_buckets
        self.relative_bias = None if num_buckets is None else nn.Embedding(num_buckets, config.num_attention_heads)
        self.distances = self.distance_norm = None
        if config.position_embedding_type == "disentangled":
            self.num_buckets = config.position_buckets
            self.farthest = config.max_relative_positions or config.max_position_embeddings
            self.distances = nn.Embedding(2 * (self.num_buckets or self.farthest), config.hidden_size)
            if config.norm_rel_ebd == "layer_norm":
                has_bias = config.norms_have_bias
                self.distance_norm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=has_bias)
        self.norm = build_norm(config, width) if config.embedding_norm else nn.Identity()
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.projection = None if config.embedding_size is None else Linear(width, config.hidden_size)

    def forward(
        self, seqs: PackedSequences, residual_dtype: torch.dtype | None = None, words: Tensor | None = None
    ) -> Tensor:
        """Embed each token: (T,) → (T, H).

        Args:
            residual_dtype: type of the result, and so of the residual stream; that of the weights when None.
            words: vectors of the tokens' words, (T, E), where they were looked up already.
        """
        if words is None:
            words = self.word(seqs.input_ids)
        positions = None if self.position is None else self.position(seqs.position_ids + self.position_offset)
        token_types = None
        if self.token_type is not None:  # a model of one type has it for both segments, whatever the tokenizer says
            has_one = self.token_type.num_embeddings == 1
            token_types = self.token_type(torch.zeros_like(seqs.token_type_ids) if has_one else seqs.token_type_ids)
        return self.combine(words, positions, token_types, residual_dtype or words.dtype)

    def attention_bias(self, seqs: PackedSequences) -> Tensor | None:
        """Learned bias of all layers' attention by the places of query and key, (N, S, S); None without one."""
        if self.relative_bias is None:
            return None
        size, device = self.relative_bias.num_embeddings, seqs.input_ids.device
        key = ("relative buckets", size)
        buckets = seqs.cached(key, lambda: relative_buckets(seqs.max_seqlen, size, device))  # (S, S)
        return self.relative_bias(buckets).permute(2, 0, 1)  # type: ignore[no-any-return]

    def distance_table(self, seqs: PackedSequences) -> DistanceTable | None:
        """Vectors of the distances that occur, (R, H), and which of them two places have, (S, S); None without any."""
        if self.distances is None:
            return None
        side, device = self.distances.num_embeddings // 2, seqs.input_ids.device
        reach = min(side, seqs.max_seqlen)
        vectors = self.distances.weight[side - reach : side + reach]
        key = ("distance rows", self.num_buckets, self.farthest)
        rows = seqs.cached(key, lambda: distance_rows(seqs.max_seqlen, self.num_buckets, self.farthest, device))
        return vectors if self.distance_norm is None else self.distance_norm(vectors), rows

    def combine(
        self, words: Tensor, positions: Tensor | None, token_types: Tensor | None, residual_dtype: torch.dtype
    ) -> Tensor:
        """Input of the first layer from the vectors that were looked up: (T, E) each → (T, H)."""
        x: Tensor = words if positions is None else words + positions
        if token_types is not None:
            x = x + token_types
        x = self.dropout(self.norm(x).to(residual_dtype))
        return x if self.projection is None else self.projection(x).to(residual_dtype)  # (T, H)


class Convolution(nn.Module):
    """Convolution of the embeddings along a sequence, added to the first layer's output and normalized (DeBERTa-v2)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width, size = config.hidden_size, config.conv_kernel_size
        self.matrices = nn.Conv1d(width, width, size, padding=size // 2)  # (H, H, size)
        self.norm = build_norm(config, width)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.activation = ACTIVATIONS[config.conv_act]

    def forward(self, embedded: Tensor, x: Tensor, seqs: PackedSequences, rows: Tensor | None) -> Tensor:
        """Add the convolution of (T, H) to the layer's output, of all tokens or of `rows` alone: (R, H) → (R, H)."""
        padded = self.matrices(seqs.unpack(embedded).transpose(1, 2)).transpose(1, 2)  # (B, S, H)
        added = self.activation(self.dropout(seqs.pack(padded).to(x.dtype)))  # (T, H)
        output: Tensor = self.norm(x + (added if rows is None else added.index_select(0, rows)))
        if not seqs.includes_padding:
            return output
        is_token = seqs.attention_mask.reshape(-1, 1)  # padding is zero, as in transformers
        return output * (is_token if rows is None else is_token.index_select(0, rows))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "tanh": F.tanh,
}


class EncoderLayer(nn.Module):
    """Attention and a feed-forward network, each added to its input, with a norm behind or in front.

    What lies before and behind the attention are methods of tensors alone, as `compiled_layers` compiles them.
    """

    def __init__(self, config: BertConfig, is_first: bool = False) -> None:
        super().__init__()
        width, bias = config.hidden_size, config.use_bias
        inner_bias = bias if config.intermediate_bias is None else config.intermediate_bias
        self.is_gated = config.feed_forward == "gated"
        self.pre_norm = config.norm_placement == "pre"
        self.qkv_heads = config.qkv_heads
        self.attention_dropout_p = config.attention_probs_dropout_prob
        self.causal_attention = config.causal_attention
        self.qkv = Linear(width, sum(self.qkv_heads) * config.head_size, bias=bias)  # of all heads: H → (N + 2K)·D
        is_disentangled = config.position_embedding_type == "disentangled"
        self.distances = DistanceProjections(config) if is_disentangled else None
        self.attention_output = Linear(width, width, bias=bias)  # H → H
        has_norm = config.first_norm or not is_first
        self.attention_norm = build_norm(config, width) if has_norm else nn.Identity()
        inner = (1 + self.is_gated) * config.intermediate_size
        self.intermediate = Linear(width, inner, bias=inner_bias)  # H → I, or 2I if gated
        self.activation = ACTIVATIONS[config.hidden_act]
        self.output = Linear(config.intermediate_size, width, bias=bias)  # I → H
        self.output_norm = build_norm(config, width)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, x: Tensor, seqs: PackedSequences, positions: Positions, rows: Tensor | None = None) -> Tensor:
        """Output of the layer: (T, H) → (T, H), or for the tokens `rows` (R,) alone → (R, H)."""
        heads = self.before_attention(x, positions.rotation)  # (T, N + 2K, D)
        q, k, v = torch.split(heads, list(self.qkv_heads), dim=1)
        if k.shape[1] < q.shape[1]:
            k, v = (shared.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for shared in (k, v))  # (T, N, D) each
        distances = None
        if self.distances is not None and positions.distances is not None:
            q, distances = self.distances(q, positions.distances, self.qkv, seqs)
        dropout_p = self.attention_dropout_p if self.training else 0.0
        slopes, window, bias = positions.slopes, positions.window, positions.bias
        options = AttentionOptions(dropout_p, slopes, self.causal_attention, window, bias, distances)
        context = attention(q, k, v, seqs, options)  # (T, N, D)
        if rows is not None:
            x, context = x.index_select(0, rows), context.index_select(0, rows)  # (R, H), (R, N, D)
        return self.after_attention(x, context.flatten(1))

    def before_attention(self, x: Tensor, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
        """Queries, keys and values of all heads, one behind the other: (T, H) → (T, N + 2K, D)."""
        if self.pre_norm:
            x = self.attention_norm(x)
        heads: Tensor = self.qkv(x).unflatten(-1, (sum(self.qkv_heads), -1))  # (T, N + 2K, D)
        if rotation is None:
            return heads
        num_queries, num_keys, num_values = self.qkv_heads
        turned, values = torch.split(heads, [num_queries + num_keys, num_values], dim=1)
        return torch.cat([apply_rotary(turned, rotation), values], dim=1)

    def after_attention(self, residual: Tensor, context: Tensor) -> Tensor:
        """Output of the layer for tokens, from its input and what they attended to: (T, H), (T, H) → (T, H)."""
        x = self.dropout.add(residual, self.attention_output(context))
        if self.pre_norm:
            return self.dropout.add(x, self.feed_forward(self.output_norm(x)))
        x = self.attention_norm(x)
        return self.output_norm(self.dropout.add(x, self.feed_forward(x)))  # type: ignore[no-any-return]

    def feed_forward(self, x: Tensor) -> Tensor:
        """Apply the feed-forward network, which may be gated (Shazeer 2020), to each token: (T, H) → (T, H)."""
        inner = self.intermediate(x)  # (T, I), or (T, 2I) if gated
        if not self.is_gated:
            return self.output(self.activation(inner))  # type: ignore[no-any-return]
        inner, gate = inner.chunk(2, dim=-1)  # (T, I) each
        return self.output(self.activation(inner) * gate)  # type: ignore[no-any-return]
