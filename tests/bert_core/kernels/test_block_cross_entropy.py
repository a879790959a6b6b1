"""Which kernel a GPU's cross entropy takes. Run alone: pytest tests/bert_core/kernels/test_block_cross_entropy.py"""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch

from bert_core.kernels.block_cross_entropy import _fused_kernel

GPU = torch.device("cuda", 0)
MODULE = "bert_core.kernels.fused_cross_entropy"


@pytest.fixture(autouse=True)
def an_ampere_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A GPU by its capability; its tensors lie on the CPU."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *shape, **options: zeros(*shape, **(options | {"device": "cpu"})))
    _fused_kernel.cache_clear()
    yield
    _fused_kernel.cache_clear()


def offer(monkeypatch: pytest.MonkeyPatch, kernel: Any) -> None:
    """Put a kernel in the place of Triton's."""
    module = ModuleType(MODULE)
    module.cross_entropy_in_place = kernel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, MODULE, module)


def test_a_kernel_that_runs_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(logits: torch.Tensor, labels: torch.Tensor, num_columns: int, with_gradients: bool) -> None:
        assert (logits.shape, logits.dtype, num_columns) == ((1, 64), torch.bfloat16, 63)

    offer(monkeypatch, kernel)
    assert _fused_kernel(GPU) is kernel


def test_a_cpu_and_an_old_gpu_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, lambda *arguments: None)
    assert _fused_kernel(torch.device("cpu")) is None
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert _fused_kernel(GPU) is None


def test_without_triton_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, None)
    assert _fused_kernel(GPU) is None


def test_a_kernel_that_cannot_be_built_is_named_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(*arguments: object) -> None:
        raise RuntimeError("Failed to find C compiler")

    offer(monkeypatch, kernel)
    with pytest.warns(UserWarning, match="Failed to find C compiler.*takes longer. Triton needs a C compiler"):
        assert _fused_kernel(GPU) is None


def test_an_error_of_tritons_own_is_caught_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    class TritonError(Exception):
        pass

    errors = ModuleType("triton.errors")
    errors.TritonError = TritonError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton", ModuleType("triton"))
    monkeypatch.setitem(sys.modules, "triton.errors", errors)

    def kernel(*arguments: object) -> None:
        raise TritonError("out of resource: shared memory")

    offer(monkeypatch, kernel)
    with pytest.warns(UserWarning, match="out of resource"):
        assert _fused_kernel(GPU) is None
