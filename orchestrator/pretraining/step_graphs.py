"""CUDA graphs of a run's steps: forward and backward are captured once for each bucket of sizes, and replayed.

Everything else of a step stays as it is: counts and votes before, clipping and the optimizer after it. Gradients of
several workers leave after backward, and not during it. A worker's whole part of a batch goes through at a time; where
memory runs out, its smaller micro-batches are computed without graphs, which keep memory of their own.

A replay draws what single kernels draw on the same filled batch; filler changes that and the last bits. So checkpoints
carry the choice, and a run that is resumed goes on as it began.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from bert_core.cuda_graphs import Capture, ReplayedPasses, capture_on
from bert_core.examples.packing import PackedBatch, SizeBucket
from bert_core.micro_batches import is_out_of_memory
from orchestrator.errors import RunFailedError
from orchestrator.pretraining.device_batch import DeviceBatch, GlobalCounts, filled_micro_batch, label_loss
from orchestrator.pretraining.meter import add_sums, empty_totals

if TYPE_CHECKING:
    from orchestrator.pretraining.step import StepContext

Tell = Callable[[str], None]
_FIELD = "execution.cuda_graphs"
_KEY = "steps_are_graphs"


class StepGraphs:
    """Forward and backward of one worker's steps."""

    def __init__(self, context: "StepContext", capture: Capture) -> None:
        self._model, self._spec, self._objectives = context.model, context.spec, context.objectives
        self._passes = ReplayedPasses(context.model, context.worker.device, capture)

    @classmethod
    def chosen(
        cls, context: "StepContext", checkpoint: Mapping[str, Any] | None, tell: Tell, warn: Tell
    ) -> Self | None:
        """Make the graphs of a run; None where its steps are single kernels.

        Args:
            checkpoint: JSON of the checkpoint that the run goes on from; None where there is none.
            tell: told in a line what was chosen, where the spec does not decide it.
            warn: told where the run does not go on as it began.
        """
        began = None if checkpoint is None else bool(checkpoint.get(_KEY, False))
        reason = "they were so up to the checkpoint" if began is False else _reason_against(context)
        is_chosen = reason is None
        if context.spec.execution.cuda_graphs == "auto":
            tell("steps are CUDA graphs" if is_chosen else f"steps are single kernels: {reason}")
        if began and not is_chosen:
            warn(
                f"steps were CUDA graphs up to the checkpoint and are single kernels from here on ({reason}): last "
                "bits and dropout are others than in a run without this interruption"
            )
        return cls(context, capture_on(context.worker.device)) if is_chosen else None

    def find_bucket(self, batch: PackedBatch) -> SizeBucket:
        """Name the sizes that a batch is filled up to."""
        return SizeBucket.of(batch, self._model.config.max_seq_length)

    def run(self, batch: DeviceBatch, counts: GlobalCounts, seed: int) -> Tensor:
        """Compute the gradients of a worker's part of a step, which was filled up; returns its totals.

        Raises: RunFailedError where the device cannot capture the step.
        """
        bucket = batch.bucket
        assert bucket is not None, "a step with graphs needs a batch that was filled up"
        inputs = [batch.values, torch.stack([*counts.num_predictions.values(), counts.num_tokens])]
        try:
            totals = self._passes.run(bucket, inputs, partial(self._compute, bucket), seed)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            reason = str(error).strip().partition("\n")[0]
            raise RunFailedError(f"the step's CUDA graph failed ({reason}); set {_FIELD} to never") from error
        totals[-1].fill_(len(batch.host.input_ids))  # a graph cannot know the number of real tokens
        return totals

    def forget(self) -> None:
        """Give back the memory of what was captured, for parts of a batch, which are computed without graphs."""
        self._passes.clear()

    def _compute(self, bucket: SizeBucket, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Loss and totals of a filled batch, without its number of tokens."""
        values, numbers = inputs
        *num_predictions, num_tokens = numbers.unbind()
        counts = GlobalCounts(dict(zip(self._objectives, num_predictions, strict=True)), num_tokens)
        sums, loss = label_loss(self._model, filled_micro_batch(values, bucket), self._spec, counts)
        totals = empty_totals(self._objectives, values.device)
        add_sums(totals, sums, num_tokens=0)
        return loss, totals


def state(graphs: StepGraphs | None) -> dict[str, bool]:
    """The choice, under its name in a checkpoint."""
    return {_KEY: graphs is not None}


def _reason_against(context: "StepContext") -> str | None:
    """Name the reason why steps are no CUDA graphs; None where they are."""
    model, spec, device = context.model, context.spec, context.worker.device
    reasons = {
        f"{_FIELD} is never": spec.execution.cuda_graphs == "never",
        f"the worker is on the {device.type}": device.type != "cuda",
        "the loss is a teacher's too": context.loss is not label_loss,
        "the batch is cut into parts": spec.micro_batch_size is not None or spec.micro_batch_tokens is not None,
        "layers are computed again in backward": spec.execution.activation_checkpointing == "layers",
        "the model has linear biases (ALiBi), which the host makes in each step": (
            model.config.position_embedding_type == "alibi"
        ),
        "tokens are predicted left to right, those that fill a batch up too": spec.token_objective == "left_to_right",
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
