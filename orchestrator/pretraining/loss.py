"""The loss of a micro-batch: sums of each objective, divided by the counts of the global batch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bert_core.heads.pretraining import BertForPreTraining, LossSums
from orchestrator.pretraining.device_batch import MicroBatch
from orchestrator.specs import PretrainSpec


@dataclass(frozen=True)
class GlobalCounts:
    """Counts of a step's batch over all workers, which sums are divided by: float32 tensors without dimensions."""

    num_predictions: Mapping[str, Tensor]
    """Predictions of each objective of the run, by its name."""
    num_tokens: Tensor


Sums = dict[str, LossSums]
"""Sums by the name of the objective."""

StepLoss = Callable[[BertForPreTraining, MicroBatch, PretrainSpec, GlobalCounts], tuple[Sums, Tensor]]
"""Function that computes a micro-batch's sums and its share of the loss.

Its arguments are a model, a micro-batch on the model's device, the spec and the counts of the global batch. It is
called in each step, and should not wait for the device.
"""


def label_loss(
    model: BertForPreTraining, micro: MicroBatch, spec: PretrainSpec, counts: GlobalCounts
) -> tuple[Sums, Tensor]:
    """The loss of the labels of all objectives of the run: a `StepLoss`."""
    sums = pretraining_sums(model, micro, spec, tuple(counts.num_predictions))
    return sums, loss_of_sums(sums, counts)


def loss_of_sums(sums: Sums, counts: GlobalCounts) -> Tensor:
    """A micro-batch's share of the loss: each objective's summed loss over its global number of predictions, added."""
    return torch.stack([each.loss / counts.num_predictions[name] for name, each in sums.items()]).sum()


def pretraining_sums(
    model: BertForPreTraining, micro: MicroBatch, spec: PretrainSpec, objectives: Sequence[str]
) -> Sums:
    """Forward over a micro-batch in the run's precision: sums of the objectives of these names."""
    device_type = micro.sequences.input_ids.device.type
    with torch.autocast(device_type, torch.bfloat16, enabled=spec.precision == "bf16"):
        return model.packed_loss_sums(micro.sequences, micro.labels, objectives)
