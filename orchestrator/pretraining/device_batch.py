"""A worker's part of a step on its device: copied as one tensor, and cut there into micro-batches.

All sizes are read from the host's arrays, so that neither copying nor cutting waits for the device.

Shapes: B sequences, T tokens, P predicted positions.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bert_core.examples.packing import PackedBatch
from bert_core.examples.size_buckets import SizeBucket
from bert_core.heads.pretraining import PretrainingLabels
from bert_core.packed_sequences import PackedSequences

_ARRAYS = ("input_ids", "token_type_ids", "cu_seqlens", "masked_positions", "masked_labels", "sentence_labels")
"""Fields of a PackedBatch in the order in which they are laid end to end."""
Fill = Callable[[PackedBatch], PackedBatch]
"""Function that fills up a batch to the sizes of its bucket: its own sequences and predictions stay in front."""


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
    filled: PackedBatch | None = None
    """Batch that was copied, where that is `host` filled up to the sizes of its bucket."""

    @classmethod
    def copied(cls, batch: PackedBatch, device: torch.device, fill: Fill | None = None) -> Self:
        """Copy a batch to a device from ordinary memory; filled up, where there is a function for that."""
        filled = None if fill is None else fill(batch)
        copied = filled or batch
        values = torch.from_numpy(lay_end_to_end(copied, np.empty(num_values(copied), np.int32)))
        return cls(batch, values.to(device, non_blocking=True), filled)

    def cut(self, parts: Iterable[PackedBatch]) -> Iterator[MicroBatch]:
        """Yield micro-batches with the same sequences as `parts`, which are consecutive cuts of `host`, in order."""
        copied = self.filled or self.host
        arrays = _split(self.values, [len(getattr(copied, name)) for name in _ARRAYS])
        starts = dict.fromkeys(_ARRAYS, 0)
        for part in parts:
            first_token = starts["input_ids"]
            own = {}
            for name in _ARRAYS:
                own[name] = arrays[name].narrow(0, starts[name], len(getattr(part, name)))
                starts[name] += len(own[name])
            starts["cu_seqlens"] -= 1  # where a part ends, the next one begins
            yield _micro_batch(own, first_token, max_seqlen=int(np.diff(part.cu_seqlens).max()))


def filled_micro_batch(values: Tensor, bucket: SizeBucket) -> MicroBatch:
    """Make one micro-batch of a batch that was filled up, from its arrays end to end; the bucket alone says where."""
    num_predictions = bucket.num_predictions
    sizes = [bucket.num_tokens, bucket.num_tokens, bucket.num_sequences + 1, num_predictions, num_predictions]
    arrays = _split(values, [*sizes, bucket.num_sentence_labels])
    return _micro_batch(arrays, 0, bucket.max_seqlen, bucket.num_fillers)


def _split(values: Tensor, sizes: list[int]) -> dict[str, Tensor]:
    """Views of the arrays that lie end to end, by their names."""
    return dict(zip(_ARRAYS, torch.split(values, sizes), strict=True))


def _micro_batch(arrays: Mapping[str, Tensor], first_token: int, max_seqlen: int, num_fillers: int = 0) -> MicroBatch:
    """Make a micro-batch of arrays whose places count from `first_token`."""
    return MicroBatch(
        PackedSequences.from_lengths(
            arrays["input_ids"], arrays["token_type_ids"], arrays["cu_seqlens"] - first_token, max_seqlen, num_fillers
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
