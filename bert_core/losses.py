"""Losses of the heads.

Shapes: B sequences, C classes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

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
