"""Distillation: a small student learns to answer as a large teacher does (Hinton et al. 2015; Sanh et al. 2019).

Shapes: B sequences, S length of a padded row, T tokens, P scored rows, H hidden, C classes, L layers.
"""

import re
from dataclasses import replace
from typing import TypeVar

import torch.nn.functional as F
from torch import Tensor

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.errors import ConfigError, DataError
from bert_core.packed_sequences import PackedSequences

_LAYER = re.compile(r"(?<=layers\.)\d+(?=\.)")
_LAYER_WEIGHTS = "layer_pooling.weights"
_NO_TOKEN = -1e9
"""Logit of a place without a token: its probability is 0, and the divergence is finite, as it is not with −∞."""

Model = TypeVar("Model", bound=PretrainedModel)


def soft_target_loss(student_logits: Tensor, teacher_logits: Tensor, temperature: float) -> Tensor:
    """Divergence T² · KL(teacher ‖ student) at temperature T, mean over rows: (P, C), (P, C) → scalar.

    T² keeps the gradients as large as those of labels, whatever the temperature (Hinton et al. 2015, section 2). The
    cross entropy there differs by the teacher's entropy, which has no gradient; this is 0 when both agree.
    """
    student, teacher = (
        F.log_softmax(logits.float() / temperature, dim=-1) for logits in (student_logits, teacher_logits)
    )
    return F.kl_div(student, teacher, reduction="batchmean", log_target=True) * temperature**2


def soft_span_loss(student_logits: Tensor, teacher_logits: Tensor, seqs: PackedSequences, temperature: float) -> Tensor:
    """`soft_target_loss` of an answer's first and last token, over each sequence's own tokens: (T, 2), (T, 2) → scalar.

    The two columns are the logits of the first and of the last token.
    """
    no_token = ~seqs.attention_mask[:, None, :]  # (B, 1, S)
    student, teacher = (
        seqs.unpack(logits.float()).transpose(1, 2).masked_fill(no_token, _NO_TOKEN)  # (B, 2, S)
        for logits in (student_logits, teacher_logits)
    )
    return soft_target_loss(student.flatten(0, 1), teacher.flatten(0, 1), temperature)


def hidden_cosine_loss(student_hidden: Tensor, teacher_hidden: Tensor) -> Tensor:
    """Mean over tokens of 1 − cosine of the two states: (T, H), (T, H) → scalar (Sanh et al. 2019, section 3).

    Raises: DataError when the states differ in width.
    """
    _check_widths("hidden states", student_hidden, teacher_hidden)
    return 1.0 - F.cosine_similarity(student_hidden.float(), teacher_hidden.float(), dim=-1).mean()


def vector_loss(student_vectors: Tensor, teacher_vectors: Tensor) -> Tensor:
    """Squared distance of the two vectors of a text, mean over texts: (B, H), (B, H) → scalar.

    Reimers and Gurevych 2020, section 2. Of vectors of length 1 it is 2 · (1 − cosine).
    Raises: DataError when the vectors differ in width.
    """
    _check_widths("vectors", student_vectors, teacher_vectors)
    return (student_vectors.float() - teacher_vectors.float()).square().sum(dim=-1).mean()


def _check_widths(what: str, student: Tensor, teacher: Tensor) -> None:
    if student.shape != teacher.shape:
        raise DataError(
            f"{what} have the shapes {tuple(student.shape)} and {tuple(teacher.shape)}; "
            "they are compared number by number, which needs a student of the teacher's hidden_size"
        )


def student_config(teacher: BertConfig, num_hidden_layers: int) -> BertConfig:
    """Make a student's configuration, the teacher's with fewer layers. Raises: ConfigError unless they are fewer."""
    if not 1 <= num_hidden_layers < teacher.num_hidden_layers:
        raise ConfigError(
            f"num_hidden_layers {num_hidden_layers} must be at least 1 and below the teacher's "
            f"{teacher.num_hidden_layers}, of which the student takes some"
        )
    groups = teacher.num_hidden_groups
    return replace(
        teacher,
        num_hidden_layers=num_hidden_layers,
        num_hidden_groups=None if groups is None else min(groups, num_hidden_layers),
    )


def student_of(
    teacher: Model, num_hidden_layers: int, dropout: float | None = None, attention_dropout: float | None = None
) -> Model:
    """Make a student that begins as its teacher with layers left out; embeddings and head are copies.

    Layer i of l is the teacher's layer ⌊i·L/l⌋: every second one from the first where l is half of L (Sanh et al.
    2019, section 3, "one layer out of two"). Where layers share weights, the same holds of the weights there are. A
    learned weighted sum of layers would be one of other layers, so that it starts anew.

    Args:
        dropout: dropout of the whole student; None keeps the teacher's.
        attention_dropout: dropout of its attention weights; as `dropout` says when None.

    Raises: ConfigError unless the student has fewer layers.
    """
    config = student_config(teacher.config, num_hidden_layers)
    student = type(teacher).from_config(config.with_dropout(dropout, attention_dropout))
    own, kept = (config.num_hidden_groups or config.num_hidden_layers for config in (teacher.config, student.config))
    weights, new = teacher.state_dict(), student.state_dict()
    origins = {name: _LAYER.sub(lambda match: str(int(match[0]) * own // kept), name) for name in new}
    student.load_state_dict(new | {name: weights[origins[name]] for name in new if not name.endswith(_LAYER_WEIGHTS)})
    return student
