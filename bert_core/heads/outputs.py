"""What the padded interfaces of the heads give back.

Shapes: B sequences, S slots of a padded row, C classes, V vocabulary.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class PretrainingOutput:
    """Mean losses added up, and logits where they were asked for."""

    loss: Tensor | None
    prediction_logits: Tensor | None
    """(B, S, V), zero at padding"""
    seq_relationship_logits: Tensor | None
    """(B, 2); None where the family has no such head"""


@dataclass(frozen=True)
class ClassificationOutput:
    """Mean loss where labels were given, and the logits."""

    loss: Tensor | None
    logits: Tensor
    """(B, C) for sequences; (B, S, C) for tokens, zero at padding"""


@dataclass(frozen=True)
class QuestionAnsweringOutput:
    """Mean loss where positions were given, and the logits of an answer's first and last token."""

    loss: Tensor | None
    start_logits: Tensor
    """(B, S)"""
    end_logits: Tensor
    """(B, S)"""
