"""Disentangled attention (He et al. 2021, DeBERTa, section 3.1): scores by content, and by distance.

The score of query i and key j is (q_i·k_j + q_i·K_δ + k_j·Q_δ) / √(D · number of its terms), equation 4. K and Q are a
layer's projections of vectors of distances, which all layers share. δ is the row of i − j in both terms, as in the
authors' code. Far distances share rows (He et al. 2023, DeBERTaV3, and the v2 models).

Shapes: T tokens, S places of a row, n rows, N heads, D head size, H hidden, R rows of the table of distances.
"""

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
