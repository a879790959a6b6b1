"""From sums over batches to the numbers people read."""

import math
import time

import torch
from torch import Tensor

from orchestrator.pretraining.job import Worker
from orchestrator.pretraining.step import SUM_NAMES, all_reduce_sum

SENTENCE_METRICS = {"next_sentence": "nsp", "sentence_order": "sop"}
"""What the metrics of a sentence objective are called: `nsp_loss`, `sop_accuracy`."""


def named_metrics(totals: Tensor, sentence_objective: str) -> dict[str, float]:
    """Means and accuracies of global sums (8,): `mlm_loss`, `mlm_accuracy`, `perplexity`, and those of the sentence
    objective and of the span-boundary objective (`sbo_loss`) where there are such."""
    sums = dict(zip(SUM_NAMES, totals.tolist(), strict=True))
    mlm_loss = sums["mlm_loss"] / sums["num_predictions"]
    metrics = {
        "mlm_loss": mlm_loss,
        "mlm_accuracy": sums["mlm_correct"] / sums["num_predictions"],
        "perplexity": math.exp(min(mlm_loss, 700.0)),
        "loss": mlm_loss,
    }
    if sums["num_examples"]:
        name, sentence_loss = SENTENCE_METRICS[sentence_objective], sums["nsp_loss"] / sums["num_examples"]
        metrics[f"{name}_loss"] = sentence_loss
        metrics[f"{name}_accuracy"] = sums["nsp_correct"] / sums["num_examples"]
        metrics["loss"] += sentence_loss
    if sums["sbo_loss"]:
        metrics["sbo_loss"] = sums["sbo_loss"] / sums["num_predictions"]
        metrics["loss"] += metrics["sbo_loss"]
    return metrics


class Meter:
    """Sums since the last reading, kept on the device: reading is the only point that waits for it."""

    def __init__(self, worker: Worker, sentence_objective: str) -> None:
        self._worker, self._sentence_objective = worker, sentence_objective
        self._totals = torch.zeros(len(SUM_NAMES), device=worker.device)
        self._norm = torch.zeros((), device=worker.device)
        self._seconds = 0.0
        self._started_at = time.perf_counter()

    def add(self, totals: Tensor, norm: Tensor) -> None:
        """Count one step."""
        self._totals += totals
        self._norm = norm

    def pause(self) -> None:
        """Evaluations and checkpoints are not training time: stop the clock."""
        self._seconds += time.perf_counter() - self._started_at

    def resume(self) -> None:
        """Start the clock again."""
        self._started_at = time.perf_counter()

    def read(self) -> dict[str, float]:
        """Metrics of all workers since the last reading, with `tokens_per_s` and `grad_norm`; starts anew."""
        all_reduce_sum(self._totals, self._worker)
        values = named_metrics(self._totals, self._sentence_objective)
        self.pause()
        values["tokens_per_s"] = float(self._totals[-1]) / max(self._seconds, 1e-9)
        values["grad_norm"] = float(self._norm)
        self._totals.zero_()
        self._seconds = 0.0
        self.resume()
        return values
