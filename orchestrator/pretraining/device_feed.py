"""Feed of a worker's device: batches on the host become batches on the device, one step ahead of the training.

    numbered batches ─► thread: pinned memory ─► copy on a stream of its own ─► the step's stream waits for that copy

On a GPU a thread takes the next batch while the step before it is in work, so neither the host nor the device waits for
a copy. The step's stream waits for the event that ends its own copy, and for nothing else. On a CPU there is nothing to
copy to: batches are converted where they are asked for.
"""

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from bert_core.examples.packing import PackedBatch
from orchestrator.pretraining.device_batch import DeviceBatch, lay_end_to_end, num_values

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
    batches: Iterator[tuple[int, PackedBatch]], device: torch.device
) -> Generator[tuple[int, DeviceBatch], None, None]:
    """Yield numbered batches on a device; on a GPU one is on its way while the one before it is worked on.

    Raises: what `batches` raises, in the place of the batch that it did not give.
    """
    if device.type == "cuda":
        yield from one_step_ahead(batches, CopyStream(device))
    else:
        for step, batch in batches:
            yield step, DeviceBatch.copied(batch, device)


def one_step_ahead(
    batches: Iterator[tuple[int, PackedBatch]], copies: Copies[Sent]
) -> Generator[tuple[int, DeviceBatch], None, None]:
    """Yield numbered batches; a thread takes and sends the next one while the caller has the one before it.

    The thread ends with the iterator, after the batch that it is at.
    """

    def send_next() -> tuple[int, PackedBatch, Sent] | None:
        for step, batch in batches:
            return step, batch, copies.send(batch)
        return None

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="device-feed") as thread:
        coming = thread.submit(send_next)
        while (sent := coming.result()) is not None:
            step, batch, copy = sent
            values = copies.receive(copy)
            coming = thread.submit(send_next)
            yield step, DeviceBatch(batch, values)
