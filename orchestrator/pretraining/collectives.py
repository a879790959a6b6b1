"""Messages among the workers of a group: sums, a request to stop, gradients, the checkpoint to go on from."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.distributed
from torch import Tensor, nn

from bert_core.checkpoints.training_state import TrainingState
from orchestrator.base.results import CheckpointEvent
from orchestrator.cluster.own_errors import OWN_ERRORS

if TYPE_CHECKING:  # the GPU benchmark runs on machines without pydantic
    from bert_core.constants import Precision
    from orchestrator.training.checkpoints import Checkpoints

Warn = Callable[[str], None]
Found = tuple[CheckpointEvent, TrainingState] | None


@dataclass(frozen=True)
class Worker:
    """A process that trains: which part of the work it does, and on which device."""

    rank: int = 0
    num_workers: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


def all_reduce_sum(values: Tensor, worker: Worker) -> None:
    if worker.num_workers > 1:
        torch.distributed.all_reduce(values)


@dataclass(frozen=True)
class StopFlag:
    """All-reduced request to stop, on its way to the host. Read one step late, so the GPU never idles waiting for it.

    On a GPU it is copied as the step's first work. Once the next step has been launched, reading it waits for the
    device to begin the flag's own step, if at all, and a whole step is in line behind that.
    """

    num_stopping: Tensor
    arrived: Any = None
    """Event of the device, behind the copy; None where the number is the host's from the beginning."""

    @classmethod
    def send(cls, num_stopping: Tensor) -> Self:
        """Begin to copy the number of workers that want to stop, of shape [], to the host."""
        if not num_stopping.is_cuda:
            return cls(num_stopping)
        copy = torch.empty((), dtype=num_stopping.dtype, pin_memory=True)
        copy.copy_(num_stopping, non_blocking=True)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record(torch.cuda.current_stream(num_stopping.device))
        return cls(copy, arrived)

    def is_set(self) -> bool:
        """Whether any worker wanted to stop; waits for the copy."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return bool(self.num_stopping)


BUCKET_BYTES = 25 << 20
"""Size of a message: large enough for a network's full speed, small enough that most of them leave during backward."""


@dataclass(eq=False)
class _Bucket:
    """Parameters whose gradients are sent together."""

    parameters: list[nn.Parameter] = field(default_factory=list)
    num_bytes: int = 0
    num_ready: int = 0
    message: Tensor | None = None
    """All gradients of the bucket, flat; None until they are sent."""
    work: Any = None
    """Handle of the message on its way."""


class GradientBuckets:
    """Gradients of a data-parallel model, all-reduced bucket by bucket during backward (Li et al. 2020, VLDB).

    Bitwise reproducible for a fixed number of workers, in any attempt: buckets follow from the model and the run's
    objectives alone. Torch's DistributedDataParallel builds its buckets anew after the first step, in the order in
    which gradients came, so that a resumed run adds up three or more workers' numbers in another order; and it has to
    be told of heads that an objective leaves without a gradient. With another number of workers, as in an elastic run,
    sums are equal up to rounding.

    A step calls `backward` for each micro-batch and then `finish`. Gradients of the last micro-batch leave as soon as
    their bucket is full; those of the others are only accumulated. Parameters take part that get a gradient on any
    worker in the first step. The others keep none, so that the optimizer leaves them alone, as it does with one worker.

    Args:
        parameters: parameters of the model, in its order; backward reaches the last ones first.
        precision: numbers of the messages; bf16 halves their bytes, and rounds to 8 bits each worker's sum and each
            addition on the way: the error grows with the number of workers.
        bucket_bytes: size of a bucket; a larger parameter is a bucket of its own.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        worker: Worker,
        precision: "Precision" = "fp32",
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        self._worker, self._precision, self._bucket_bytes = worker, precision, bucket_bytes
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._buckets: list[_Bucket] = []
        self._bucket_of: dict[nn.Parameter, _Bucket] = {}
        self._is_last = False
        self._num_sent = 0
        """Number of the first buckets that have left in this step."""
        if worker.num_workers > 1:
            for parameter in self._parameters:
                parameter.register_post_accumulate_grad_hook(self._note_ready)  # type: ignore[no-untyped-call]

    def backward(self, loss: Tensor, is_last: bool) -> None:
        """Add a micro-batch's gradients to those of the step; with the step's last one, they begin to leave.

        A step that begins anew after memory ran out sends no bucket twice: what has left counts, on all workers.
        """
        self._is_last = is_last
        for bucket in self._buckets:
            bucket.num_ready = 0
        loss.backward()  # type: ignore[no-untyped-call]

    def finish(self) -> None:
        """Wait until each gradient is the sum over all workers."""
        self._is_last = False
        if self._worker.num_workers == 1:
            return
        if not self._buckets:
            self._fill_buckets()
        for bucket in self._buckets:
            if bucket.message is None:
                self._send(bucket)
        for bucket in self._buckets:
            _receive(bucket)
        self._num_sent = 0

    def _note_ready(self, parameter: nn.Parameter) -> None:
        """Send the buckets that this gradient was the last of; in their order, as all workers must."""
        if not self._is_last or (bucket := self._bucket_of.get(parameter)) is None:
            return
        bucket.num_ready += 1
        while self._num_sent < len(self._buckets):
            first = self._buckets[self._num_sent]
            if first.message is None:
                if first.num_ready < len(first.parameters):
                    break
                self._send(first)
            self._num_sent += 1

    def _send(self, bucket: _Bucket) -> None:
        gradients = [
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad for parameter in bucket.parameters
        ]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        bucket.message = flat.bfloat16() if self._precision == "bf16" else flat
        bucket.work = torch.distributed.all_reduce(bucket.message, async_op=True)
        for parameter in bucket.parameters:
            parameter.grad = None  # its memory is the message's from here on

    def _fill_buckets(self) -> None:
        """Put parameters with a gradient on any worker into buckets, in the reverse order of the model."""
        found = [parameter.grad is not None for parameter in self._parameters]
        has_gradient = torch.tensor(found, dtype=torch.int32, device=self._worker.device)
        torch.distributed.all_reduce(has_gradient, op=torch.distributed.ReduceOp.MAX)
        for parameter, takes_part in reversed(list(zip(self._parameters, has_gradient.tolist(), strict=True))):
            if not takes_part:
                continue
            num_bytes = parameter.numel() * parameter.element_size()
            if not self._buckets or self._buckets[-1].num_bytes + num_bytes > self._bucket_bytes:
                self._buckets.append(_Bucket())
            bucket = self._buckets[-1]
            bucket.parameters.append(parameter)
            bucket.num_bytes += num_bytes
            self._bucket_of[parameter] = bucket


def _receive(bucket: _Bucket) -> None:
    """Wait for a bucket's sums; gradients become views of them, so that nothing is copied back."""
    assert bucket.message is not None
    bucket.work.wait()
    summed = bucket.message.float()
    sizes = [parameter.numel() for parameter in bucket.parameters]
    for parameter, gradient in zip(bucket.parameters, torch.split(summed, sizes), strict=True):
        parameter.grad = gradient.view_as(parameter)
    bucket.message = bucket.work = None


def read_for_all(checkpoints: "Checkpoints", worker: Worker, warn: Warn) -> Found:
    """Read the newest checkpoint, on all workers at once; the first one tidies up what older attempts left.

    Only the first worker reads, and sends the checkpoint to the others. So it is downloaded once, and all of them go on
    from the same step even where the newest one is damaged.

    Raises: on the first worker what `Checkpoints.read_newest` raises; then on the others the same error where it is one
        of the project, and RuntimeError otherwise, at which Ray starts the workers anew.
    """
    outcome: Found | Exception = None
    if worker.rank == 0:
        try:
            outcome = checkpoints.read_newest(warn)
            checkpoints.tidy(warn)
        except Exception as error:  # raised below: the others wait to be told
            outcome = error
    if worker.num_workers > 1:
        header = [_header_of(outcome)]
        torch.distributed.broadcast_object_list(header, src=0, device=worker.device)
        outcome = outcome or header[0]
    if isinstance(outcome, Exception):
        raise outcome
    if outcome is None or worker.num_workers == 1:
        return outcome
    event, state = outcome
    return event, _with_tensors(state, lambda tensor: _broadcast(tensor, worker))


def _header_of(outcome: Found | Exception) -> Found | Exception:
    """Message to the others before the tensors: all but their contents, or why there are none."""
    if isinstance(outcome, tuple):
        event, state = outcome
        return event, _with_tensors(state, lambda tensor: tensor.to("meta"))
    if outcome is None or isinstance(outcome, OWN_ERRORS):
        return outcome
    # The error itself may not survive pickling.
    return RuntimeError(f"the first worker could not read a checkpoint: {outcome!r}")


def _with_tensors(state: TrainingState, change: Callable[[Tensor], Tensor]) -> TrainingState:
    """The state with each of its tensors replaced."""
    weights, optimizer_tensors = (
        {name: change(tensor) for name, tensor in tensors.items()}
        for tensors in (state.weights, state.optimizer_tensors)
    )
    return replace(state, weights=weights, optimizer_tensors=optimizer_tensors)


def _broadcast(tensor: Tensor, worker: Worker) -> Tensor:
    """Return the first worker's tensor on the host, on all workers; the others give one without content."""
    values = torch.empty_like(tensor, device=worker.device) if tensor.is_meta else tensor.to(worker.device)
    torch.distributed.broadcast(values, src=0)
    return values.cpu()
