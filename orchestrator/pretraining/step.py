"""One optimizer step over a global batch, on one or many workers.

The loss is the sum over the global batch divided by its global counts, so it does not depend on how the batch is cut
into workers and micro-batches. Dropout is seeded from (seed, step, rank, micro-batch): a step computes the same
whenever and wherever it runs. Where memory runs out, a step is computed again in smaller micro-batches, and that step's
dropout is drawn anew: with several workers, gradients that had left before then are sums under the first draw, the
others under the second. Such a step is no less sound, but another run with as much memory has other bits.

Nothing in a step waits for the device: sizes are read from the batch on the host, and sums stay on the device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
import torch.distributed
from torch import Tensor, nn
from torch.optim import Optimizer

from bert_core.counter_random import derive_key
from bert_core.examples.packing import PackedBatch
from bert_core.heads import BertForPreTraining
from bert_core.kernels.dropout import seed_dropout
from bert_core.learning_rates import learning_rate_factor
from bert_core.micro_batches import compute_in_parts
from bert_core.objectives import OBJECTIVES, active_objectives
from bert_core.optimization import build_optimizer, set_learning_rate
from orchestrator.pretraining.collectives import GradientBuckets, StopVote, Worker, all_reduce_sum
from orchestrator.pretraining.device_batch import DeviceBatch, GlobalCounts, StepLoss, label_loss
from orchestrator.pretraining.meter import add_sums, empty_totals
from orchestrator.pretraining.micro_batches import MicroBatches
from orchestrator.pretraining.step_graphs import StepGraphs
from orchestrator.specs import PretrainSpec


@dataclass(frozen=True)
class StepContext:
    """Values that stay the same over all steps."""

    model: BertForPreTraining
    optimizer: Optimizer
    spec: PretrainSpec
    worker: Worker
    objectives: tuple[str, ...]
    """Names of the objectives of the run."""
    loss: StepLoss
    micro_batches: MicroBatches
    gradients: GradientBuckets
    graphs: StepGraphs | None = None
    """Forward and backward as CUDA graphs, where the run has them; batches are filled up for them then."""

    @classmethod
    def begun(
        cls,
        spec: PretrainSpec,
        model: BertForPreTraining,
        worker: Worker,
        warn: Callable[[str], None],
        loss: StepLoss | None = None,
    ) -> Self:
        """Make ready what a spec's training of a model needs; the model is moved to the worker's device.

        Args:
            warn: told where micro-batches are made smaller.
            loss: loss of a micro-batch; that of the batch's own labels unless given.
        """
        model.to(worker.device)
        model.bert.residual_dtype = torch.bfloat16 if spec.residual_precision == "bf16" else None
        model.bert.recomputes_layers = spec.execution.activation_checkpointing == "layers"
        optimizer = build_optimizer(
            model,
            learning_rate=spec.learning_rate,
            weight_decay=spec.weight_decay,
            betas=spec.adam_betas,
            eps=spec.adam_epsilon,
        )
        objectives = active_objectives(spec.chosen_objectives, model.config)
        gradients = GradientBuckets(model.parameters(), worker, spec.gradient_precision)
        micro_batches = MicroBatches(worker, spec, warn)
        return cls(model, optimizer, spec, worker, objectives, loss or label_loss, micro_batches, gradients)

    def forget_gradients(self) -> None:
        """Drop what a step that ran out of memory left: gradients, and graphs, whose time is over."""
        self.optimizer.zero_grad(set_to_none=True)
        if self.graphs is not None:
            self.graphs.forget()

    def learning_rate(self, step: int) -> float:
        """Learning rate of the update that a step, counted from 0, makes."""
        spec = self.spec
        num_warmup = round(spec.warmup_ratio * spec.steps)
        return spec.learning_rate * learning_rate_factor(step, spec.steps, num_warmup, spec.learning_rate_schedule)


@dataclass(frozen=True)
class StepSums:
    """Numbers that a step leaves on the device."""

    totals: Tensor
    """This worker's totals, as `meter` has them."""
    gradient_norm: Tensor
    vote: StopVote
    """Whether a worker wanted to stop when the step began."""


def training_step(
    context: StepContext, step: int, batch: DeviceBatch, learning_rate: float, wants_to_stop: bool = False
) -> StepSums:
    """Train on a worker's part of a step. Raises: RunFailedError where memory runs out with a single example."""
    worker, spec = context.worker, context.spec
    counts, num_stopping = count_globally(batch.host, context.objectives, worker, wants_to_stop)
    vote = StopVote.sent(num_stopping)  # before the step's work, so that it arrives before that is done
    totals = compute_in_parts(
        context.micro_batches,
        batch.host,
        step + 1,
        lambda parts: _forward_and_backward(context, step, batch, parts, counts),
        forget=context.forget_gradients,
    )
    context.gradients.finish()
    parameters = [parameter for parameter in context.model.parameters() if parameter.grad is not None]
    norm = nn.utils.clip_grad_norm_(parameters, spec.max_grad_norm)
    set_learning_rate(context.optimizer, learning_rate)
    context.optimizer.step()
    context.optimizer.zero_grad(set_to_none=True)
    return StepSums(totals, norm, vote)


def _forward_and_backward(
    context: StepContext, step: int, batch: DeviceBatch, parts: Sequence[PackedBatch], counts: GlobalCounts
) -> Tensor:
    """Forward and backward over a worker's part of a step, in micro-batches; returns its totals."""
    worker, spec = context.worker, context.spec
    seeds = [derive_key(spec.seed, "dropout", step, worker.rank, number) >> 1 for number in range(len(parts))]
    if context.graphs is not None and len(parts) == 1:
        return context.graphs.run(batch, counts, seeds[0])
    totals = empty_totals(context.objectives, worker.device)
    for number, micro in enumerate(batch.cut(parts)):
        seed_dropout(seeds[number], worker.device)
        sums, loss = context.loss(context.model, micro, spec, counts)
        context.gradients.backward(loss, is_last=number == len(parts) - 1)
        add_sums(totals, sums, micro.sequences.num_tokens)
    return totals


def count_globally(
    batch: PackedBatch, objectives: tuple[str, ...], worker: Worker, wants_to_stop: bool = False
) -> tuple[GlobalCounts, Tensor]:
    """Predictions of each objective and tokens in the parts of all workers, and the workers that want to stop, counted.

    `batch` is this worker's part. One message carries all.
    """
    sizes = [*(OBJECTIVES[name].num_predictions(batch) for name in objectives), len(batch.input_ids), wants_to_stop]
    # Fills, as a tensor made of a list would be copied to the device, which waits for all work before it.
    counts = torch.stack([torch.full((), float(size), device=worker.device) for size in sizes])
    all_reduce_sum(counts, worker)
    *num_predictions, num_tokens, num_stopping = counts.unbind()
    return GlobalCounts(dict(zip(objectives, num_predictions, strict=True)), num_tokens), num_stopping
