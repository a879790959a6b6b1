"""Meter: sums over batches become the numbers that people read.

Totals are one vector of float32, kept on the device: for each objective of the run its loss, right predictions and
predictions, then the number of tokens. So they are added up over workers in one message, and nothing waits for the
device before they are read.
"""

import time
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from bert_core.heads.pretraining import LossSums
from bert_core.objectives import OBJECTIVES
from orchestrator.pretraining.collectives import Worker, all_reduce_sum


def empty_totals(objectives: Sequence[str], device: torch.device) -> Tensor:
    """Make totals that count nothing yet, all zero."""
    return torch.zeros(3 * len(objectives) + 1, device=device)


def add_sums(totals: Tensor, sums: Mapping[str, LossSums], num_tokens: int) -> None:
    """Add the sums of a batch to totals, in place. `sums` has the objectives of the totals, in any order."""
    ordered = [sums[name] for name in OBJECTIVES if name in sums]
    values = [value.detach() for each in ordered for value in (each.loss, each.num_correct, each.num_predictions)]
    totals += torch.stack([*values, torch.full_like(values[0], num_tokens)])


def named_metrics(totals: Tensor, objectives: Sequence[str]) -> dict[str, float]:
    """Measurements of all objectives from global totals, and `loss`, the sum of their mean losses."""
    values = totals.tolist()
    metrics: dict[str, float] = {}
    loss = 0.0
    for number, name in enumerate(objectives):
        objective = OBJECTIVES[name]
        metrics |= objective.metrics(*values[3 * number : 3 * number + 3])
        loss += metrics[objective.loss_name]
    return {**metrics, "loss": loss}


class Meter:
    """Totals and training time since the last reading; reading is the only point that waits for the device."""

    def __init__(self, worker: Worker, objectives: Sequence[str]) -> None:
        self._worker, self._objectives = worker, objectives
        self._totals = empty_totals(objectives, worker.device)
        self._norm = torch.zeros((), device=worker.device)
        self._seconds = 0.0
        self._started_at = time.perf_counter()
        self.num_steps = 0
        """Number of steps since the last reading."""

    def add(self, totals: Tensor, norm: Tensor) -> None:
        """Count one step."""
        self.num_steps += 1
        self._totals += totals
        self._norm = norm

    def pause(self) -> None:
        """Stop the clock: evaluations and checkpoints are not training time."""
        self._seconds += time.perf_counter() - self._started_at

    def resume(self) -> None:
        """Start the clock again."""
        self._started_at = time.perf_counter()

    def read(self) -> dict[str, float]:
        """Measurements of all workers since the last reading, with `tokens_per_s` and `grad_norm`; then start anew."""
        all_reduce_sum(self._totals, self._worker)
        values = named_metrics(self._totals, self._objectives)
        self.pause()
        values["tokens_per_s"] = float(self._totals[-1]) / max(self._seconds, 1e-9)
        values["grad_norm"] = float(self._norm)
        self._totals.zero_()
        self._seconds = 0.0
        self.num_steps = 0
        self.resume()
        return values
