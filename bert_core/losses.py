"""Losses of the heads; those of sentence embeddings are computed in float32, with autocast or without.

Shapes: B sequences or pairs, C classes, N rows or candidates, H hidden.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bert_core.constants import IGNORE_INDEX
from bert_core.errors import DataError


def check_labels(labels: Tensor, shape: torch.Size, num_classes: int) -> None:
    """Check that labels have a shape, and that each is a class or -100. Raises: DataError."""
    if labels.shape != shape:
        raise DataError(f"labels have the shape {tuple(labels.shape)}; they must have {tuple(shape)}")
    real = labels[labels != IGNORE_INDEX]
    if real.numel() and not 0 <= int(real.min()) <= int(real.max()) < num_classes:
        wrong = int(real.min()) if int(real.min()) < 0 else int(real.max())
        raise DataError(
            f"labels hold {wrong}; the model's classes are 0 to {num_classes - 1}, and {IGNORE_INDEX} is left out"
        )


def cross_entropy_sums(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sum the cross entropy in float32, the right guesses and the labels: (B, C), (B,) → three scalars.

    A label of -100 counts nowhere.
    """
    loss = F.cross_entropy(logits.float(), labels, ignore_index=IGNORE_INDEX, reduction="sum")
    correct = (logits.argmax(dim=-1) == labels).sum(dtype=torch.float32)
    return loss, correct, (labels != IGNORE_INDEX).sum(dtype=torch.float32)


def sequence_classification_loss(logits: Tensor, labels: Tensor, problem_type: str | None) -> Tensor:
    """Mean loss of (B, C) logits. Without a problem type the labels decide which loss it is, as in Hugging Face.

    Raises: DataError when the labels do not have a shape that the problem type needs.
    """
    num_labels = logits.shape[-1]
    if problem_type is None:
        whole = not labels.is_floating_point()
        several = "single_label_classification" if whole else "multi_label_classification"
        problem_type = "regression" if num_labels == 1 else several
    if problem_type == "single_label_classification":
        check_labels(labels.view(-1), logits.shape[:1], num_labels)
        return F.cross_entropy(logits.float(), labels.long().view(-1), ignore_index=IGNORE_INDEX)
    if labels.numel() != logits.numel():
        raise DataError(f"labels have the shape {tuple(labels.shape)}; {problem_type} needs {tuple(logits.shape)}")
    labels = labels.float().view_as(logits)
    if problem_type == "regression":
        return F.mse_loss(logits.float(), labels)
    return F.binary_cross_entropy_with_logits(logits.float(), labels)


@dataclass(frozen=True)
class ClassLoss:
    """Loss of labels in training: cross entropy, with weights, smoothed labels, or a focus on what is still wrong."""

    weights: Tensor | None = None
    """(C,) weight of each class; of labels that do not exclude one another, of their presence."""
    label_smoothing: float = 0.0
    focal_gamma: float | None = None
    """Exponent of the focal loss; None for cross entropy."""
    host_weights: NDArray[np.float32] | None = None
    """The weights on the host."""

    def of_classes(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean over rows by their labels' weights, of which -100 has none: (N, C), (N,) → scalar."""
        if self.focal_gamma is None:
            smoothing = self.label_smoothing
            return F.cross_entropy(logits, labels, self.weights, ignore_index=IGNORE_INDEX, label_smoothing=smoothing)
        rows = F.cross_entropy(logits, labels, ignore_index=IGNORE_INDEX, reduction="none")  # (N,)
        weights = (labels != IGNORE_INDEX).float()  # (N,)
        if self.weights is not None:
            weights = weights * self.weights[labels.clamp(min=0)]
        return (weights * self._focused(rows)).sum() / weights.sum()

    def of_label_sets(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Mean over rows and labels: (N, C), (N, C) of 0 or 1 → scalar."""
        if self.focal_gamma is None:
            if self.label_smoothing:
                targets = targets.lerp(torch.full_like(targets, 0.5), self.label_smoothing)
            return F.binary_cross_entropy_with_logits(logits, targets, pos_weight=self.weights)
        losses = self._focused(F.binary_cross_entropy_with_logits(logits, targets, reduction="none"))  # (N, C)
        return (losses if self.weights is None else losses * self.weights.where(targets > 0, 1.0)).mean()

    def total_weight(self, labels: NDArray[np.generic]) -> float:
        """Sum of the weights of class numbers, of which -100 has none: what `of_classes` divides by."""
        known = labels[labels != IGNORE_INDEX]
        return float(len(known) if self.host_weights is None else self.host_weights[known].sum(dtype=np.float64))

    def _focused(self, losses: Tensor) -> Tensor:
        """Cross entropies -log p as focal losses -(1 - p)^γ log p (Lin et al. 2017, equation 4)."""
        assert self.focal_gamma is not None
        # Where nothing is wrong, a power below 1 has no finite slope.
        wrong = (-torch.expm1(-losses)).clamp(min=torch.finfo(losses.dtype).tiny)
        return losses * wrong**self.focal_gamma


def span_loss(start_logits: Tensor, end_logits: Tensor, start_positions: Tensor, end_positions: Tensor) -> Tensor:
    """Mean of the start's and the end's cross entropy over the places of a row: (B, S), (B, S), (B,), (B,) → scalar.

    A position outside the row is left out (Devlin et al. 2018, section 4.2; clamped as in Hugging Face).
    """
    width = start_logits.shape[1]
    start, end = (
        F.cross_entropy(logits.float(), positions.view(-1).clamp(0, width), ignore_index=width)
        for logits, positions in ((start_logits, start_positions), (end_logits, end_positions))
    )
    return (start + end) / 2


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
