"""Attention on the CPU, over groups of sequences of nearly equal length, as batched matrix products.

Shapes: T tokens, N heads, D head size; a group has n sequences of up to S tokens; R rows, n·N·S added up over groups.

One call for each sequence pays for calls, and in 16 bit for a new oneDNN kernel for each length, which takes ten times
as long as the product itself; one batch over all pays for padding. Sorted by length, in groups, with S rounded up to
few values, they pay little for either.
"""

import math
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from bert_core.attention.backend import AttentionBackend, AttentionCall, AttentionOptions
from bert_core.attention.positions import DistanceVectors, alibi_bias, is_near
from bert_core.kernels.dropout import bernoulli_keep_mask
from bert_core.packed_sequences import PackedSequences

# A group's sequences and n · S at most: more sequences are more padding, more places leave the cache.
_GROUP_SIZE = 8
_GROUP_PLACES = 1024
_ROUND_TO = 16


class GroupedAttention(AttentionBackend):
    """Matrix products and a softmax over groups of sequences of nearly equal length, for CPUs."""

    name = "grouped"

    def refusal(self, call: AttentionCall) -> str | None:
        return "cannot leave out padding that is among the tokens" if call.includes_padding else None

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, seqs: PackedSequences, options: AttentionOptions) -> Tensor:
        num_heads, (dropout_p, slopes, is_causal, window, learned, distances) = q.shape[1], options
        layout = ("length groups", num_heads, is_causal, window)
        groups = seqs.cached(layout, lambda: LengthGroups.build(seqs.cu_seqlens, num_heads, is_causal, window))
        biases = seqs.cached((*layout, slopes, q.dtype), lambda: groups.score_biases(slopes, q.dtype))
        if learned is not None:  # groups are as wide as the longest sequence, or some places wider
            learned = F.pad(learned, (0, _ROUND_TO, 0, _ROUND_TO))
        added = [] if distances is None else groups.distance_scores(q, k, distances)
        context: Tensor = _GroupedAttention.apply(q, k, v, learned, groups, biases, dropout_p, *added)  # type: ignore[no-untyped-call]
        return context


@dataclass(frozen=True)
class LengthGroups:
    """Layout of a batch in groups: where each head's rows lie.

    Row T·N is padding, which reads as zeros.
    """

    shapes: list[tuple[int, int]]
    """n and S of each group."""
    masks: list[Tensor]
    """Bias of each group's scores, (n·N, 1 or S, S): 0 where there is a token to attend to, −∞ where there is none."""
    gather: Tensor
    """Place of each of the R rows among the T·N rows of a (T, N, D) tensor, T·N for padding: (R,) int64."""
    scatter: Tensor
    """Place of each of the T·N rows among the R rows: (T·N,) int64."""

    @classmethod
    def build(cls, cu_seqlens: Tensor, num_heads: int, is_causal: bool = False, window: int | None = None) -> Self:
        """Group sequences, the longest first, as many at a time as a group may have; from cumulative lengths (B+1,)."""
        starts, lengths = cu_seqlens[:-1].long(), cu_seqlens.diff().long()
        num_tokens, heads = int(cu_seqlens[-1]), torch.arange(num_heads)[:, None]
        shapes, masks, gathers = [], [], []
        rest = lengths.argsort(descending=True, stable=True)
        while len(rest):
            width = math.ceil(int(lengths[rest[0]]) / _ROUND_TO) * _ROUND_TO
            members, rest = rest.tensor_split([min(_GROUP_SIZE, max(1, _GROUP_PLACES // width))])
            places = torch.arange(width)
            is_token = (places < lengths[members, None])[:, None]  # (n, 1, S)
            rows = (starts[members, None, None] + places) * num_heads + heads  # (n, N, S)
            shapes.append((len(members), width))
            gathers.append(torch.where(is_token, rows, num_tokens * num_heads).flatten())
            attention_mask = is_token  # (n, 1 or S, S)
            if is_causal:
                attention_mask = attention_mask & (places <= places[:, None])
            if window is not None:  # padding attends to all tokens: a row without any would have no softmax
                attention_mask = attention_mask & (is_near(places, window) | ~is_token.mT)
            mask = torch.zeros(attention_mask.shape).masked_fill_(~attention_mask, -math.inf)
            # A long sequence is a group of its own, and its mask one for all heads without a copy.
            of_heads = mask.expand(num_heads, -1, -1) if len(mask) == 1 else mask.repeat_interleave(num_heads, dim=0)
            masks.append(of_heads)
        gather = torch.cat(gathers)
        scatter = torch.empty(num_tokens * num_heads + 1, dtype=torch.int64)
        scatter[gather] = torch.arange(len(gather))
        return cls(shapes, masks, gather, scatter[:-1])

    def score_biases(self, slopes: Tensor | None, dtype: torch.dtype) -> list[Tensor]:
        """Bias of each group's scores with the linear biases, if there are any: (n·N, 1 or S, S) each."""
        masks = [mask.to(dtype) for mask in self.masks]
        if slopes is None:
            return masks
        linear = (alibi_bias(slopes, width).to(dtype).repeat(n, 1, 1) for n, width in self.shapes)
        return [mask + bias for mask, bias in zip(masks, linear, strict=True)]  # (n·N, S, S)

    def distance_scores(self, q: Tensor, k: Tensor, distances: DistanceVectors) -> list[Tensor]:
        """Scores of each group by distance: (T, N, D) each → (n·N, S, S) each."""
        num_heads, wide = q.shape[1], F.pad(distances.rows, (0, _ROUND_TO, 0, _ROUND_TO))  # as the groups are
        parts = zip(*(self.split(self.rows(x), num_heads) for x in (q, k)), strict=True)
        heads = ([part.view(-1, num_heads, *part.shape[1:]) for part in pair] for pair in parts)  # (n, N, S, D) each
        return [distances._replace(rows=wide).scores(q_g, k_g).flatten(0, 1) for q_g, k_g in heads]

    def rows(self, x: Tensor) -> Tensor:
        """Gather a tensor's rows in the order of the groups: (T, N, D) → (R, D)."""
        rows = x.new_empty(x.shape[0] * x.shape[1] + 1, x.shape[2])
        rows[:-1].view(x.shape).copy_(x)
        rows[-1] = 0.0
        return rows.index_select(0, self.gather)

    def tokens(self, rows: Tensor, num_heads: int) -> Tensor:
        """Scatter rows back to their tokens: (R, D) → (T, N, D)."""
        return rows.index_select(0, self.scatter).view(-1, num_heads, rows.shape[1])

    def split(self, rows: Tensor, num_heads: int) -> list[Tensor]:
        """View the rows of each group: (R, D) → (n·N, S, D) each."""
        parts = torch.split(rows, [n * num_heads * width for n, width in self.shapes])
        return [part.view(-1, width, rows.shape[1]) for part, (_, width) in zip(parts, self.shapes, strict=True)]


class _GroupedAttention(torch.autograd.Function):
    """Attention with a gradient by hand: autograd would add up a tensor of all rows for each group's view of it."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        learned: Tensor | None,
        groups: LengthGroups,
        biases: list[Tensor],
        dropout_p: float,
        *added: Tensor,
    ) -> Tensor:
        num_heads, scale = q.shape[1], q.shape[2] ** -0.5
        qkv = [groups.rows(x) for x in (q, k, v)]
        context = torch.empty_like(qkv[0])
        parts = (groups.split(rows, num_heads) for rows in (*qkv, context))
        attended: list[Tensor] = []
        of_groups = added or (None,) * len(biases)
        for q_g, k_g, v_g, out, bias, scores in zip(*parts, biases, of_groups, strict=True):
            if scores is not None:
                bias = bias + scores
            if learned is not None:
                own = learned[:, : q_g.shape[1], : q_g.shape[1]].to(bias.dtype)  # (N, S, S)
                bias = bias + own.repeat(len(q_g) // num_heads, 1, 1)
            weights = torch.baddbmm(bias, q_g, k_g.mT, alpha=scale).softmax(dim=-1)  # (n·N, S, S)
            kept = weights
            if dropout_p:
                kept = (
                    bernoulli_keep_mask(weights.shape, dropout_p, weights.dtype).mul_(1 / (1 - dropout_p)).mul_(weights)
                )
            torch.bmm(kept, v_g, out=out)
            attended += [weights, kept]
        ctx.save_for_backward(*qkv, *attended)
        ctx.groups, ctx.dropout_p, ctx.learned_shape = groups, dropout_p, None if learned is None else learned.shape
        ctx.num_added = len(added)
        return groups.tokens(context, num_heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_context: Tensor) -> tuple[Tensor | None, ...]:
        groups, num_heads, scale = ctx.groups, d_context.shape[1], d_context.shape[2] ** -0.5
        q, k, v, *attended = ctx.saved_tensors
        gradients = [torch.empty_like(q) for _ in range(3)]
        d_learned = None if ctx.learned_shape is None else q.new_zeros(ctx.learned_shape, dtype=torch.float32)
        d_added: list[Tensor] = []
        parts = (groups.split(rows, num_heads) for rows in (q, k, v, groups.rows(d_context), *gradients))
        for q_g, k_g, v_g, d_out, dq, dk, dv, weights, kept in zip(*parts, attended[::2], attended[1::2], strict=True):
            torch.bmm(kept.mT, d_out, out=dv)
            # The softmax's gradient is w·(dw − Σ w·dw), and what dropout kept is w·factor: both meet in kept·dk.
            d_weights = torch.bmm(d_out, v_g.mT).mul_(kept)
            d_scores = d_weights.sub_(weights * d_weights.sum(dim=-1, keepdim=True))
            if d_learned is not None:
                per_sequence = d_scores.view(-1, num_heads, *d_scores.shape[1:])  # (n, N, S, S)
                d_learned[:, : q_g.shape[1], : q_g.shape[1]] += per_sequence.sum(dim=0, dtype=d_learned.dtype)
            if ctx.num_added:
                d_added.append(d_scores.clone())
            d_scores.mul_(scale)
            torch.bmm(d_scores, k_g, out=dq)
            torch.bmm(d_scores.mT, q_g, out=dk)
        return *(groups.tokens(rows, num_heads) for rows in gradients), d_learned, None, None, None, *d_added
