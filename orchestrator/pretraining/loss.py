"""The loss of a packed batch: sums of each objective, divided by the counts of the global batch.

Shapes: B sequences, T tokens, P predicted positions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bert_core.examples.packing import PackedBatch
from bert_core.heads.pretraining import BertForPreTraining, LossSums, PretrainingLabels
from bert_core.packed_sequences import PackedSequences
from orchestrator.specs import PretrainSpec


@dataclass(frozen=True)
class GlobalCounts:
    """Counts of a step's batch over all workers, which sums are divided by: float32 tensors without dimensions."""

    num_predictions: Mapping[str, Tensor]
    """Predictions of each objective of the run, by its name."""
    num_tokens: Tensor

    @property
    def device(self) -> torch.device:
        """The device of the step."""
        return self.num_tokens.device


Sums = dict[str, LossSums]
"""Sums by the name of the objective."""

StepLoss = Callable[[BertForPreTraining, PackedBatch, PretrainSpec, GlobalCounts], tuple[Sums, Tensor]]
"""Function that computes a part's sums and its share of the loss.

Its arguments are a model, a part of a worker's batch, the spec and the counts of the global batch.
"""


def label_loss(
    model: BertForPreTraining, batch: PackedBatch, spec: PretrainSpec, counts: GlobalCounts
) -> tuple[Sums, Tensor]:
    """The loss of the labels of all objectives of the run: a `StepLoss`."""
    sums = pretraining_sums(model, batch, spec, tuple(counts.num_predictions), counts.device)
    return sums, loss_of_sums(sums, counts)


def loss_of_sums(sums: Sums, counts: GlobalCounts) -> Tensor:
    """A part's share of the loss: each objective's summed loss over its global number of predictions, added up."""
    return torch.stack([each.loss / counts.num_predictions[name] for name, each in sums.items()]).sum()


def pretraining_sums(
    model: BertForPreTraining, batch: PackedBatch, spec: PretrainSpec, objectives: Sequence[str], device: torch.device
) -> Sums:
    """Forward over a packed batch in the run's precision: sums of the objectives of these names."""
    with torch.autocast(device.type, torch.bfloat16, enabled=spec.precision == "bf16"):
        return model.packed_loss_sums(*packed_inputs(batch, device), objectives)


def packed_inputs(batch: PackedBatch, device: torch.device) -> tuple[PackedSequences, PretrainingLabels]:
    """A packed batch on a device, as the model takes it."""
    sequences = PackedSequences.from_numpy(batch.input_ids, batch.token_type_ids, batch.cu_seqlens).to(device)
    positions, labels, sentences = (
        torch.from_numpy(array.astype("int64")).to(device, non_blocking=True)
        for array in (batch.masked_positions, batch.masked_labels, batch.sentence_labels)
    )
    return sequences, PretrainingLabels(positions, labels, sentences)
