"""What a student is trained on: the teacher's outputs, the labels and the teacher's last hidden states, by weight.

Shapes: B examples, W windows, T tokens, C classes, H hidden.
"""

from tempfile import TemporaryFile

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bert_core.distillation import (
    hidden_cosine_loss,
    last_hidden_states,
    soft_span_loss,
    soft_target_loss,
    vector_loss,
)
from orchestrator.finetuning.heads import Batch, HeadModel, compute_batch_logits, loss_of_logits, make_batch
from orchestrator.finetuning.logits import compute_logits
from orchestrator.specs.distill import ObjectiveSpec
from orchestrator.specs.network import Precision
from orchestrator.specs.task import Head
from orchestrator.tasks import Features


class DistillationLoss:
    """The loss of a batch of a training split, called as `fine_tune` calls a task's own.

    A teacher has no dropout, so what it says about a window never changes: its logits, or its vectors, are computed
    here, once, for the whole split, and kept in a file that goes with this object. Its hidden states would be H numbers
    for each token; where they count, they are computed again at each step.

    Args:
        num_labeled: the examples that have labels, which come first; all when left out. Others count in every part
            but the labels': each example of a batch has the same weight, whatever it has to say.
    """

    def __init__(
        self,
        teacher: HeadModel,
        features: Features,
        objective: ObjectiveSpec,
        precision: Precision,
        num_labeled: int | None = None,
    ) -> None:
        self._teacher, self._features, self._objective = teacher.eval(), features, objective
        self._logits: Tensor | None = None
        if objective.soft_targets:
            self._logits = torch.from_numpy(compute_logits(teacher, features, precision, allocate=_in_a_file))
        self._num_labeled = features.num_examples if num_labeled is None else num_labeled
        self._is_word = np.zeros(len(features.input_ids), bool)
        self._is_word[features.word_starts] = True

    def __call__(self, head: Head, model: HeadModel, batch: Batch) -> Tensor:
        objective = self._objective
        with last_hidden_states(model.bert) as seen:
            logits = compute_batch_logits(model, batch)  # (W, C), (W,) or (T, C)
        loss = logits.new_zeros(())
        if self._logits is not None:
            by_token = head in ("ner", "qa")
            rows = self._features.token_index(batch.windows) if by_token else batch.windows
            targets = self._logits[torch.from_numpy(rows)].to(logits.device).view_as(logits)
            if head == "ner":
                is_word = torch.from_numpy(self._is_word[rows]).to(logits.device)  # (T,)
                soft = soft_target_loss(logits[is_word], targets[is_word], objective.temperature)
            else:
                soft = soft_loss(head, logits, targets, batch, objective.temperature)
            loss = loss + objective.soft_targets * soft
        if objective.labels:
            loss = loss + objective.labels * self._label_loss(head, model, logits, batch)
        if objective.hidden_cosine:
            with torch.no_grad():
                states = self._teacher.bert.encode(batch.seqs)  # (T, H)
            loss = loss + objective.hidden_cosine * hidden_cosine_loss(seen[-1], states)
        return loss

    def _label_loss(self, head: Head, model: HeadModel, logits: Tensor, batch: Batch) -> Tensor:
        """The labels' loss of the windows that have labels, times their share of the batch."""
        features = self._features
        has_label = features.example_index[batch.windows] < self._num_labeled  # (W,)
        if has_label.all():
            return loss_of_logits(head, model, logits, batch)
        if not has_label.any():
            return logits.new_zeros(())
        rows = np.repeat(has_label, features.lengths[batch.windows]) if head in ("ner", "qa") else has_label
        labeled = make_batch(features, batch.windows[has_label], logits.device)
        loss = loss_of_logits(head, model, logits[torch.from_numpy(rows).to(logits.device)], labeled)
        return float(has_label.mean()) * loss


def _in_a_file(shape: tuple[int, int], dtype: type[np.float32]) -> NDArray[np.float32]:
    """An array in a nameless file, of which memory holds what it has room for."""
    with TemporaryFile() as file:
        return np.memmap(file, dtype, "w+", shape=shape).view(np.ndarray)


def soft_loss(head: Head, logits: Tensor, targets: Tensor, batch: Batch, temperature: float) -> Tensor:
    """How far a student's logits are from its teacher's: mean over examples, labels, texts or answers' two ends."""
    if head == "embedding":
        return vector_loss(logits, targets)
    if head == "regression":
        return F.mse_loss(logits, targets)
    if head == "qa":
        return soft_span_loss(logits, targets, batch.seqs, temperature)
    if head == "multi_label":  # each label is a choice between it and its absence, whose logit is 0
        logits, targets = (F.pad(values.reshape(-1, 1), (0, 1)) for values in (logits, targets))  # (W·C, 2)
    if head == "multiple_choice":
        logits, targets = (values.view(len(batch.targets), -1) for values in (logits, targets))  # (B, C)
    return soft_target_loss(logits, targets, temperature)
