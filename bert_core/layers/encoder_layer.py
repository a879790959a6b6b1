"""One layer of the encoder, on packed sequences (Vaswani et al. 2017, section 3.1).

Shapes: T tokens, R rows that are read of the layer, H hidden, N heads, D head size, I intermediate.
"""

from torch import Tensor, nn

from bert_core.attention import attention
from bert_core.attention.positions import Positions
from bert_core.config import BertConfig
from bert_core.kernels.dropout import Dropout
from bert_core.kernels.linear import Linear
from bert_core.layers.activations import ACTIVATIONS, GatedLinearUnit
from bert_core.layers.layer_norm import LayerNorm
from bert_core.packed_sequences import PackedSequences


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
