"""Operations that make the host wait for a GPU, found on a machine without one.

A CUDA kernel is only put in line by the host, which may be far ahead of the device. Some operations need a value, or a
shape that depends on values, and so the host waits until the device has worked off its line: a step then costs its
kernels' time and the host's. On a CPU nothing waits, but the same operations are called, and they are recorded here.

Batches are built on the host: build them before the block.
"""

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_ROOT = Path(__file__).resolve().parents[1]

GPU = torch.device("cuda", 0)
"""Device that `FakeGpu` stands for."""

_BY_VALUE = frozenset(
    {"_local_scalar_dense", "bincount", "equal", "is_nonzero", "item", "masked_select", "nonzero", "nonzero_numpy"}
    | {"_unique", "_unique2", "unique_consecutive", "unique_dim", "unique_dim_consecutive"}
)
"""Operations of ATen that wait whatever their arguments are."""

_HOST_COPIES = frozenset({Tensor.cpu, Tensor.numpy, Tensor.tolist})
"""Methods that copy to the host. On a CPU they reach no operation, so they are seen as calls from Python."""

_HOST_VALUES = frozenset({torch.tensor, torch.as_tensor})
"""Functions that copy numbers of the host to the device that is named, from memory that the device cannot read."""


@contextmanager
def counted_synchronizations() -> Iterator[list[str]]:
    """Yield a list that gets a line for each operation of the block, backward included, that would wait on CUDA.

    A line names the operation and the innermost line of `bert_core`, `orchestrator` or a test that called it. Copies
    from the host count unless they say `non_blocking=True`.

    >>> with counted_synchronizations() as waits:
    ...     _ = torch.ones(3).sum()
    ...     _ = torch.ones(3).nonzero()
    >>> [wait.split(" ")[0] for wait in waits]
    ['nonzero']
    """
    found: list[str] = []
    with _Calls(found), _Operations(found):
        yield found


class FakeGpu(TorchFunctionMode):
    """A device whose memory is the host's: it counts what is copied to `GPU`, and refuses copies that would wait."""

    def __init__(self) -> None:
        super().__init__()
        self.num_transfers = 0
        self._page_locked: set[int] = set()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        if func is torch.empty and options.pop("pin_memory", False):
            memory = func(*args, **options)
            self._page_locked.add(memory.data_ptr())
            return memory
        if func is Tensor.to and GPU in args:
            assert options.get("non_blocking"), "the host would wait for this copy"
            assert args[0].data_ptr() in self._page_locked, "the host would wait for a copy from ordinary memory"
            self.num_transfers += 1
            return args[0].clone()
        return func(*args, **options)


class _Operations(TorchDispatchMode):
    """Records operations by their name and arguments."""

    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name, options = func.overloadpacket.__name__, dict(kwargs or {})
        if name in _BY_VALUE or _has_shape_by_value(name, args, options) or _copies_to_host(name, args, options):
            self.found.append(f"{name} {_place()}")
        return func(*args, **options)


class _Calls(TorchFunctionMode):
    """Records calls from Python that are no operation where all tensors are on the CPU."""

    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        names_device = options.get("device") is not None
        if (
            func in _HOST_COPIES
            or (func in _HOST_VALUES and names_device)
            or func is Tensor.new_tensor
            or (func is Tensor.to and _moves(args[1:], options) and not options.get("non_blocking"))
        ):
            self.found.append(f"{func.__name__} {_place()}")
        return func(*args, **options)


def _has_shape_by_value(name: str, args: tuple[Any, ...], options: Mapping[str, Any]) -> bool:
    if name == "repeat_interleave":
        return options.get("output_size") is None
    if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
        by_mask = any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
        fills = name != "index" and args[2].numel() == 1  # one value goes through masked_fill, which does not wait
        return by_mask and not fills
    return False


def _copies_to_host(name: str, args: tuple[Any, ...], options: Mapping[str, Any]) -> bool:
    if name != "_to_copy" or options.get("non_blocking"):
        return False
    target = options.get("device")
    return target is not None and args[0].device.type != "cpu" and torch.device(target).type == "cpu"


def _moves(args: tuple[Any, ...], options: Mapping[str, Any]) -> bool:
    """Whether the arguments of `Tensor.to` name a device."""
    targets = (*args, *options.values())
    return any(isinstance(target, torch.device | str | Tensor) for target in targets)


def _place() -> str:
    for frame in reversed(traceback.extract_stack()):
        path = Path(frame.filename)
        if path.is_relative_to(_ROOT) and path != Path(__file__).resolve() and ".venv" not in path.parts:
            return f"({path.relative_to(_ROOT)}:{frame.lineno})"
    return "(elsewhere)"
