"""A worker's part of a step on its device: copied as one tensor, and cut there into micro-batches.

    numbered batches ─► thread: pinned memory ─► copy on a stream of its own ─► the step's stream waits for that copy

All sizes are read from the host's arrays, so that neither copying nor cutting waits for the device.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bert_core.examples.packing import PackedBatch, SizeBucket
from bert_core.heads.pretraining import PretrainingLabels
from bert_core.packed_sequences import PackedSequences

_ARRAYS = tuple(PackedBatch.__dataclass_fields__)
"""Arrays of a batch in the order in which they are laid end to end."""
FindBucket = Callable[[PackedBatch], SizeBucket]
"""Function that names the sizes that a batch is filled up to."""


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
    bucket: SizeBucket | None = None
    """Sizes that the batch was filled up to before it was copied; None: it was not."""

    @classmethod
    def copied(cls, batch: PackedBatch, device: torch.device, bucket: SizeBucket | None = None) -> Self:
        """Copy a batch to a device from ordinary memory, filled up to a bucket's sizes where there is one."""
        values = torch.from_numpy(lay_end_to_end(bucket.fill(batch) if bucket else batch))
        return cls(batch, values.to(device, non_blocking=True), bucket)

    def cut(self, parts: Iterable[PackedBatch]) -> Iterator[MicroBatch]:
        """Yield micro-batches with the same sequences as `parts`, which are consecutive cuts of `host`, in order."""
        arrays = _split(self.values, _sizes(self.host) if self.bucket is None else _sizes_in(self.bucket))
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
    return _micro_batch(_split(values, _sizes_in(bucket)), 0, bucket.max_seqlen)


def _sizes(batch: PackedBatch) -> list[int]:
    return [len(getattr(batch, name)) for name in _ARRAYS]


def _sizes_in(bucket: SizeBucket) -> list[int]:
    tokens, predictions = [bucket.num_tokens] * 2, [bucket.num_predictions] * 2
    return [*tokens, bucket.num_sequences + 1, *predictions, bucket.num_sentence_labels, 0]


def _split(values: Tensor, sizes: list[int]) -> dict[str, Tensor]:
    """Views of the arrays that lie end to end, by their names."""
    return dict(zip(_ARRAYS, torch.split(values, sizes), strict=True))


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
            arrays["draws"].long(),
        ),
    )


def lay_end_to_end(batch: PackedBatch, values: NDArray[np.int32] | None = None) -> NDArray[np.int32]:
    """Return the arrays of a batch end to end; in `values`, which has their size, where it is given."""
    values = np.empty(sum(_sizes(batch)), np.int32) if values is None else values
    return np.concatenate([getattr(batch, name) for name in _ARRAYS], out=values)


class CopyStream:
    """Copies of batches from pinned memory on a CUDA stream of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def send(self, batch: PackedBatch) -> tuple[Tensor, torch.cuda.Event]:
        """Begin to copy a batch, in the feed's thread. Returns its values, and the event after which they are there."""
        with torch.cuda.stream(self._stream):
            # Pinned memory that is given back is used again only after the copies from it have ended.
            pinned = torch.empty(sum(_sizes(batch)), dtype=torch.int32, pin_memory=True)
            lay_end_to_end(batch, pinned.numpy())
            return pinned.to(self._device, non_blocking=True), self._stream.record_event()

    def receive(self, sent: tuple[Tensor, torch.cuda.Event]) -> Tensor:
        """Return a batch's values, once the training's stream is told to wait for them."""
        values, arrived = sent
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(arrived)
        values.record_stream(stream)  # else the next copy could take this memory while the step reads it
        return values


def device_batches(
    batches: Iterator[tuple[int, PackedBatch]], device: torch.device, find_bucket: FindBucket | None = None
) -> Generator[tuple[int, DeviceBatch], None, None]:
    """Yield numbered batches on a device; on a GPU one is on its way while the one before it is worked on.

    Raises: what `batches` raises, in the place of the batch that it did not give.
    """
    if device.type == "cuda":
        yield from one_step_ahead(batches, CopyStream(device), find_bucket)
    else:
        for step, batch in batches:
            yield step, DeviceBatch.copied(batch, device, find_bucket and find_bucket(batch))


def one_step_ahead(
    batches: Iterator[tuple[int, PackedBatch]], copies: CopyStream, find_bucket: FindBucket | None = None
) -> Generator[tuple[int, DeviceBatch], None, None]:
    """Yield numbered batches; a thread takes and sends the next one while the caller has the one before it.

    The thread ends with the iterator, after the batch that it is at.
    """

    def send_next() -> tuple[int, PackedBatch, SizeBucket | None, tuple[Tensor, torch.cuda.Event]] | None:
        for step, batch in batches:
            bucket = find_bucket and find_bucket(batch)
            return step, batch, bucket, copies.send(bucket.fill(batch) if bucket else batch)
        return None

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="device-feed") as thread:
        coming = thread.submit(send_next)
        while (sent := coming.result()) is not None:
            step, batch, bucket, copy = sent
            values = copies.receive(copy)
            coming = thread.submit(send_next)
            yield step, DeviceBatch(batch, values, bucket)
