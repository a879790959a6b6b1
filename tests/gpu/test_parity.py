"""Attention backends and models against float64. Run alone: pytest tests/gpu/test_parity.py

On a machine with a GPU and without the project's other dependencies: python -m benchmarks.gpu --check
"""

import pytest
import torch

from benchmarks.gpu import parity
from benchmarks.gpu.model_losses import HEADS
from bert_core.attention import BACKENDS
from bert_core.attention.padded import ReferenceAttention
from bert_core.families import FAMILY_NAMES
from tests.gpu.devices import ON_EACH_DEVICE, small_setting


@ON_EACH_DEVICE
@pytest.mark.parametrize("kind", parity.KINDS)
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_attention_agrees_with_its_definition(backend: object, kind: str, device: str) -> None:
    row = parity.compare_backend(small_setting(device), backend, kind)
    assert row.get("ok", True), row
    assert row


@ON_EACH_DEVICE
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_models_agree_with_themselves_in_double_precision(family: str, head: str, device: str) -> None:
    row = parity.compare_model(small_setting(device), family, head)
    assert row["ok"], row


class SlightlyWrong(ReferenceAttention):
    """Contexts that are a twentieth too large."""

    name = "slightly wrong"

    def __call__(self, *arguments: object) -> torch.Tensor:
        return 1.05 * super().__call__(*arguments)


class Broken(ReferenceAttention):
    """A kernel that does not run."""

    name = "broken"

    def __call__(self, *arguments: object) -> torch.Tensor:
        raise RuntimeError("no kernel image\nis available")


def test_a_wrong_backend_is_found_in_every_precision() -> None:
    row = parity.compare_backend(small_setting("cpu"), SlightlyWrong(), "plain")
    assert row["ok"] is False
    assert row["fp32 value"] == pytest.approx(0.05, rel=0.01)
    assert row["bf16 value"] > row["bf16 value allowed"]


def test_a_kernel_that_does_not_run_is_a_failure_with_its_message() -> None:
    row = parity.compare_backend(small_setting("cpu"), Broken(), "plain")
    assert row["ok"] is False
    assert row["fp32"] == "failed: RuntimeError: no kernel image"


def test_not_a_number_is_never_allowed() -> None:
    row = parity.errors(
        "fp32", lambda: (torch.ones(2), torch.ones(2)), lambda: (torch.tensor([torch.nan, 1]), torch.ones(2)), (4, 4)
    )
    assert parity.with_verdict(row)["ok"] is False


def test_tolerance_grows_with_roundoff_and_chains_of_roundings() -> None:
    assert parity.tolerance("bf16", 4) == 4 * 2.0**-8
    assert parity.tolerance("tf32", 16) == 8 * 2.0**-11
    assert parity.tolerance("fp32", 4) < parity.tolerance("tf32", 4) < parity.tolerance("bf16", 4)
