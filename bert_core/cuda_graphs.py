"""CUDA graphs: the kernels of a forward and a backward pass, put in line once for each size and then replayed at once.

The host takes about as long to put a small model's kernels in line as the device takes to run them, and a replay is one
call. It does the same work on the same memory, so that a function that is captured reads its numbers from tensors that
stay where they are. Sizes, and whatever else Python knows, are those of the capture. Nothing in it may wait for the
device, or copy from memory of the host.

What a replay draws, as dropout does, follows from the seed and offset that torch's generator of the device has then
(CUDAGeneratorImpl.h in PyTorch), so `torch.manual_seed` before a replay decides it, as before any other pass.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

_NUM_WARM_UPS = 3
"""Passes before a capture, as in PyTorch's documentation: libraries make their handles, compilers their kernels."""

Function = Callable[[], Sequence[Tensor | None]]
"""Work on a device; it returns the tensors that it leaves there, always as many."""


class Graph(Protocol):
    """Work on a device that is described once, and then done again and again."""

    def capture(self, function: Function) -> Sequence[Tensor | None]:
        """Take down what a function does. Returns its tensors, which hold its results after each replay, not before."""

    def replay(self) -> None:
        """Do the work again, on the same memory."""


class CudaGraph:
    """Graph of a CUDA device.

    Args:
        stream: stream for captures, the same for all graphs of a pool.
        pool: memory for what a graph makes, as `torch.cuda.graph_pool_handle` returns it. Graphs may share it where no
            two are replayed at a time, and what one returns is kept.
    """

    def __init__(self, stream: torch.cuda.Stream, pool: Any) -> None:
        self._stream, self._pool = stream, pool
        self._graph = torch.cuda.CUDAGraph()

    def capture(self, function: Function) -> Sequence[Tensor | None]:
        """Run a function several times, then take it down; see `Graph`."""
        # On the stream of the capture: libraries keep a handle, and autograd its nodes, for each stream.
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            for _ in range(_NUM_WARM_UPS):
                function()
        # The feed's thread allocates pinned memory meanwhile, which a capture of all threads would not bear.
        mode = "thread_local"
        with torch.cuda.graph(self._graph, pool=self._pool, stream=self._stream, capture_error_mode=mode):
            return function()

    def replay(self) -> None:
        """Do the work again, on the current stream."""
        self._graph.replay()


def graph_maker(device: torch.device) -> Callable[[], Graph] | None:
    """Return a function that makes graphs of a device; None where the device has none."""
    if device.type != "cuda":
        return None
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    pool = torch.cuda.graph_pool_handle()
    return lambda: CudaGraph(stream, pool)


@dataclass(frozen=True)
class _Pass:
    """Capture for a size: its graph, and the tensors that it reads and fills."""

    graph: Graph
    inputs: Sequence[Tensor]
    """Tensors that a replay reads its numbers from."""
    result: Tensor
    gradients: Sequence[Tensor | None]


class ReplayedPasses:
    """Forward and backward passes of a model: captured where a size is first met, and replayed.

    Args:
        parameters: all parameters of the model.
        new_graph: makes the graph of a size.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], new_graph: Callable[[], Graph]) -> None:
        self._parameters, self._new_graph = list(parameters), new_graph
        self._passes: dict[Hashable, _Pass] = {}

    @property
    def num_captured(self) -> int:
        """Number of sizes that are captured now."""
        return len(self._passes)

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
        if (found := self._passes.get(size)) is None:
            found = self._passes[size] = self._capture(inputs, compute)
        for own, given in zip(found.inputs, inputs, strict=True):
            own.copy_(given)
        torch.manual_seed(seed)
        found.graph.replay()
        for parameter, gradient in zip(self._parameters, found.gradients, strict=True):
            parameter.grad = gradient
        return found.result.clone()

    def clear(self) -> None:
        """Give back the memory of all passes; what comes next is captured anew."""
        self._passes.clear()

    def _capture(self, inputs: Sequence[Tensor], compute: Callable[[Sequence[Tensor]], tuple[Tensor, Tensor]]) -> _Pass:
        own_inputs = [tensor.clone() for tensor in inputs]

        def forward_and_backward() -> Sequence[Tensor | None]:
            self._clear_gradients()  # so that backward makes them anew, in the graph's memory
            loss, result = compute(own_inputs)
            loss.backward()  # type: ignore[no-untyped-call]
            gradients = [parameter.grad for parameter in self._parameters]
            self._clear_gradients()
            return result, *gradients

        graph = self._new_graph()
        result, *gradients = graph.capture(forward_and_backward)
        assert result is not None
        return _Pass(graph, own_inputs, result, gradients)

    def _clear_gradients(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None
