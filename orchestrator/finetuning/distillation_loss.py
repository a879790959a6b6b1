"""Loss of a student: on the teacher's outputs, on the labels and on the teacher's last hidden states, by weight.

Shapes: B examples, W windows, T tokens, C classes, H hidden.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bert_core.constants import AskedPrecision
from bert_core.device_copies import copy_together
from bert_core.distillation import hidden_cosine_loss
from orchestrator.finetuning.batches import make_batch, make_part
from orchestrator.finetuning.heads import HEADS, Batch, HeadModel
from orchestrator.finetuning.logits import compute_logits
from orchestrator.specs.distill import LossWeightsSpec
from orchestrator.tasks.features import Features


class DistillationLoss:
    """The loss of a batch of a training split, called as `fine_tune` calls a task's own.

    A teacher has no dropout, so what it says about a window never changes: its logits, or its vectors, are computed
    here, once, for the whole split. Its hidden states would be H numbers for each token; where they count, they are
    computed again at each step.

    Args:
        num_labeled: the examples that have labels, which come first. Others count in every part but the labels': each
            example of a batch has the same weight, whatever it has to say.
    """

    def __init__(
        self,
        teacher: HeadModel,
        features: Features[Any],
        objective: LossWeightsSpec,
        precision: AskedPrecision,
        num_labeled: int,
    ) -> None:
        self._teacher, self._features, self._objective = teacher.eval(), features, objective
        self._head = HEADS[features.head]
        self._logits: Tensor | None = None
        if objective.soft_targets_weight:
            self._logits = torch.from_numpy(compute_logits(teacher, features, precision))
        self._num_labeled = num_labeled

    def __call__(self, model: HeadModel, batch: Batch) -> Tensor:
        objective, head, features = self._objective, self._head, self._features
        logits, hidden = self._outputs(model, batch)  # (W, C), (W,) or (T, C); (T, H)
        loss = logits.new_zeros(()) if batch.part is None else 0.0 * logits.sum()  # a part may have nothing to say
        if self._logits is not None:
            rows = features.token_index(batch.windows) if head.gives_token_outputs else batch.windows
            of_rows = {"targets": self._logits[torch.from_numpy(rows)]}
            targets = copy_together(of_rows, logits.device)["targets"].view_as(logits)
            share = _share(batch, partial(head.num_imitated, features))
            if share > 0.0:
                soft = head.soft_loss(logits, targets, batch, objective.temperature)
                loss = loss + share * objective.soft_targets_weight * soft
        if objective.labels_weight:
            loss = loss + objective.labels_weight * self._label_loss(model, logits, batch)
        if objective.hidden_cosine_weight:
            with torch.no_grad():
                states = self._teacher.bert.encode(batch.seqs)  # (T, H)
            share = _share(batch, lambda windows: int(features.lengths[windows].sum()))
            loss = loss + share * objective.hidden_cosine_weight * hidden_cosine_loss(hidden, states)
        return loss

    def logits(self, model: HeadModel, batch: Batch) -> Tensor:
        """Logits with the dropout that the loss draws."""
        return self._outputs(model, batch)[0]

    def _outputs(self, model: HeadModel, batch: Batch) -> tuple[Tensor, Tensor]:
        """Logits and last hidden states (T, H) of one pass, whose last layer runs for all tokens."""
        outputs = list(model.bert.layer_outputs(batch.seqs))
        states = model.bert.layer_pooling.select(outputs)
        return self._head.logits(model, replace(batch, states=states)), outputs[-1]

    def _label_loss(self, model: HeadModel, logits: Tensor, batch: Batch) -> Tensor:
        """The labels' loss of the windows that have labels, times their share of the batch; of a part, its share."""
        features, part = self._features, batch.part
        has_label = self._has_label(batch.windows)  # (W,)
        in_whole = has_label if part is None else self._has_label(part.whole)
        if in_whole.all():
            return self._head.part_loss(model, logits, batch)
        if not has_label.any():
            return logits.new_zeros(())
        by_token = self._head.gives_token_outputs
        rows = np.repeat(has_label, features.lengths[batch.windows]) if by_token else has_label
        labeled = make_batch(features, batch.windows[has_label], logits.device)
        if part is not None:
            others = None if part.logits is None else _select_rows(part.logits, in_whole)
            own_part = make_part(model, features, labeled.windows, part.whole[in_whole], others)
            labeled = replace(labeled, part=own_part)
        loss = self._head.part_loss(model, _select_rows(logits, rows), labeled)
        return float(in_whole.mean()) * loss

    def _has_label(self, windows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the examples of some windows have labels: (W,)."""
        found: NDArray[np.bool_] = self._features.example_index[windows] < self._num_labeled
        return found


def _select_rows(values: Tensor, is_wanted: NDArray[np.bool_]) -> Tensor:
    """Rows that are wanted, by numbers from the host: it would wait for a GPU that counts them in a mask of its own."""
    places = {"rows": torch.from_numpy(np.flatnonzero(is_wanted))}
    return values.index_select(0, copy_together(places, values.device)["rows"])


def _share(batch: Batch, count: Callable[[NDArray[np.int64]], int]) -> float:
    """A part's share of what is counted in the windows of all parts; 1 for a whole batch."""
    if batch.part is None or not (in_whole := count(batch.part.whole)):
        return 1.0
    return count(batch.windows) / in_whole
