"""A worker's part of a step on its device: copied as one tensor, and cut there into micro-batches.

All sizes are read from the host's arrays, so that neither copying nor cutting waits for the device.

Shapes: B sequences, T tokens, P predicted positions.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bert_core.examples.packing import PackedBatch
from bert_core.heads.pretraining import PretrainingLabels
from bert_core.packed_sequences import PackedSequences

_ARRAYS = ("input_ids", "token_type_ids", "cu_seqlens", "masked_positions", "masked_labels", "sentence_labels")
"""Fields of a PackedBatch in the order in which they are laid end to end."""


@dataclass(frozen=True)
class MicroBatch:
    """Sequences that go through the model at a time, on the device."""

    sequences: PackedSequences
    labels: PretrainingLabels


@dataclass(frozen=True)
class DeviceBatch:
    """A worker's part of a step, on the host and on the device."""

    host: PackedBatch
    values: Tensor
    """The arrays of the batch end to end on the device, int32: half the bytes of the int64 that the model reads."""

    @classmethod
    def copied(cls, batch: PackedBatch, device: torch.device) -> Self:
        """Copy a batch to a device from ordinary memory."""
        values = torch.from_numpy(lay_end_to_end(batch, np.empty(num_values(batch), np.int32)))
        return cls(batch, values.to(device, non_blocking=True))

    def cut(self, parts: Iterable[PackedBatch]) -> Iterator[MicroBatch]:
        """Yield micro-batches with the same sequences as `parts`, which are consecutive cuts of `host`, in order."""
        sizes = [len(getattr(self.host, name)) for name in _ARRAYS]
        arrays = dict(zip(_ARRAYS, torch.split(self.values, sizes), strict=True))
        starts = dict.fromkeys(_ARRAYS, 0)
        for part in parts:
            first_token = starts["input_ids"]
            own = {}
            for name in _ARRAYS:
                own[name] = arrays[name].narrow(0, starts[name], len(getattr(part, name)))
                starts[name] += len(own[name])
            starts["cu_seqlens"] -= 1  # where a part ends, the next one begins
            yield _micro_batch(own, first_token, max_seqlen=int(np.diff(part.cu_seqlens).max()))


def _micro_batch(arrays: Mapping[str, Tensor], first_token: int, max_seqlen: int) -> MicroBatch:
    """Make a micro-batch of arrays whose places count from `first_token`."""
    return MicroBatch(
        PackedSequences.from_lengths(
            arrays["input_ids"], arrays["token_type_ids"], arrays["cu_seqlens"] - first_token, max_seqlen
        ),
        PretrainingLabels(
            arrays["masked_positions"].long() - first_token,
            arrays["masked_labels"].long(),
            arrays["sentence_labels"].long(),
        ),
    )


def num_values(batch: PackedBatch) -> int:
    """Return the number of integers of all arrays of a batch."""
    return sum(len(getattr(batch, name)) for name in _ARRAYS)


def lay_end_to_end(batch: PackedBatch, values: NDArray[np.int32]) -> NDArray[np.int32]:
    """Fill `values`, of `num_values` integers, with the arrays of a batch; returns it."""
    return np.concatenate([getattr(batch, name) for name in _ARRAYS], out=values)
