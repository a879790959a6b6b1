"""One optimizer step over a global batch, on one or many workers.

The loss is the sum over the global batch divided by its global counts (predicted positions for MLM, examples for the
sentence objective), so it does not depend on how the batch is cut into workers and micro-batches. Dropout is seeded
from (seed, step, rank, micro-batch): a step computes the same whenever and wherever it runs.
"""

from dataclasses import dataclass, fields

import torch
import torch.distributed
from torch import Tensor, nn
from torch.optim import Optimizer

from bert_core.counter_random import derive_key
from bert_core.examples.packing import PackedBatch
from bert_core.heads import BertForPreTraining
from bert_core.losses import PretrainingSums
from bert_core.optimization import set_learning_rate
from bert_core.packed_sequences import PackedSequences
from orchestrator.pretraining.job import StepLoss, Worker
from orchestrator.specs import PretrainSpec

SUM_NAMES = (*(item.name for item in fields(PretrainingSums)), "num_tokens")


@dataclass(frozen=True)
class StepContext:
    """What stays the same over all steps."""

    model: BertForPreTraining
    optimizer: Optimizer
    spec: PretrainSpec
    worker: Worker
    loss: StepLoss


def training_step(context: StepContext, step: int, batch: PackedBatch, learning_rate: float) -> tuple[Tensor, Tensor]:
    """Train on a worker's part of a step; this worker's sums (8,) named by SUM_NAMES, and the gradient norm."""
    worker, spec = context.worker, context.spec
    sizes = [len(batch.masked_positions), batch.num_sequences, len(batch.input_ids)]
    counts = torch.tensor(sizes, dtype=torch.float32, device=worker.device)
    all_reduce_sum(counts, worker)
    totals = torch.zeros(len(SUM_NAMES), device=worker.device)
    parts = batch.split(spec.micro_batch_size or batch.num_sequences)
    for micro, part in enumerate(parts):
        torch.manual_seed(derive_key(spec.seed, "dropout", step, worker.rank, micro) >> 1)
        sums, loss = context.loss(context.model, part, spec, counts)
        loss.backward()  # type: ignore[no-untyped-call]
        totals += as_vector(sums, part)
    parameters = [parameter for parameter in context.model.parameters() if parameter.grad is not None]
    all_reduce_gradients(parameters, worker)
    norm = nn.utils.clip_grad_norm_(parameters, spec.max_grad_norm)
    set_learning_rate(context.optimizer, learning_rate)
    context.optimizer.step()
    context.optimizer.zero_grad(set_to_none=True)
    return totals, norm


def label_loss(
    model: BertForPreTraining, batch: PackedBatch, spec: PretrainSpec, counts: Tensor
) -> tuple[PretrainingSums, Tensor]:
    """The masked tokens' loss and the other objectives' of the spec: a `StepLoss`."""
    sums = pretraining_sums(model, batch, spec, counts.device)
    return sums, loss_of_sums(sums, counts)


def loss_of_sums(sums: PretrainingSums, counts: Tensor) -> Tensor:
    """A part's share of the loss: its sums over the counts (3,) of the global batch."""
    return (sums.mlm_loss + sums.sbo_loss) / counts[0] + sums.nsp_loss / counts[1]


def pretraining_sums(
    model: BertForPreTraining, batch: PackedBatch, spec: PretrainSpec, device: torch.device
) -> PretrainingSums:
    """Forward over a packed batch in the run's precision."""
    with torch.autocast(device.type, torch.bfloat16, enabled=spec.precision == "bf16"):
        return model.sums(*packed_inputs(batch, device))


def packed_inputs(batch: PackedBatch, device: torch.device) -> tuple[PackedSequences, Tensor, Tensor, Tensor]:
    """A packed batch on a device: sequences, masked positions (P,), the tokens there (P,), sentence labels (B,)."""
    sequences = PackedSequences.from_numpy(batch.input_ids, batch.token_type_ids, batch.cu_seqlens).to(device)
    positions, labels, sentences = (
        torch.from_numpy(array.astype("int64")).to(device, non_blocking=True)
        for array in (batch.masked_positions, batch.masked_labels, batch.sentence_labels)
    )
    return sequences, positions, labels, sentences


def as_vector(sums: PretrainingSums, batch: PackedBatch) -> Tensor:
    """The sums of a batch as (8,), in the order of SUM_NAMES; nothing waits for the device."""
    num_tokens = torch.full_like(sums.num_predictions, len(batch.input_ids))
    return torch.stack([*(getattr(sums, name).detach() for name in SUM_NAMES[:-1]), num_tokens])


def all_reduce_sum(values: Tensor, worker: Worker) -> None:
    """Add up over workers, in place."""
    if worker.num_workers > 1:
        torch.distributed.all_reduce(values)


def refuse_if_unequal(step: int, worker: Worker) -> None:
    """See that all workers begin at the same step. A checkpoint that one of them could not read makes it fall back to
    an older one alone; raising RuntimeError lets Ray start the workers anew.
    """
    if worker.num_workers == 1:
        return
    highest = torch.tensor([step, -step], device=worker.device)
    torch.distributed.all_reduce(highest, op=torch.distributed.ReduceOp.MAX)
    first, last = -int(highest[1]), int(highest[0])
    if first != last:
        raise RuntimeError(f"workers found different checkpoints: of step {first} and of step {last}")


def all_reduce_gradients(parameters: list[nn.Parameter], worker: Worker) -> None:
    """Add up all gradients over workers as one flat tensor: one message a step."""
    if worker.num_workers == 1:
        return
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    torch.distributed.all_reduce(flat)
    sizes = [gradient.numel() for gradient in gradients]
    for gradient, summed in zip(gradients, torch.split(flat, sizes), strict=True):
        gradient.copy_(summed.view_as(gradient))
