"""Positions beyond learned embeddings: rotary positions, biases in the attention, linear (ALiBi) or learned, windows,
and disentangled attention: scores by content, and by distance (He et al. 2021, DeBERTa, section 3.1).

The disentangled score of query i and key j is (q_i·k_j + q_i·K_δ + k_j·Q_δ) / √(D · number of its terms), equation 4.
K and Q are a layer's projections of vectors of distances, which all layers share. δ is the row of i − j in both terms,
as in the authors' code. Far distances share rows (He et al. 2023, DeBERTaV3, and the v2 models).

Shapes: T tokens, S places of a padded row, n rows, L layers, N heads, D head size, H hidden, R rows of the table of
distances.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.config import BertConfig
from bert_core.kernels.dropout import Dropout
from bert_core.kernels.linear import Linear
from bert_core.packed_sequences import PackedSequences

DistanceTable = tuple[Tensor, Tensor]
"""Vectors of distances, (R, H), and which of them each query's and key's places have, (S, S) int64; of all layers."""


@dataclass(frozen=True)
class Positions:
    """Position information that a layer's attention uses; made once for all layers that use the same."""

    rotation: tuple[Tensor, Tensor] | None = None
    """Cosine and sine of each token's rotary angles, (T, 1, D) each; None unless positions are rotary."""
    slopes: Tensor | None = None
    """Slopes of the linear biases, (N,); None unless positions are ALiBi."""
    window: int | None = None
    """Tokens on each side that a token attends to; None: all of its sequence."""
    bias: Tensor | None = None
    """Learned bias of each head by the places of query and key, (N, S, S); None unless the model has one."""
    distances: DistanceTable | None = None
    """Vectors of distances; None unless positions are disentangled."""

    @classmethod
    def of_layers(
        cls,
        config: BertConfig,
        seqs: PackedSequences,
        bias: Tensor | None = None,
        distances: DistanceTable | None = None,
    ) -> tuple["Positions", ...]:
        """Make the positions of a batch for each of the L layers, or take those that were made for it before."""
        everywhere = replace(cls.of(config, seqs, config.rotary_base), bias=bias, distances=distances)
        if config.local_window is None:
            return (everywhere,) * config.num_hidden_layers
        rotary_base, window = config.local_rotary_base or config.rotary_base, config.local_window // 2
        nearby = replace(cls.of(config, seqs, rotary_base), bias=bias, distances=distances, window=window)
        layers = range(config.num_hidden_layers)
        return tuple(nearby if layer % config.global_every else everywhere for layer in layers)

    @classmethod
    def of(cls, config: BertConfig, seqs: PackedSequences, rotary_base: float) -> "Positions":
        """Make the positions of a batch for layers that attend to all of a sequence."""
        if config.position_embedding_type == "rotary":
            shape = (config.head_size, rotary_base, config.rotary_scaling_factor)
            return cls(seqs.cached(("rotation", *shape), lambda: rotation(seqs.position_ids, *shape)))
        if config.position_embedding_type == "alibi":
            num_heads, device = config.num_attention_heads, seqs.position_ids.device
            slopes = seqs.cached(("slopes", num_heads), lambda: alibi_slopes(num_heads).to(device, non_blocking=True))
            return cls(slopes=slopes)
        return cls()


def is_near(places: Tensor, window: int) -> Tensor:
    """Whether two places are at most a window apart: (S,) → (S, S) bool."""
    return (places[:, None] - places).abs() <= window


def apply_rotary(heads: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate queries or keys by cosines and sines of their tokens' angles, (T, 1, D) each: (T, N, D) → (T, N, D)."""
    cosine, sine = (part.to(heads.dtype) for part in rotation)
    left, right = heads.chunk(2, dim=-1)
    return heads * cosine + torch.cat([-right, left], dim=-1) * sine


def rotation(position_ids: Tensor, head_size: int, base: float, scaling_factor: float = 1.0) -> tuple[Tensor, Tensor]:
    """Compute cosine and sine of position / factor · base^(−2i/D) for pairs (i, i + D/2): (T,) → (T, 1, D) each.

    Su et al. 2021, equation 34, with the halves of a head as the pairs' members, as all trained weights have it now.
    """
    exponents = torch.arange(0, head_size, 2, device=position_ids.device) / head_size
    angles = position_ids[:, None] / (scaling_factor * base**exponents)  # (T, D/2)
    angles = torch.cat([angles, angles], dim=-1)[:, None, :]  # (T, 1, D)
    return angles.cos(), angles.sin()


def alibi_slopes(num_heads: int) -> Tensor:
    """Slope of each head's bias by distance (Press et al. 2022, section 3): (N,), 2^(−8/N), 2^(−16/N), …

    For a number of heads that is no power of two: those of the power below, then every second of twice that power.
    """
    power = 1 << (num_heads.bit_length() - 1)
    slopes = [2 ** (-8 * head / power) for head in range(1, power + 1)]
    more = [2 ** (-4 * head / power) for head in range(1, 2 * power + 1, 2)]
    return torch.tensor((slopes + more)[:num_heads])


def alibi_bias(slopes: Tensor, length: int) -> Tensor:
    """Bias of each head, −slope · |i − j|: (N,) → (N, S, S).

    It is the symmetric form for encoders (Portes et al. 2023, section 2).
    """
    places = torch.arange(length, device=slopes.device)
    return -slopes[:, None, None] * (places[:, None] - places).abs()


_FARTHEST = 128
"""Distance from which on all are in one bucket."""


def relative_buckets(length: int, num_buckets: int, device: torch.device) -> Tensor:
    """Bucket of each distance from a query's place to a key's: (S, S) int64, half of the buckets for each direction.

    Raffel et al. 2020, section 2.1, as their code has it: a quarter of the buckets are single distances, the others
    grow by a factor up to a distance of 128.
    """
    places = torch.arange(length, device=device)
    ahead = places - places[:, None]  # (S, S)
    distance, per_side, num_exact = ahead.abs(), num_buckets // 2, num_buckets // 4
    growth = (distance.clamp(min=1) / num_exact).log() / math.log(_FARTHEST / num_exact)
    wide = (num_exact + (growth * (per_side - num_exact)).long()).clamp(max=per_side - 1)
    return distance.where(distance < num_exact, wide) + per_side * (ahead > 0)


class DistanceVectors(NamedTuple):
    """Keys and queries of distances in one layer, scaled so that `scores` is added to scaled scores by content."""

    keys: Tensor | None
    """K, which queries are multiplied with, (N, R, D); None without this term."""
    queries: Tensor | None
    """Q, which keys are multiplied with, (N, R, D); None without this term."""
    rows: Tensor
    """Row of the distance of each query's and key's places, int64, (S, S) or larger."""

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        """Scores by distance: (n, N, S, D) each → (n, N, S, S)."""
        width = q.shape[-2]
        rows = self.rows[:width, :width].expand(*q.shape[:2], width, width)
        terms = []
        if self.keys is not None:
            terms.append((q @ self.keys.mT).gather(-1, rows))
        if self.queries is not None:
            terms.append((k @ self.queries.mT).gather(-1, rows.mT).mT)
        return terms[0] if len(terms) == 1 else terms[0] + terms[1]


class DistanceProjections(nn.Module):
    """A layer's projections of the vectors of distances: those of its queries and keys, or projections of their own."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.terms = config.pos_att_type.split("|")
        self.num_heads = config.num_attention_heads
        self.dropout = Dropout(config.hidden_dropout_prob)

        def build(term: str) -> Linear | None:
            is_own = term in self.terms and not config.share_att_key
            return Linear(config.hidden_size, config.hidden_size, bias=config.use_bias) if is_own else None

        self.queries, self.keys = build("p2c"), build("c2p")

    def forward(
        self, q: Tensor, table: DistanceTable, qkv: nn.Linear, seqs: PackedSequences
    ) -> tuple[Tensor, DistanceVectors]:
        """Scale queries for the number of terms, and project the table: (T, N, D) → (T, N, D), and the vectors.

        Queries of padding among the tokens become zero: it attends to all of its row alike, as in transformers.
        """
        scale = (1 + len(self.terms)) ** -0.5
        head_scale = q.shape[-1] ** -0.5
        vectors, rows = table
        x = self.dropout(vectors)  # (R, H)
        keys = self._project(x, self.keys, qkv, 1) * head_scale if "c2p" in self.terms else None
        queries = self._project(x, self.queries, qkv, 0) * (scale * head_scale) if "p2c" in self.terms else None
        q = q * scale
        if seqs.includes_padding:
            q = q * seqs.attention_mask.reshape(-1, 1, 1)
        return q, DistanceVectors(keys, queries, rows)

    def _project(self, x: Tensor, own: Linear | None, qkv: nn.Linear, part: int) -> Tensor:
        """Project the table by a layer of its own or a part of another, 0 of queries, 1 of keys: (R, H) → (N, R, D)."""
        if own is None:
            of_part = slice(part * x.shape[1], (part + 1) * x.shape[1])
            y = F.linear(x, qkv.weight[of_part], None if qkv.bias is None else qkv.bias[of_part])
        else:
            y = own(x)
        return y.view(len(y), self.num_heads, -1).transpose(0, 1)


def distance_rows(length: int, num_buckets: int | None, farthest: int, device: torch.device) -> Tensor:
    """Row for each query's and key's place, (S, S) int64, among the table's middle rows, S or all to each side.

    Up to half of the buckets of a side are single distances, the others grow by a factor up to `farthest`; without
    buckets each distance up to `farthest` has its row. The arithmetic is that of transformers to the last bit.
    """
    places = torch.arange(length, device=device)
    distance = places[:, None] - places  # (S, S)
    if num_buckets is not None:
        middle = num_buckets // 2
        growth = (distance.abs().clamp(min=middle) / middle).log() / torch.tensor((farthest - 1) / middle).log()
        wide = ((growth * (middle - 1)).ceil() + middle) * distance.sign()
        distance = distance.where(distance.abs() <= middle, wide.long())
    reach = min(num_buckets or farthest, length)
    return (distance + reach).clamp(0, 2 * reach - 1)
