"""The encoder (Devlin et al. 2018), run on packed sequences.

Shapes: B sequences, S length of a padded row, T tokens, R rows that are read of the last layer, H hidden, L layers,
W width of what a head reads.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bert_core.attention.positions import Positions
from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.encoder_layer import ACTIVATIONS, Convolution, Embeddings, EncoderLayer, LayerNorm, build_norm
from bert_core.errors import DataError
from bert_core.kernels.dropout import Dropout
from bert_core.kernels.linear import Linear
from bert_core.packed_sequences import PackedSequences

_LAST_FOUR = slice(-4, None)


class LayerPooling(nn.Module):
    """Choice and weighting of the layers' outputs: the last one alone, or several (Devlin et al. 2018, section 5.3).

    The learned weighted sum is that of Peters et al. 2018 (ELMo), equation 1.

    It has two steps: `select` has no weights, so that its result can be kept where the layers are frozen; `forward` has
    those of the learned sum.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.kind = config.layer_pooling
        if self.kind == "scalar_mix":
            self.weights = nn.Parameter(torch.ones(config.num_hidden_layers + 1))
            self.scale = nn.Parameter(torch.ones(1))

    def select(self, outputs: Iterable[Tensor]) -> Tensor:
        """Pick what is needed of the embeddings' and the layers' outputs, L + 1 times (T, H).

        The result is (T, W), or all of them, (T, L + 1, H), where the weighted sum is learned.
        """
        match self.kind:
            case "last":
                return last_output(outputs)
            case "embeddings":
                return next(iter(outputs))
            case "second_to_last":
                return list(outputs)[-2]
            case "sum_last_four":
                return torch.stack(list(outputs)[_LAST_FOUR]).sum(dim=0)
            case "concat_last_four":
                return torch.cat(list(outputs)[_LAST_FOUR], dim=-1)
        return torch.stack(list(outputs), dim=1)  # (T, L + 1, H)

    def forward(self, selected: Tensor) -> Tensor:
        """Turn what `select` gave into what the head reads: (T, W)."""
        if self.kind != "scalar_mix":
            return selected
        weights = self.weights.softmax(dim=0).to(selected.dtype)  # (L + 1,)
        return self.scale.to(selected.dtype) * torch.einsum("tlh,l->th", selected, weights)


def last_output(outputs: Iterable[Tensor]) -> Tensor:
    """Return the last of the layers' outputs, of which there is at least one; the others are not kept in memory."""
    for output in outputs:
        last = output
    return last


@dataclass(frozen=True)
class BertOutput:
    last_hidden_state: Tensor
    """Output of the last layer, (B, S, H), zero at padding."""
    pooler_output: Tensor | None
    """Pooled output of each sequence, (B, H); None where the encoder has no pooler."""


class BertModel(PretrainedModel):
    """The encoder without a head."""

    is_encoder_alone = True
    recomputes_layers = False
    """Whether backward computes each layer's inside again (Chen et al. 2016): less memory, a third more time.

    Dropout drops the same again, so that gradients are the same bits.
    """
    residual_dtype: torch.dtype | None = None
    """Type of the residual stream under autocast; None: that of the weights. A choice of a training, saved nowhere."""

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
        self.layers = nn.ModuleList(EncoderLayer(config, is_first=place == 0) for place in range(num_groups))
        self.convolution = Convolution(config) if config.conv_kernel_size else None
        self.norm = None
        if config.norm_placement == "pre" and config.final_norm:
            self.norm = build_norm(config, config.hidden_size)
        width, is_plain = config.hidden_size, not config.heads.has_head_layer
        self.pooler = Linear(config.head_input_size, width, bias=is_plain) if self.with_pooler else None
        has_norm = self.with_pooler and not is_plain
        self.pooler_norm = LayerNorm(width, eps=config.layer_norm_eps, bias=False) if has_norm else None
        self.pooler_dropout = Dropout(config.pooler_dropout)
        self.layer_pooling = LayerPooling(config)

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
        if token_type_ids is not None and self.config.type_vocab_size > 1:
            _check_range("token_type_ids", token_type_ids, self.config.type_vocab_size)
        padding_id = self.config.pad_token_id if self.config.position_offset else None
        return PackedSequences.from_padded(input_ids, attention_mask, token_type_ids, keep_padding, padding_id)

    def encode(self, seqs: PackedSequences, rows: Tensor | None = None, words: Tensor | None = None) -> Tensor:
        """Output of the last layer: (T, H), or for the tokens `rows` (R,) alone: (R, H).

        What a token costs behind the last layer's attention, it costs then only where its output is read.

        Args:
            words: vectors of the tokens' words, (T, E), where they were looked up already.

        Raises: DataError when a sequence is longer than the model can read.
        """
        return last_output(self.layer_outputs(seqs, rows, words))

    def head_states(self, seqs: PackedSequences, rows: Tensor | None = None, selected: Tensor | None = None) -> Tensor:
        """Vectors that a task's head reads, as `config.layer_pooling` says: (T, W), or of `rows` (R,) alone: (R, W).

        Args:
            selected: outputs of the layers for these tokens as `LayerPooling.select` picked them, (T, …), where they
                are known, as those of a frozen encoder are; the layers are run otherwise.
        """
        if selected is None and self.config.layer_pooling == "last":
            return self.encode(seqs, rows)
        if selected is None:
            selected = self.layer_pooling.select(self.layer_outputs(seqs))
        if rows is not None:
            selected = selected.index_select(0, rows)
        return self.layer_pooling(selected)  # type: ignore[no-any-return]

    def token_states(self, seqs: PackedSequences, selected: Tensor | None = None) -> Tensor:
        """Vectors that a classifier of tokens reads, behind its head's layer in families that have one: (T, W).

        `selected` is as that of `head_states`.
        """
        states = self.head_states(seqs, selected=selected)
        return self.pool(states) if self.config.heads.has_head_layer else states

    def layer_outputs(
        self, seqs: PackedSequences, rows: Tensor | None = None, words: Tensor | None = None
    ) -> Iterator[Tensor]:
        """Yield the embeddings, then the output of each layer, the last one normalized: L + 1 times (T, H).

        Given `rows` (R,), the last one is (R, H). `words` is as that of `encode`.

        Raises: DataError when a sequence is longer than the model can read.
        """
        x, positions = self.embed(seqs, words)
        yield x
        embedded, num_layers = None if self.convolution is None else x, len(positions)
        for number, (layer, place) in enumerate(zip(self.layers_in_order(), positions, strict=True), start=1):
            read = rows if number == num_layers else None
            x = layer(x, seqs, place, read)
            if self.convolution is not None and embedded is not None:
                x, embedded = self.convolution(embedded, x, seqs, read), None
            if number == num_layers and self.norm is not None:
                x = self.norm(x)
            yield x

    def embed(self, seqs: PackedSequences, words: Tensor | None = None) -> tuple[Tensor, tuple[Positions, ...]]:
        """Input of the first layer, (T, H), and the positions that each of the L layers uses.

        `words` is as that of `encode`.

        Raises: DataError when a sequence is longer than the model can read.
        """
        if seqs.max_seqlen > self.config.max_seq_length:
            raise DataError(
                f"a sequence has {seqs.max_seqlen} tokens, but the model reads at most "
                f"{self.config.max_seq_length} (max_position_embeddings); cut it or split it"
            )
        is_autocast = torch.is_autocast_enabled(seqs.input_ids.device.type)
        x = self.embeddings(seqs, self.residual_dtype if is_autocast else None, words)  # (T, H)
        distances = self.embeddings.distance_table(seqs)
        if distances is not None and seqs.includes_padding:  # it is zero in front of the layers, as in transformers
            x = x * seqs.attention_mask.reshape(-1, 1)
        return x, Positions.of_layers(self.config, seqs, self.embeddings.attention_bias(seqs), distances)

    def layers_in_order(self) -> list[Callable[..., Tensor]]:
        """The L layers in the order in which tokens pass through them; one whose weights are shared occurs again."""
        num_layers, num_groups = self.config.num_hidden_layers, len(self.layers)
        layers: list[Callable[..., Tensor]] = [
            self.layers[place * num_groups // num_layers] for place in range(num_layers)
        ]
        return (
            [partial(checkpoint, layer, use_reentrant=False) for layer in layers] if self.recomputes_layers else layers
        )

    def pooled_states(
        self, seqs: PackedSequences, dropout: nn.Module | None = None, selected: Tensor | None = None
    ) -> Tensor:
        """Pooled output of each sequence, from the vectors that a task's head reads: (B, H), or (B, W) unpooled.

        Args:
            dropout: applied in front of the pooler.
            selected: as that of `head_states`.
        """
        if self.config.pools_one_token:
            return self.pool(self.head_states(seqs, self.pooled_tokens(seqs), selected), dropout)
        states = self.head_states(seqs, selected=selected)  # (T, W)
        if self.config.classifier_pooling == "late":
            pooled = self.pool(states, dropout)  # (T, H)
            return pool_tokens(pooled, seqs.cu_seqlens, "mean").to(pooled.dtype)
        return self.pool(pool_tokens(states, seqs.cu_seqlens, "mean").to(states.dtype), dropout)

    def pooled_tokens(self, seqs: PackedSequences) -> Tensor:
        """Index of the token that stands for each sequence: (B,).

        That is the first token or, with causal attention, the last one, which alone has seen all others.
        """
        return seqs.last_tokens if self.config.causal_attention else seqs.first_tokens

    def pool(self, tokens: Tensor, dropout: nn.Module | None = None) -> Tensor:
        """Pooled output of each sequence, made from that of one of its tokens, or their mean: (B, W) → (B, H).

        `dropout` is applied in front of the pooler. Without a pooler it is the vector itself: (B, W).
        """
        if dropout is not None:
            tokens = dropout(tokens)
        if self.pooler is None:
            return tokens
        if self.pooler_dropout.p:
            tokens = self.pooler_dropout(tokens)
        activation = self.config.pooler_activation
        assert activation is not None, "a model without this activation has no pooler"
        name = self.config.hidden_act if activation == "hidden_act" else activation
        pooled = ACTIVATIONS[name](self.pooler(tokens))
        return pooled if self.pooler_norm is None else self.pooler_norm(pooled)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> BertOutput:
        """Encode padded rows (B, S); padding is taken out before the encoder and comes back as zeros."""
        seqs = self.pack(input_ids, attention_mask, token_type_ids)
        only_last = self.config.layer_pooling == "last"  # the other layers' outputs need not be kept then
        outputs = [self.encode(seqs)] if only_last else list(self.layer_outputs(seqs))  # (T, H) each
        pooled = None
        if self.pooler is not None:
            pooled = self.pooled_states(seqs, selected=self.layer_pooling.select(outputs))  # (B, H)
        return BertOutput(seqs.unpack(outputs[-1], input_ids.shape[1]), pooled)


def pool_tokens(hidden: Tensor, cu_seqlens: Tensor, pooling: str) -> Tensor:
    """Pool each sequence's tokens by the "mean" or "max" of each dimension: (T, H), (B+1,) → (B, H) float32."""
    # The offsets are those of packed sequences, checked when they were packed.
    return torch.segment_reduce(hidden.float(), pooling, offsets=cu_seqlens, axis=0, unsafe=True)


def _check_range(name: str, ids: Tensor, size: int) -> None:
    if ids.numel() == 0:
        return
    low, high = (int(bound) for bound in ids.aminmax())
    if low < 0 or high >= size:
        wrong = low if low < 0 else high
        raise DataError(f"{name} holds {wrong}; the model knows 0 to {size - 1}: use the tokenizer it was trained with")
