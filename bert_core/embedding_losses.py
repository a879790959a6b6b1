"""Losses of sentence embeddings, computed in float32, with autocast or without.

Shapes: B pairs, N candidates, H hidden, C classes.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.errors import DataError


def in_batch_negatives_loss(
    queries: Tensor,
    candidates: Tensor,
    temperature: float = 0.05,
    is_positive: Tensor | None = None,
) -> Tensor:
    """Mean cross entropy of finding each query's own candidate among all: (B, H), (N, H) → scalar.

    Candidate i belongs to query i; those from B on, if any, are further negatives, wrong for every query. A query's
    scores are cosines over `temperature` (Henderson et al. 2017, section 4.4, there a dot product; the scale of 20 of
    sentence-transformers' "multiple negatives ranking" is a temperature of 0.05).

    Args:
        is_positive: (B, N) bool, which candidates are right for a query beside its own, as `find_positives` tells. They
            are not among its negatives: without them, text that a batch holds twice would be pushed away from itself.

    Raises: DataError when there are fewer candidates than queries.
    """
    if candidates.shape[0] < queries.shape[0]:
        raise DataError(f"{queries.shape[0]} queries for {candidates.shape[0]} candidates; each query needs its own")
    with torch.autocast(queries.device.type, enabled=False):
        cosines = F.normalize(queries.float(), dim=-1) @ F.normalize(candidates.float(), dim=-1).T
    scores = cosines / temperature  # (B, N)
    if is_positive is not None:
        scores = scores.masked_fill(is_positive.clone().fill_diagonal_(False), -math.inf)
    own = torch.arange(queries.shape[0], device=scores.device)  # (B,)
    return F.cross_entropy(scores, own)


def find_positives(queries: Tensor, candidates: Tensor) -> Tensor:
    """Find the candidates that are right for each query: (B,), (N,) → (B, N) bool.

    Texts are given as numbers, equal ones for equal texts. Right for a query are its own candidate's text, the text of
    candidates of queries that are equal to it, and the query's own text.

    >>> find_positives(torch.tensor([7, 8, 7]), torch.tensor([1, 2, 3, 1, 8])).int().tolist()
    [[1, 0, 1, 1, 0], [0, 1, 0, 0, 1], [1, 0, 1, 1, 0]]
    """
    same_query = queries[:, None] == queries  # (B, B)
    same_candidate = candidates[: len(queries), None] == candidates  # (B, N)
    is_partner = (same_query.float() @ same_candidate.float()) > 0
    return is_partner | (queries[:, None] == candidates)


def cosine_regression_loss(first: Tensor, second: Tensor, scores: Tensor) -> Tensor:
    """Mean squared difference of a pair's cosine and its score: (B, H), (B, H), (B,) → scalar.

    A score of 1 says that the two mean the same, 0 that they share nothing; other scales are mapped to this one
    before (Reimers and Gurevych 2019, section 3).
    """
    return F.mse_loss(F.cosine_similarity(first.float(), second.float(), dim=-1), scores.float())


class PairClassifier(nn.Module):
    """Classifier of pairs of vectors, softmax(W (u, v, |u − v|)), for training only (Reimers and Gurevych 2019, 3)."""

    def __init__(self, hidden_size: int, num_classes: int, seed: int = 0, initializer_range: float = 0.02) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(num_classes, 3 * hidden_size, generator=generator) * initializer_range)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Logits of the pairs' classes: (B, H), (B, H) → (B, C)."""
        u, v = first.float(), second.float()
        with torch.autocast(u.device.type, enabled=False):
            return F.linear(torch.cat([u, v, (u - v).abs()], dim=-1), self.weight.float())

    def loss(self, first: Tensor, second: Tensor, labels: Tensor) -> Tensor:
        """Mean cross entropy of the pairs' classes: (B, H), (B, H), (B,) → scalar."""
        return F.cross_entropy(self(first, second), labels.long())
