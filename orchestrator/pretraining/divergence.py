"""Divergence: a training step whose loss or gradient is no number, or whose loss is far above that of guessing.

`StepWatch` finds such a step; `Divergences` records it with the run. Whether the run then stops, or goes back to its
last checkpoint and passes the step's batch over, is the spec's `on_divergence`. Steps after the first bad one are
undone. The batch that is passed over does not depend on how often workers look: going back and training again up to
that batch ends at the same bits, wherever the checkpoint was.
"""

import math
from typing import Any

import torch
from torch import Tensor

from orchestrator.errors import RunFailedError
from orchestrator.pretraining.batch_trace import global_batch_digest
from orchestrator.pretraining.collectives import Worker, all_reduce_sum
from orchestrator.pretraining.job import PretrainJob
from orchestrator.pretraining.step import DIVERGENCE_REMEDY
from orchestrator.specs import PretrainSpec
from orchestrator.storage import exists, join, read_json, write_json

_RECORD_FILE = "divergences.json"
_LOSS_OVER_GUESSING = 10.0


class DivergedStepError(RunFailedError):
    """A step that diverged.

    Args:
        step: counts from 1, as the steps of metrics do.
        loss: mean over the batch of all workers.
        grad_norm: norm of the gradient before it was clipped.
    """

    def __init__(self, step: int, loss: float, grad_norm: float) -> None:
        super().__init__(step, loss, grad_norm)  # so that it survives pickling
        self.step, self.loss, self.grad_norm = step, loss, grad_norm

    def __str__(self) -> str:
        return f"step {self.step} diverged: its loss is {self.loss:g} and its gradient's norm {self.grad_norm:g}"


def max_loss(spec: PretrainSpec, vocab_size: int) -> float:
    """Return the loss above which a step has diverged: ten times that of guessing tokens where the spec has none."""
    return spec.max_loss or _LOSS_OVER_GUESSING * math.log(vocab_size)


class StepWatch:
    """Measurements of the steps since the last look, kept on the device: only a look waits for it.

    Args:
        num_objectives: number of objectives in the totals of a step.
        max_loss: loss above which a step has diverged.
    """

    def __init__(self, worker: Worker, num_objectives: int, max_loss: float) -> None:
        self._worker, self._num_objectives, self._max_loss = worker, num_objectives, max_loss
        self._steps: list[tuple[int, Tensor, Tensor]] = []

    def add(self, step: int, totals: Tensor, norm: Tensor) -> None:
        """Remember a step: this worker's totals, and the norm of the gradient of all workers."""
        self._steps.append((step, totals, norm))

    def look(self) -> None:
        """Look at the steps since the last time, on all workers at once. Raises: DivergedStepError for the first."""
        if not self._steps:
            return
        steps, totals, norms = zip(*self._steps, strict=True)
        self._steps.clear()
        summed = torch.stack(totals)
        all_reduce_sum(summed, self._worker)
        by_objective = summed[:, :-1].reshape(len(steps), self._num_objectives, 3)
        losses = (by_objective[:, :, 0] / by_objective[:, :, 2]).sum(1).tolist()
        for step, loss, norm in zip(steps, losses, torch.stack(norms).tolist(), strict=True):
            if not (loss <= self._max_loss and math.isfinite(norm)):  # NaN compares as false
                raise DivergedStepError(step, loss, norm)


class Divergences:
    """The steps of a run that diverged: those whose batches are passed over, and a JSON file in the run's folder."""

    def __init__(self, job: PretrainJob, worker: Worker) -> None:
        self._job, self._worker = job, worker
        self.passed_over: set[int] = set()
        """Steps, counted from 1, that change nothing; part of every checkpoint."""

    def stop_or_pass_over(self, diverged: DivergedStepError) -> str:
        """Record a step that diverged, and pass its batch over from now on; all workers come to the same end.

        Returns what to tell a person.

        Raises: RunFailedError where the spec says that the run stops.
        """
        spec, num_before = self._job.spec, len(self.passed_over)
        may_pass_over = spec.on_divergence == "rollback"
        stops = not may_pass_over or num_before >= spec.execution.max_rollbacks
        text = self._record(diverged, "stopped" if stops else "passed over")
        if stops:
            if may_pass_over:
                text += f", and {num_before} batches were passed over before it, which is execution.max_rollbacks"
            hint = "" if may_pass_over else "; on_divergence: rollback would pass such a batch over"
            raise RunFailedError(f"{text}; {DIVERGENCE_REMEDY}{hint}") from None
        self.passed_over.add(diverged.step)
        return f"{text}; training goes back to its last checkpoint and passes this batch over"

    def _record(self, diverged: DivergedStepError, action: str) -> str:
        """Write down a step and the digest of its batch. Returns a description, with the path."""
        digest = global_batch_digest(self._job.stream, diverged.step - 1)
        path = join(self._job.run_folder, _RECORD_FILE)
        if self._worker.rank == 0:
            entry = {
                "step": diverged.step,
                "loss": _json_number(diverged.loss),
                "grad_norm": _json_number(diverged.grad_norm),
                "batch_sha256": digest,
                "action": action,
            }
            known: list[dict[str, Any]] = read_json(path) if exists(path) else []
            # An attempt that comes by a step again replaces what the one before it wrote.
            write_json(path, [*(other for other in known if other["step"] != diverged.step), entry])
        # The others wait for the file: what they raise next may end the writer.
        all_reduce_sum(torch.zeros((), device=self._worker.device), self._worker)
        return f"{diverged} (batch {digest[:12]}, kept in {path})"


def _json_number(value: float) -> float | str:
    """Return a number as JSON can hold it: NaN and infinity as text."""
    return value if math.isfinite(value) else str(value)
