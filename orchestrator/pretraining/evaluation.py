"""Measurements on held-out examples during a pretraining: the same examples each time, shared out among the workers."""

import math
from functools import partial

import torch
from torch import Tensor

from bert_core.examples.packing import PackedBatch
from bert_core.micro_batches import compute_in_parts
from orchestrator.corpus.stream import ExampleStream
from orchestrator.errors import RunFailedError
from orchestrator.pretraining.collectives import all_reduce_sum
from orchestrator.pretraining.device_batch import DeviceBatch
from orchestrator.pretraining.divergence import REMEDY
from orchestrator.pretraining.loss import pretraining_sums
from orchestrator.pretraining.meter import add_sums, empty_totals, named_metrics
from orchestrator.pretraining.micro_batches import EvaluationSizes
from orchestrator.pretraining.step import StepContext


@torch.no_grad()
def evaluate(context: StepContext, held_out: ExampleStream, sizes: EvaluationSizes, step: int) -> dict[str, float]:
    """Measure a model on all held-out examples; each worker takes its part. The model is left in training mode.

    Args:
        sizes: how much goes through the model at a time.
        step: steps that have ended, for messages.

    Raises: RunFailedError where memory runs out with a single example, or the loss is not finite.
    """
    worker = context.worker
    totals = empty_totals(context.objectives, worker.device)
    context.model.eval()
    for _, batch in held_out.batches(range(1), worker.rank, worker.num_workers):
        on_device = DeviceBatch.copied(batch, worker.device)
        totals += compute_in_parts(sizes, batch, step, partial(_totals, context, on_device))
    context.model.train()
    all_reduce_sum(totals, worker)
    metrics = named_metrics(totals, context.objectives)
    if not math.isfinite(metrics["loss"]):
        raise RunFailedError(f"the held-out loss is {metrics['loss']} at step {step}; {REMEDY}")
    return metrics


def _totals(context: StepContext, batch: DeviceBatch, parts: list[PackedBatch]) -> Tensor:
    totals = empty_totals(context.objectives, context.worker.device)
    for micro in batch.cut(parts):
        sums = pretraining_sums(context.model, micro, context.spec, context.objectives)
        add_sums(totals, sums, micro.sequences.num_tokens)
    return totals
