"""A worker's part of a step on its device: copied as one tensor, and cut there into micro-batches.

    numbered batches ─► thread: pinned memory ─► copy on a stream of its own ─► the step's stream waits for that copy

All sizes are read from the host's arrays, so that neither copying nor cutting waits for the device. On a GPU a thread
takes the next batch while the step before it is in work; on a CPU batches are converted where they are asked for.

Shapes: B sequences, T tokens, P predicted positions.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bert_core.examples.packing import PackedBatch, SizeBucket
from bert_core.heads.pretraining import BertForPreTraining, LossSums, PretrainingLabels
from bert_core.packed_sequences import PackedSequences

if TYPE_CHECKING:  # this file also runs where a GPU machine has torch and no pydantic
    from orchestrator.specs import PretrainSpec

_ARRAYS = ("input_ids", "token_type_ids", "cu_seqlens", "masked_positions", "masked_labels", "sentence_labels")
"""Fields of a PackedBatch in the order in which they are laid end to end."""
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
        copied = batch if bucket is None else bucket.fill(batch)
        values = torch.from_numpy(lay_end_to_end(copied, np.empty(num_values(copied), np.int32)))
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
    return [*tokens, bucket.num_sequences + 1, *predictions, bucket.num_sentence_labels]


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
        ),
    )


def num_values(batch: PackedBatch) -> int:
    """Return the number of integers of all arrays of a batch."""
    return sum(_sizes(batch))


def lay_end_to_end(batch: PackedBatch, values: NDArray[np.int32]) -> NDArray[np.int32]:
    """Fill `values`, of `num_values` integers, with the arrays of a batch; returns it."""
    return np.concatenate([getattr(batch, name) for name in _ARRAYS], out=values)


Sent = TypeVar("Sent")


class Copies(Protocol[Sent]):
    """Way of batches from the host to a device."""

    def send(self, batch: PackedBatch) -> Sent:
        """Begin to copy a batch; called in the feed's thread."""

    def receive(self, sent: Sent) -> Tensor:
        """Return a batch's values, which what the caller does next on the device can read; called by the training."""


class CopyStream:
    """Copies from pinned memory on a CUDA stream of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def send(self, batch: PackedBatch) -> tuple[Tensor, torch.cuda.Event]:
        """Begin to copy a batch. Returns its values, and the event after which they are there."""
        with torch.cuda.stream(self._stream):
            # Pinned memory that is given back is used again only after the copies from it have ended.
            pinned = torch.empty(num_values(batch), dtype=torch.int32, pin_memory=True)
            lay_end_to_end(batch, pinned.numpy())
            return pinned.to(self._device, non_blocking=True), self._stream.record_event()

    def receive(self, sent: tuple[Tensor, torch.cuda.Event]) -> Tensor:
        """Let the current stream wait until a batch is there."""
        values, arrived = sent
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(arrived)
        values.record_stream(stream)  # else the next copy could take this memory while the step reads it
        return values


def device_batches(
    batches: Iterator[tuple[int, PackedBatch]], device: torch.device, find_bucket: FindBucket | None = None
) -> Generator[tuple[int, DeviceBatch], None, None]:
    """Yield numbered batches on a device; on a GPU one is on its way while the one before it is worked on.

    Args:
        find_bucket: names the sizes that each batch is filled up to before it is copied.

    Raises: what `batches` raises, in the place of the batch that it did not give.
    """
    if device.type == "cuda":
        yield from one_step_ahead(batches, CopyStream(device), find_bucket)
    else:
        for step, batch in batches:
            yield step, DeviceBatch.copied(batch, device, None if find_bucket is None else find_bucket(batch))


def one_step_ahead(
    batches: Iterator[tuple[int, PackedBatch]], copies: Copies[Sent], find_bucket: FindBucket | None = None
) -> Generator[tuple[int, DeviceBatch], None, None]:
    """Yield numbered batches; a thread takes and sends the next one while the caller has the one before it.

    The thread ends with the iterator, after the batch that it is at.
    """

    def send_next() -> tuple[int, PackedBatch, SizeBucket | None, Sent] | None:
        for step, batch in batches:
            bucket = None if find_bucket is None else find_bucket(batch)
            return step, batch, bucket, copies.send(batch if bucket is None else bucket.fill(batch))
        return None

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="device-feed") as thread:
        coming = thread.submit(send_next)
        while (sent := coming.result()) is not None:
            step, batch, bucket, copy = sent
            values = copies.receive(copy)
            coming = thread.submit(send_next)
            yield step, DeviceBatch(batch, values, bucket)


@dataclass(frozen=True)
class GlobalCounts:
    """Counts of a step's batch over all workers, which sums are divided by: float32 tensors without dimensions."""

    num_predictions: Mapping[str, Tensor]
    """Predictions of each objective of the run, by its name."""
    num_tokens: Tensor


Sums = dict[str, LossSums]
"""Sums by the name of the objective."""

StepLoss = Callable[[BertForPreTraining, MicroBatch, "PretrainSpec", GlobalCounts], tuple[Sums, Tensor]]
"""Function that computes a micro-batch's sums and its share of the loss.

Its arguments are a model, a micro-batch on the model's device, the spec and the counts of the global batch. It is
called in each step, and should not wait for the device.
"""


def label_loss(
    model: BertForPreTraining, micro: MicroBatch, spec: "PretrainSpec", counts: GlobalCounts
) -> tuple[Sums, Tensor]:
    """The loss of the labels of all objectives of the run: a `StepLoss`."""
    sums = pretraining_sums(model, micro, spec, tuple(counts.num_predictions))
    return sums, loss_of_sums(sums, counts)


def loss_of_sums(sums: Sums, counts: GlobalCounts) -> Tensor:
    """A micro-batch's share of the loss: each objective's summed loss over its global number of predictions, added."""
    return torch.stack([each.loss / counts.num_predictions[name] for name, each in sums.items()]).sum()


def pretraining_sums(
    model: BertForPreTraining, micro: MicroBatch, spec: "PretrainSpec", objectives: Sequence[str]
) -> Sums:
    """Forward over a micro-batch in the run's precision: sums of the objectives of these names."""
    device_type = micro.sequences.input_ids.device.type
    with torch.autocast(device_type, torch.bfloat16, enabled=spec.precision == "bf16"):
        return model.packed_loss_sums(micro.sequences, micro.labels, objectives)
