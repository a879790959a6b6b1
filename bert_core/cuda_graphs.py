"""CUDA graphs: the kernels of a forward and a backward pass, launched once for each size and then replayed at once.

The host takes several times as long to launch a small model's kernels as the device takes to run them; a replay is one
launch. It does the same work on the same memory, so a function that is captured reads its numbers from tensors that
stay where they are. Sizes, and whatever else Python knows, are those of the capture. Nothing in it may wait for the
device, or copy from memory of the host.

What a replay draws, as dropout does, follows from the seed and offset that torch's generator of the device has then
(CUDAGeneratorImpl.h in PyTorch): `seed_dropout` before a replay decides it, as before any other pass.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bert_core.kernels.dropout import seed_dropout

_NUM_WARM_UPS = 3
"""Passes before a capture, as in PyTorch's documentation: libraries make their handles, compilers their kernels."""

Work = Callable[[], None]
Capture = Callable[[Work], Work]
"""Function that takes down work on a device. Returns a function that does it again, on the same memory."""


def capture_on(device: torch.device) -> Capture:
    """Make the `Capture` of a CUDA device; what it captures shares its memory, so that one is replayed at a time."""
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    pool = torch.cuda.graph_pool_handle()

    def capture(work: Work) -> Work:
        # On the stream of the capture: libraries keep a handle, and autograd its nodes, for each stream.
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(_NUM_WARM_UPS):
                work()
        graph = torch.cuda.CUDAGraph()
        # Another thread may allocate pinned memory meanwhile, which a capture of all threads would not bear.
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            work()
        return graph.replay

    return capture


@dataclass(frozen=True)
class _Pass:
    """Capture of a size: the tensors that a replay reads and fills."""

    inputs: Sequence[Tensor]
    results: list[Tensor]
    """The result of the last pass, alone."""
    replay: Work


class ReplayedPasses:
    """Forward and backward passes of a model: captured where a size is first met, and replayed."""

    def __init__(self, model: nn.Module, device: torch.device, capture: Capture) -> None:
        self._parameters, self._device, self._capture = list(model.parameters()), device, capture
        self._passes: dict[Hashable, _Pass] = {}
        self._gradients: dict[nn.Parameter, Tensor] = {}
        """Memory of the gradients, the same for all sizes; a parameter that the loss does not reach has none."""

    def run(
        self,
        size: Hashable,
        inputs: Sequence[Tensor],
        compute: Callable[[Sequence[Tensor]], tuple[Tensor, Tensor]],
        seed: int,
    ) -> Tensor:
        """Compute a result and the gradients of a loss. Gradients are the parameters' until the next call.

        Args:
            size: says what `compute` depends on beside the numbers in `inputs`, their shapes included.
            compute: returns a loss and the result, from tensors like `inputs`.
            seed: decides what is drawn.
        """
        if size not in self._passes:
            self._passes[size] = self._captured(inputs, compute)
        found = self._passes[size]
        for own, given in zip(found.inputs, inputs, strict=True):
            own.copy_(given)
        seed_dropout(seed, self._device)
        found.replay()
        for parameter, gradient in self._gradients.items():
            parameter.grad = gradient
        return found.results[0].clone()

    def clear(self) -> None:
        """Give back the memory of all passes; what comes next is captured anew."""
        self._passes.clear()
        self._gradients.clear()

    def _captured(
        self, inputs: Sequence[Tensor], compute: Callable[[Sequence[Tensor]], tuple[Tensor, Tensor]]
    ) -> _Pass:
        own, results = [tensor.clone() for tensor in inputs], list[Tensor]()

        def forward_and_backward() -> None:
            if self._gradients:
                torch._foreach_zero_(list(self._gradients.values()))
            for parameter in self._parameters:
                parameter.grad = self._gradients.get(parameter)
            loss, result = compute(own)
            results[:] = [result]
            loss.backward()  # type: ignore[no-untyped-call]
            if not self._gradients:
                self._gradients = {each: each.grad for each in self._parameters if each.grad is not None}

        return _Pass(own, results, self._capture(forward_and_backward))
