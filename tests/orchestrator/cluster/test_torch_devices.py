"""How a process multiplies fp32 matrices on its device, and in which order it adds up.

Run alone: pytest tests/orchestrator/cluster/test_torch_devices.py
"""

import os
from collections.abc import Iterator

import pytest
import torch

from orchestrator.cluster.torch_devices import choose_device, keep_one_order
from tests.orchestrator.training.cards_in_place import put_in_place


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    yield
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


@pytest.mark.parametrize(("allow_tf32", "precision"), [(True, "high"), (False, "highest")])
def test_a_gpu_multiplies_as_it_is_allowed_to(
    allow_tf32: bool, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in_place(monkeypatch)
    torch.set_float32_matmul_precision("medium")
    assert choose_device("cuda", allow_tf32) == torch.device("cuda")
    assert torch.get_float32_matmul_precision() == precision
    assert torch.backends.cudnn.allow_tf32 == allow_tf32


def test_a_cpu_is_left_as_it_is() -> None:
    before = torch.get_float32_matmul_precision()
    assert choose_device("cpu") == torch.device("cpu")
    assert torch.get_float32_matmul_precision() == before


def test_one_order_is_asked_of_torch_and_of_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    try:
        keep_one_order()
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    finally:
        torch.use_deterministic_algorithms(False)
