"""One optimizer step over a global batch, or an evaluation, on one or many workers: micro-batches, losses, update.

The loss is the sum over the global batch divided by its global counts, so it does not depend on how the batch is cut
into workers and micro-batches. Dropout is seeded from (seed, step, rank, micro-batch): a step computes the same
whenever and wherever it runs. Where memory runs out, a step is computed again in smaller micro-batches, and that step's
dropout is drawn anew: with several workers, gradients that had left before then are sums under the first draw, the
others under the second. Such a step is no less sound, but another run with as much memory has other bits.

Nothing in a step waits for the device: sizes are read from the batch on the host, and sums stay on the device.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.distributed
from torch import Tensor, nn
from torch.optim import Optimizer

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.counter_random import derive_key
from bert_core.examples.packing import PackedBatch
from bert_core.heads.pretraining import BertForPreTraining, LossSums
from bert_core.heads.replaced_tokens import GeneratorAndDiscriminator, generator_config
from bert_core.kernels.dropout import seed_dropout
from bert_core.micro_batches import compute_in_parts, first_line
from bert_core.model import BertModel
from bert_core.objectives import OBJECTIVES, active_objectives
from bert_core.objectives.replaced_tokens import ReplacedTokens
from bert_core.optimization import set_learning_rate
from orchestrator.base.errors import RunFailedError
from orchestrator.cluster.torch_devices import autocast
from orchestrator.pretraining.collectives import GradientBuckets, StopFlag, Worker, all_reduce_sum
from orchestrator.pretraining.device_batch import DeviceBatch, MicroBatch
from orchestrator.training.micro_batches import MicroBatchSize, check_can_shrink
from orchestrator.training.optimizers import learning_rate_factor_at, optimizer_of

if TYPE_CHECKING:  # the GPU benchmark runs on machines without pydantic
    from orchestrator.corpus.stream import ExampleStream
    from orchestrator.pretraining.execution_mode import StepGraphs
    from orchestrator.specs import PretrainSpec

DIVERGENCE_REMEDY = "lower learning_rate, raise warmup_ratio or lower max_grad_norm, and start a new run"
_MEMORY_REMEDY = "use a smaller model, lower phases.max_seq_length, or take a device with more memory"


@dataclass(frozen=True)
class GlobalCounts:
    """Counts of a step's batch over all workers, which sums are divided by: float32 tensors without dimensions."""

    num_predictions: Mapping[str, Tensor]
    """Predictions of each objective of the run, by its name."""
    num_tokens: Tensor


Sums = dict[str, LossSums]
"""Sums by the name of the objective."""

StepLoss = Callable[[BertForPreTraining, MicroBatch, "PretrainSpec", GlobalCounts], tuple[Sums, Tensor]]
"""Function that computes a micro-batch's sums and its share of the loss, without waiting for the device."""


def new_model(spec: "PretrainSpec", config: BertConfig, seed: int | None) -> BertForPreTraining:
    """Make a model for a spec's objectives with weights drawn from `seed`; None leaves them without memory."""
    if spec.token_objective == ReplacedTokens.name:
        return GeneratorAndDiscriminator(config, seed, generator_config(config, spec.generator_size))
    return BertForPreTraining(config, seed)


def encoders_of(model: nn.Module) -> list[BertModel]:
    """Encoders of a model: one, or a generator's and its discriminator's."""
    return [module for module in model.modules() if isinstance(module, BertModel)]


@dataclass(frozen=True)
class StepContext:
    """Values that stay the same over all steps."""

    model: BertForPreTraining
    optimizer: Optimizer
    spec: "PretrainSpec"
    worker: Worker
    objectives: tuple[str, ...]
    """Names of the objectives of the run."""
    loss: StepLoss
    micro_batches: "MicroBatches"
    gradients: GradientBuckets
    rotary_base: float
    """Base of rotary positions before a phase changes it: the model's own, or that of the state it goes on from."""
    graphs: "StepGraphs | None" = None
    """Forward and backward as CUDA graphs, where the run has them; batches are filled up for them then."""

    @classmethod
    def build(
        cls,
        spec: "PretrainSpec",
        model: BertForPreTraining,
        worker: Worker,
        warn: Callable[[str], None],
        loss: StepLoss | None = None,
    ) -> Self:
        """Build what a spec's training of a model needs; the model is moved to the worker's device.

        `warn` is told where micro-batches are made smaller; without a `loss` it is that of the batch's own labels.
        """
        model.to(worker.device)
        for encoder in encoders_of(model):
            encoder.residual_dtype = torch.bfloat16 if spec.residual_precision == "bf16" else None
            encoder.recomputes_layers = spec.execution.activation_checkpointing == "layers"
        optimizer = optimizer_of(spec, model)
        objectives = active_objectives(spec.chosen_objectives, model.config)
        gradients = GradientBuckets(model.parameters(), worker, spec.gradient_precision)
        micro_batches = MicroBatches(worker, spec, warn)
        base = model.config.rotary_base
        return cls(model, optimizer, spec, worker, objectives, loss or label_loss, micro_batches, gradients, base)

    def discard_gradients(self) -> None:
        """Drop what a step that ran out of memory left: gradients, and graphs, which smaller parts do not use."""
        self.optimizer.zero_grad(set_to_none=True)
        if self.graphs is not None:
            self.graphs.clear()

    def learning_rate(self, step: int) -> float:
        """Learning rate of the update that a step, counted from 0, makes."""
        peak = self.spec.learning_rate_peak(step)
        return peak * learning_rate_factor_at(self.spec, step, self.spec.num_steps, self.spec.init_step or 0)

    def enter_phase(self, step: int) -> None:
        """Give the model the base of rotary positions of a step's phase; weights and optimizer stay as they are."""
        base = self.spec.rotary_base_at(step) or self.rotary_base
        if base != self.model.config.rotary_base:
            for part in self.model.modules():
                if isinstance(part, PretrainedModel):  # a generator and its discriminator are two, with an encoder each
                    part.config = replace(part.config, rotary_base=base)
            if self.graphs is not None:  # they compute with the base that they were captured with
                self.graphs.clear()


@dataclass(frozen=True)
class StepResult:
    """Numbers of a step, which stay on the device."""

    totals: Tensor
    """This worker's totals, as `empty_totals` describes them."""
    gradient_norm: Tensor
    stop_flag: StopFlag
    """Whether a worker wanted to stop when the step began."""


def training_step(
    context: StepContext, step: int, batch: DeviceBatch, learning_rate: float, wants_to_stop: bool = False
) -> StepResult:
    """Train on a worker's part of a step. Raises: RunFailedError where memory runs out with a single example."""
    counts, num_stopping = count_globally(batch.host, context.objectives, context.worker, wants_to_stop)
    stop_flag = StopFlag.send(num_stopping)  # before the step's work, so that it arrives before that is done
    totals = compute_in_parts(
        context.micro_batches,
        batch.host,
        step + 1,
        lambda parts: _forward_and_backward(context, step, batch, parts, counts),
        forget=context.discard_gradients,
    )
    context.gradients.finish()
    parameters = [parameter for parameter in context.model.parameters() if parameter.grad is not None]
    norm = nn.utils.clip_grad_norm_(parameters, context.spec.max_grad_norm)
    set_learning_rate(context.optimizer, learning_rate)
    context.optimizer.step()
    context.optimizer.zero_grad(set_to_none=True)
    return StepResult(totals, norm, stop_flag)


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
    """Count predictions, tokens, and workers that want to stop, over all workers' parts in one message."""
    sizes = [*(OBJECTIVES[name].num_predictions(batch) for name in objectives), len(batch.input_ids), wants_to_stop]
    # Fills, as a tensor made of a list would be copied to the device, which waits for all work before it.
    counts = torch.stack([torch.full((), float(size), device=worker.device) for size in sizes])
    all_reduce_sum(counts, worker)
    *num_predictions, num_tokens, num_stopping = counts.unbind()
    return GlobalCounts(dict(zip(objectives, num_predictions, strict=True)), num_tokens), num_stopping


def label_loss(
    model: BertForPreTraining, micro: MicroBatch, spec: "PretrainSpec", counts: GlobalCounts
) -> tuple[Sums, Tensor]:
    """Loss of the labels of all objectives of the run: a `StepLoss`."""
    sums = pretraining_sums(model, micro, spec, tuple(counts.num_predictions))
    return sums, loss_of_sums(sums, counts)


def loss_of_sums(sums: Sums, counts: GlobalCounts) -> Tensor:
    """A micro-batch's share of the loss: each objective's summed loss over its global number of predictions, weighted
    and added."""
    means = [(OBJECTIVES[name].weight, each.loss / counts.num_predictions[name]) for name, each in sums.items()]
    return torch.stack([mean if weight == 1 else weight * mean for weight, mean in means]).sum()


def pretraining_sums(
    model: BertForPreTraining, micro: MicroBatch, spec: "PretrainSpec", objectives: Sequence[str]
) -> Sums:
    """Forward over a micro-batch in the run's precision: sums of the objectives of these names."""
    with autocast(micro.sequences.input_ids.device, spec.precision):
        return model.packed_loss_sums(micro.sequences, micro.labels, objectives)


def empty_totals(objectives: Sequence[str], device: torch.device) -> Tensor:
    """Make totals that count nothing yet: one vector of float32, so that workers add them up in one message.

    For each objective its summed loss, right predictions and predictions; then the number of tokens.
    """
    return torch.zeros(3 * len(objectives) + 1, device=device)


def add_sums(totals: Tensor, sums: Mapping[str, LossSums], num_tokens: int) -> None:
    """Add the sums of a batch to totals, in place. `sums` has the objectives of the totals, in any order."""
    ordered = [sums[name] for name in OBJECTIVES if name in sums]
    values = [value.detach() for each in ordered for value in (each.loss, each.num_correct, each.num_predictions)]
    totals += torch.stack([*values, torch.full_like(values[0], num_tokens)])


def named_metrics(totals: Tensor, objectives: Sequence[str]) -> dict[str, float]:
    """Measurements of all objectives from global totals, and `loss`, the weighted sum of their mean losses."""
    *values, num_tokens = totals.tolist()
    metrics: dict[str, float] = {}
    loss = 0.0
    for number, name in enumerate(objectives):
        objective = OBJECTIVES[name]
        loss_sum, num_correct, num_predictions = values[3 * number : 3 * number + 3]
        metrics |= objective.metrics(loss_sum, num_correct, num_predictions, num_tokens)
        loss += objective.weight * metrics[objective.loss_name]
    return {**metrics, "loss": loss}


class MicroBatches(MicroBatchSize[PackedBatch]):
    """Micro-batches of a worker: so many examples or, where the spec says `micro_batch_tokens`, tokens at most.

    The size is the spec's until memory runs out on a worker, and then half of what was tried. Dropout is drawn for each
    micro-batch, so the size is part of a checkpoint, and all workers take the smallest one wherever a checkpoint may be
    written. Workers may have different numbers of micro-batches: they send their gradients once in a step.
    """

    whole = "global batch"
    remedy = _MEMORY_REMEDY

    def __init__(self, worker: Worker, spec: "PretrainSpec", warn: Callable[[str], None]) -> None:
        self._worker = worker
        self._counts_tokens = spec.micro_batch_tokens is not None
        self.unit = "tokens" if self._counts_tokens else "examples"
        self.field = "micro_batch_tokens" if self._counts_tokens else "micro_batch_size"
        super().__init__(getattr(spec, self.field), warn)

    def split(self, batch: PackedBatch) -> list[PackedBatch]:
        if self.size is None:
            return [batch]
        return batch.split_by_tokens(self.size) if self._counts_tokens else batch.split(self.size)

    def num_examples(self, part: PackedBatch) -> int:
        return part.num_sequences

    def measure(self, part: PackedBatch) -> int:
        return len(part.input_ids) if self._counts_tokens else part.num_sequences

    def take_smallest_of_all_workers(self) -> None:
        """Take the smallest size of any worker, on all workers at once."""
        if self._worker.num_workers == 1:
            return
        none_yet = torch.iinfo(torch.int64).max
        smallest = torch.tensor(self.size or none_yet, device=self._worker.device)
        torch.distributed.all_reduce(smallest, op=torch.distributed.ReduceOp.MIN)
        if int(smallest) < (self.size or none_yet):
            self.shrink(int(smallest), "on another worker")

    def state(self) -> dict[str, int | None]:
        """The size, under its name in a checkpoint."""
        return {self.field: self.size}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the size of a checkpoint; where it has none, the spec's."""
        self.size = state.get(self.field, self._size_of_spec)


class EvaluationBatches:
    """Examples that are evaluated at a time: 64, until memory runs out, and then half of what was tried."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._size, self._warn = 64, warn

    def split(self, batch: PackedBatch) -> list[PackedBatch]:
        return batch.split(self._size)

    def halve(self, tried: Sequence[PackedBatch], step: int | None, reason: str) -> None:
        """Take half as much at a time as was tried. Raises: RunFailedError where one example alone was too much."""
        largest = max(part.num_sequences for part in tried)
        check_can_shrink(largest, step, reason, _MEMORY_REMEDY)
        self._size = largest // 2
        self._warn(
            f"memory ran out in the evaluation at step {step} with {largest:,} examples at a time "
            f"({first_line(reason)}); from here on {self._size:,} at a time"
        )


@torch.no_grad()
def evaluate(context: StepContext, held_out: "ExampleStream", sizes: EvaluationBatches, step: int) -> dict[str, float]:
    """Measure a model on all held-out examples; each worker takes its part. The model is left in training mode.

    Raises: RunFailedError, which names `step`, where memory runs out with a single example, or the loss is not finite.
    """
    worker = context.worker

    def compute_totals(batch: DeviceBatch, parts: Sequence[PackedBatch]) -> Tensor:
        totals = empty_totals(context.objectives, worker.device)
        for micro in batch.cut(parts):
            sums = pretraining_sums(context.model, micro, context.spec, context.objectives)
            add_sums(totals, sums, micro.sequences.num_tokens)
        return totals

    totals = empty_totals(context.objectives, worker.device)
    context.model.eval()
    for _, host in held_out.batches(range(1), worker.rank, worker.num_workers):
        totals += compute_in_parts(sizes, host, step, partial(compute_totals, DeviceBatch.copied(host, worker.device)))
    context.model.train()
    all_reduce_sum(totals, worker)
    metrics = named_metrics(totals, context.objectives)
    if not math.isfinite(metrics["loss"]):
        raise RunFailedError(f"the held-out loss is {metrics['loss']} at step {step}; {DIVERGENCE_REMEDY}")
    return metrics
