"""Attention backends and models against float64. Run alone: pytest tests/gpu/test_parity.py

On a machine with a GPU and without the project's other dependencies: python -m benchmarks.gpu --check
"""

import itertools

import pytest
import torch

from benchmarks.gpu import execution_parity, parity, relative_errors
from benchmarks.gpu.model_losses import HEADS
from bert_core.attention import BACKENDS
from bert_core.attention.backend import AttentionCall
from bert_core.attention.padded import ReferenceAttention
from bert_core.families import FAMILY_NAMES
from bert_core.kernels import linear_cross_entropy
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


@ON_EACH_DEVICE
def test_the_loss_of_a_vocabulary_agrees_with_its_definition(device: str) -> None:
    row = parity.compare_vocabulary_loss(small_setting(device))
    assert row["ok"], row
    assert {"fp32 value", "fp32 gradient", "bf16 value", "bf16 gradient"} <= row.keys()


def test_a_block_of_a_vocabularys_loss_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_cross_entropy, "_CPU_BLOCK_ROWS", 300)
    add_block, num_blocks = linear_cross_entropy.add_block, itertools.count()

    def first_alone(*arguments: object) -> None:
        if next(num_blocks) % 2 == 0:
            add_block(*arguments)

    monkeypatch.setattr(linear_cross_entropy, "add_block", first_alone)
    assert parity.compare_vocabulary_loss(small_setting("cpu"))["ok"] is False


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
    row = relative_errors.errors(
        "fp32", lambda: (torch.ones(2), torch.ones(2)), lambda: (torch.tensor([torch.nan, 1]), torch.ones(2)), (4, 4)
    )
    assert relative_errors.with_verdict(row)["ok"] is False


def test_tolerance_grows_with_roundoff_and_chains_of_roundings() -> None:
    assert relative_errors.tolerance("bf16", 4) == 4 * 2.0**-8
    assert relative_errors.tolerance("tf32", 16) == 8 * 2.0**-11
    assert (
        relative_errors.tolerance("fp32", 4)
        < relative_errors.tolerance("tf32", 4)
        < relative_errors.tolerance("bf16", 4)
    )


@ON_EACH_DEVICE
@pytest.mark.filterwarnings("default")  # the compiler's own
def test_compiled_layers_agree_with_eager_ones(device: str) -> None:
    row = execution_parity.compare_compiled(small_setting(device))
    assert row["ok"], row


@pytest.mark.parametrize(
    ("name", "capability", "dtype", "is_causal", "expected"),
    [
        ("varlen", (8, 0), torch.bfloat16, False, True),
        ("varlen", (7, 5), torch.bfloat16, False, False),
        ("varlen", None, torch.bfloat16, False, False),
        ("varlen", (9, 0), torch.float32, False, False),
        ("varlen", (9, 0), torch.bfloat16, True, False),
        ("grouped", (9, 0), torch.bfloat16, False, False),
    ],
)
def test_varlen_attention_has_to_take_the_plain_call_on_new_cards(
    name: str, capability: tuple[int, int] | None, dtype: torch.dtype, is_causal: bool, expected: bool
) -> None:
    backend = next(each for each in BACKENDS if each.name == name)
    call = AttentionCall("cuda", dtype, is_causal=is_causal, compute_capability=capability)
    assert parity.is_expected(backend, call) is expected


def test_a_backend_that_refuses_what_it_has_to_take_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    varlen = next(each for each in BACKENDS if each.name == "varlen")
    assert "ok" not in parity.compare_backend(small_setting("cpu"), varlen, "plain")
    monkeypatch.setattr(parity, "is_expected", lambda backend, call: call.dtype == torch.bfloat16)
    row = parity.compare_backend(small_setting("cpu"), varlen, "plain")
    assert row == {"fp32": "not used: runs on CUDA only", "bf16": "failed: runs on CUDA only", "ok": False}
