"""Divergence: a training step whose loss or gradient is no number, or whose loss is far above that of guessing.

The meter finds such a step; `Divergences` records it with the run. Whether the run then stops, or goes back to its
last checkpoint and passes the step's batch over, is the spec's `on_divergence`. Steps after the first bad one are
undone. The batch that is passed over does not depend on how often workers look: going back and training again up to
that batch ends at the same bits, wherever the checkpoint was.
"""

import math
from typing import Any

import torch

from bert_core.objectives import TOKEN_OBJECTIVES
from orchestrator.base.errors import RunFailedError
from orchestrator.pretraining.batch_trace import global_batch_digest
from orchestrator.pretraining.collectives import Worker, all_reduce_sum
from orchestrator.pretraining.job import PretrainJob
from orchestrator.pretraining.meter import DivergedStepError
from orchestrator.pretraining.step import DIVERGENCE_REMEDY
from orchestrator.specs import PretrainSpec
from orchestrator.storage import exists, join, read_json, write_json

_RECORD_FILE = "divergences.json"
_LOSS_OVER_GUESSING = 10.0


def max_loss(spec: PretrainSpec, vocab_size: int) -> float:
    """Return the loss above which a step has diverged: ten times that of guessing tokens where the spec has none."""
    return spec.max_loss or _LOSS_OVER_GUESSING * TOKEN_OBJECTIVES[spec.token_objective].guessing_loss(vocab_size)


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
            numbers = {"loss": diverged.loss, "grad_norm": diverged.grad_norm}
            entry = {
                "step": diverged.step,
                # JSON has neither NaN nor infinity.
                **{name: value if math.isfinite(value) else str(value) for name, value in numbers.items()},
                "batch_sha256": digest,
                "action": action,
            }
            known: list[dict[str, Any]] = read_json(path) if exists(path) else []
            # An attempt that comes by a step again replaces what the one before it wrote.
            write_json(path, [*(other for other in known if other["step"] != diverged.step), entry])
        # The others wait for the file: what they raise next may end the writer.
        all_reduce_sum(torch.zeros((), device=self._worker.device), self._worker)
        return f"{diverged} (batch {digest[:12]}, kept in {path})"
