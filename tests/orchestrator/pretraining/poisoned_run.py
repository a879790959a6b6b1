"""A small pretraining in which some steps diverge."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from bert_core.heads import BertForPreTraining
from orchestrator.pretraining.batch_trace import combine_digests, example_digests, global_batch_digest
from orchestrator.pretraining.device_batch import MicroBatch
from orchestrator.pretraining.job import PretrainJob
from orchestrator.pretraining.step import GlobalCounts, Sums, label_loss
from orchestrator.specs import PretrainSpec
from tests.orchestrator.pretraining.batches_on_host import on_host
from tests.orchestrator.pretraining.small_run import make_job


@dataclass(frozen=True)
class PoisonedLoss:
    """The loss of the labels, but that of some batches is multiplied, as by a fault of data or arithmetic."""

    digests: frozenset[str]
    factor: float

    def __call__(
        self, model: BertForPreTraining, micro: MicroBatch, spec: PretrainSpec, counts: GlobalCounts
    ) -> tuple[Sums, torch.Tensor]:
        sums, loss = label_loss(model, micro, spec, counts)
        if combine_digests(example_digests(on_host(micro))) not in self.digests:
            return sums, loss
        return {name: replace(each, loss=each.loss * self.factor) for name, each in sums.items()}, loss * self.factor


def poisoned(folder: Path, *steps: int, factor: float = math.nan, **changes: object) -> PretrainJob:
    """A small run whose loss is poisoned at some steps, counted from 1."""
    job = make_job(folder, **changes)
    return replace(job, loss=PoisonedLoss(frozenset(global_batch_digest(job.stream, s - 1) for s in steps), factor))
