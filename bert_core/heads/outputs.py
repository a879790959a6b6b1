"""Outputs of the heads' padded interfaces.

Shapes: B sequences, S length of a padded row, C classes, V vocabulary.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class PretrainingOutput:
    """Output of BertForPreTraining: the mean losses added up, and logits where they were asked for."""

    loss: Tensor | None
    """Sum of the objectives' mean losses; None without labels."""
    prediction_logits: Tensor | None
    """Logits over the vocabulary, (B, S, V), zero at padding; None where they were not asked for."""
    seq_relationship_logits: Tensor | None
    """Logits of the pair of segments, (B, 2); None where the family has no such head."""


@dataclass(frozen=True)
class ClassificationOutput:
    """Output of a classifier of sequences, choices or tokens."""

    loss: Tensor | None
    """Mean loss; None without labels."""
    logits: Tensor
    """Logits of the classes: (B, C) for sequences; (B, S, C) for tokens, zero at padding."""


@dataclass(frozen=True)
class QuestionAnsweringOutput:
    """Output of BertForQuestionAnswering."""

    loss: Tensor | None
    """Mean loss; None without positions."""
    start_logits: Tensor
    """Logits of an answer's first token, (B, S)."""
    end_logits: Tensor
    """Logits of an answer's last token, (B, S)."""
