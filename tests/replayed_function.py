"""Stand-in for a CUDA graph on machines without one: it does a function again, and holds it to what a graph is held to.

A real graph repeats kernels on the addresses and with the numbers that they had in the capture, and runs no Python. So
the function must call the same operations each time, with the same shapes and numbers, and read nothing from outside
but memory that stays: what a replay does otherwise is an error here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from bert_core.cuda_graphs import Function


class ReplayedFunction:
    """A `Graph` of the CPU: a replay calls the function, and copies its results to where the capture left them."""

    def __init__(self) -> None:
        self.num_replays = 0

    def capture(self, function: Function) -> Sequence[Tensor | None]:
        """Warm up, then take down the operations; results hold no numbers yet."""
        function()
        with _Operations() as self._taken:
            self._results = function()
        self._function = function
        for result in self._results:
            if result is not None:
                result.detach().fill_(float("nan"))
        return self._results

    def replay(self) -> None:
        """Call the function again. Raises: AssertionError where a real graph would do something else."""
        self.num_replays += 1
        with _Operations() as again:
            results = self._function()
        for taken, found in zip(self._taken.calls, again.calls, strict=False):
            assert found == taken, f"a replay would do {taken}, not {found}"
        assert len(again.calls) == len(self._taken.calls)
        moved = again.inputs.keys() - self._taken.inputs.keys()
        assert not moved, f"a replay would not read memory that is new: {[again.inputs[place] for place in moved]}"
        for kept, result in zip(self._results, results, strict=True):
            assert (kept is None) == (result is None)
            if kept is not None and result is not None:
                kept.detach().copy_(result.detach())


class _Operations(TorchDispatchMode):
    """Records operations, and the memory from outside that they use."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []
        """Operations with their arguments; of tensors sizes and types alone."""
        self.inputs: dict[int, str] = {}
        """Memory that was there before, by its place, with the operation that used it first."""
        self._own: dict[int, Any] = {}
        self._kept: list[Any] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = (args, dict(kwargs or {}))
        is_number = func is torch.ops.aten.lift_fresh.default and args[0].dim() == 0  # as in x[1:] = 0, on a GPU too
        self.calls.append((str(func), args[0].item() if is_number else tree_map(_described, given)))
        for tensor in _tensors(given):
            memory = tensor.untyped_storage()
            if is_number:
                self._own[memory._cdata] = memory
            elif memory._cdata not in self._own:
                self.inputs.setdefault(memory._cdata, str(func))
                self._kept.append(memory)  # else its place could be taken by what is new
        made = func(*args, **given[1])
        for tensor in _tensors(made):
            memory = tensor.untyped_storage()
            if memory._cdata not in self.inputs:
                self._own[memory._cdata] = memory
        return made


def _tensors(values: Any) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


def _described(value: Any) -> Any:
    if isinstance(value, Tensor):
        return tuple(value.shape), value.stride(), str(value.dtype)
    return value if isinstance(value, bool | int | float | str | type(None)) else str(value)


def no_device_needed(device: torch.device) -> Any:
    """Stand-in for `graph_maker`: graphs of any device."""
    return ReplayedFunction
