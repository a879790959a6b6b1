"""Setting of a run of the GPU benchmark: device, full or small form, and the time that is left."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from bert_core.config import BertConfig

T = TypeVar("T")

# cuBLAS reads it once: without it, deterministic algorithms cannot be asked of it. Hopper's default is as large.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

SMALL_SIZE = "2x64"
"""Name of the small form's model: processors without 16-bit units take long for a larger one."""

SMALL_FIRST_ROWS = 64
"""Tokens that compiled layers meet first in the small form."""


@dataclass(frozen=True)
class Setting:
    """Choices that are the same for all stages."""

    device: torch.device
    is_small: bool = False
    """Whether everything is tiny: the same code in seconds, for machines without a card."""

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def choose(self, full: T, small: T) -> T:
        """Take the value of the full or of the small form."""
        return small if self.is_small else full

    def build_config(self, size: str, **changes: Any) -> BertConfig:
        """Make the configuration of a size; in the small form that of SMALL_SIZE, whatever the size."""
        if self.is_small:
            return BertConfig.from_shape(2, 64, **{"vocab_size": 300, **changes})
        return BertConfig.from_size(size, **changes)

    def synchronize(self) -> None:
        """Wait until the device has done all that was asked of it."""
        if self.is_cuda:
            torch.cuda.synchronize(self.device)

    def ms(self, function: Callable[[], object], repeats: int = 1) -> float:
        """Measure the milliseconds of one call, from the wall-clock time of `repeats` calls in a row."""
        return self.host_and_device_ms(function, repeats)[1]

    def host_and_device_ms(self, function: Callable[[], object], repeats: int = 1) -> tuple[float, float]:
        """Measure one call as `ms` does: until the host has put its work in line, and until the device has done it."""
        self.synchronize()
        started = time.perf_counter()
        for _ in range(repeats):
            function()
        issued = time.perf_counter()
        self.synchronize()
        return 1000 * (issued - started) / repeats, 1000 * (time.perf_counter() - started) / repeats


class Budget:
    """Seconds that a stage may take; it looks at them before each of its cases."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Seconds that are left, at least 0."""
        return max(0.0, self._ends - time.monotonic())

    @property
    def is_spent(self) -> bool:
        return self.left_s == 0.0


PRECISIONS = ("fp32", "tf32", "bf16")
"""Precisions of products: 24 bits; 11 bits inside a product of fp32 numbers, on CUDA only; 8 bits by autocast."""
UNIT_ROUNDOFF = {"fp32": 2.0**-24, "tf32": 2.0**-11, "bf16": 2.0**-8}
"""Largest relative error of rounding a number to a precision (Higham 2002, section 2.1)."""


@contextmanager
def product_precision(precision: str) -> Iterator[None]:
    """Multiply fp32 matrices in one of PRECISIONS during the block; bf16 is a type of its own."""
    before, of_cudnn_before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"  # of an LSTM, and on by default
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cudnn.allow_tf32 = of_cudnn_before


@contextmanager
def in_precision(precision: str, device: torch.device) -> Iterator[None]:
    """Run models in one of PRECISIONS during the block."""
    with product_precision(precision), torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
        yield


def precisions_on(device: torch.device) -> tuple[str, ...]:
    return PRECISIONS if device.type == "cuda" else ("fp32", "bf16")
