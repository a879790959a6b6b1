"""A training step whose forward and backward are a CUDA graph for each bucket of sizes, as in a run that has them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from benchmarks._pretraining_batches import loss_of, pack_batch
from benchmarks.gpu.own_step import Learner
from benchmarks.gpu.setting import in_precision
from bert_core.cuda_graphs import ReplayedPasses, graph_maker
from bert_core.examples.packing import PackedBatch
from bert_core.examples.size_buckets import SizeBucket
from bert_core.heads.pretraining import BertForPreTraining, PretrainingLabels
from bert_core.packed_sequences import PackedSequences

NOT_AVAILABLE = "not available here: CUDA graphs need an NVIDIA GPU"


@dataclass(frozen=True)
class FilledInputs:
    """A batch that was filled up to the sizes of its bucket, on a device."""

    bucket: SizeBucket
    tensors: Sequence[Tensor]
    """Fields of a PackedBatch, in its order, int64."""

    @classmethod
    def of(cls, batch: dict[str, Tensor], longest: int, device: torch.device) -> "FilledInputs":
        """Pack and fill up padded rows, for a model that reads `longest` tokens at most."""
        seqs, labels = pack_batch(batch)
        fields = (seqs.input_ids, seqs.token_type_ids, seqs.cu_seqlens, *vars(labels).values())
        return cls.of_packed(PackedBatch(*(tensor.numpy().astype(np.int32) for tensor in fields)), longest, device)

    @classmethod
    def of_packed(cls, packed: PackedBatch, longest: int, device: torch.device) -> "FilledInputs":
        """Fill up a packed batch, for a model that reads `longest` tokens at most."""
        bucket = SizeBucket.of(packed, longest)
        return cls(bucket, [torch.from_numpy(array).long().to(device) for array in vars(bucket.fill(packed)).values()])


def filled_loss(
    model: BertForPreTraining, bucket: SizeBucket, precision: str, tensors: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Loss of a filled batch, with its gradient and without."""
    ids, types, borders, *labels = tensors
    seqs = PackedSequences.from_lengths(ids, types, borders, bucket.max_seqlen, bucket.num_fillers)
    with in_precision(precision, ids.device):
        loss = loss_of(model, seqs, PretrainingLabels(*labels))
    return loss, loss.detach()


class GraphedLearner:
    """Steps of a learner as graphs. Raises: ValueError on a device that has none."""

    def __init__(self, learner: Learner) -> None:
        new_graph = graph_maker(learner.device)
        if new_graph is None:
            raise ValueError(NOT_AVAILABLE)
        assert isinstance(learner.model, BertForPreTraining)
        self.model = learner.model
        self._learner, self._num_steps = learner, 0
        self._passes = ReplayedPasses(learner.model.parameters(), new_graph)

    def replay(self, inputs: FilledInputs, precision: str = "bf16", seed: int = 0) -> Tensor:
        """Compute the loss of a batch, and gradients, which are the parameters' until the next call."""
        compute = partial(filled_loss, self.model, inputs.bucket, precision)
        return self._passes.run((inputs.bucket, precision), inputs.tensors, compute, seed)

    def step(self, inputs: FilledInputs) -> Tensor:
        """Make one step; the loss stays on the device."""
        self._num_steps += 1
        loss = self.replay(inputs, seed=self._num_steps)
        self._learner.update()
        return loss
