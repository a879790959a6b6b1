"""The kernel of the cross entropy against the formula, on a GPU or else by Triton's interpreter.

Run alone: `make test-kernel`, on any Linux machine. PyTorch for CPUs comes without Triton, which this puts into a
folder beside it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bert_core.constants import IGNORE_INDEX
from bert_core.kernels import linear_cross_entropy
from bert_core.kernels.linear_cross_entropy import linear_cross_entropy_sums

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
pytest.importorskip("triton", reason="PyTorch's builds without CUDA come without Triton: make test-kernel")

from bert_core.kernels.fused_cross_entropy import cross_entropy_in_place  # noqa: E402

VOCABULARIES = [1, 7, 50, 4096, 4097, 9000]
"""Sizes below, at and between multiples of the kernel's block."""


def formula(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, right guesses and gradient of each row in float64: (R, V), (R,) → (R,), (R,), (R, V)."""
    logits = logits.double()
    is_counted = labels != IGNORE_INDEX
    columns = labels.where(is_counted, 0)[:, None]
    own = logits.gather(1, columns)
    losses = (logits.logsumexp(1, keepdim=True) - own).squeeze(1)
    is_right = (own.squeeze(1) == logits.amax(1)) & is_counted
    gradients = logits.softmax(1).scatter_add(1, columns, -torch.ones_like(own))
    return losses.where(is_counted, 0.0), is_right.double(), gradients.where(is_counted[:, None], 0.0)


def random_block(vocabulary: int, num_rows: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(vocabulary)
    logits = (3 * torch.randn(num_rows, vocabulary, generator=generator)).to(dtype)
    labels = torch.randint(0, vocabulary, (num_rows,), generator=generator)
    return logits.to(DEVICE), labels.to(DEVICE)


def assert_agrees_with_formula(logits: Tensor, labels: Tensor, num_columns: int) -> None:
    """The kernel on a copy of the logits gives what the formula does."""
    expected_losses, expected_right, expected = formula(logits[:, :num_columns], labels)
    own = logits.clone()
    losses, is_right = cross_entropy_in_place(own, labels, num_columns, with_gradients=True)
    torch.testing.assert_close(losses.double(), expected_losses, atol=1e-4, rtol=1e-5)
    assert torch.equal(is_right.double(), expected_right)
    sixteen_bit = 2**-8 if DEVICE == "cuda" else 2**-7  # the interpreter cuts digits off, where a GPU rounds
    relative = 1e-5 if logits.dtype == torch.float32 else sixteen_bit
    torch.testing.assert_close(own[:, :num_columns].double(), expected, atol=1e-6, rtol=relative)
    assert not own[:, num_columns:].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_values_and_gradients_are_those_of_the_formula(vocabulary: int, dtype: torch.dtype) -> None:
    assert_agrees_with_formula(*random_block(vocabulary, 3, dtype), vocabulary)


def test_padding_takes_no_part_and_becomes_zero() -> None:
    logits, labels = random_block(4160, 3, torch.bfloat16)
    logits[:, 4100:] = 50.0
    assert_agrees_with_formula(logits, labels % 4100, 4100)


def test_ignored_rows_become_zero() -> None:
    logits, labels = random_block(50, 4, torch.float32)
    labels[1] = labels[3] = IGNORE_INDEX
    assert_agrees_with_formula(logits, labels, 50)


def test_extreme_logits_neither_overflow_nor_lose_the_loss() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4], [1e4, 1e4, 1e4]], device=DEVICE)
    for labels in ([0, 0, 0], [1, 1, 1], [2, 2, 2]):
        assert_agrees_with_formula(logits, torch.tensor(labels, device=DEVICE), 3)


def test_a_label_among_several_largest_logits_counts_as_right() -> None:
    logits = torch.tensor([[2.0, 2.0, 1.0]], device=DEVICE).repeat(3, 1)
    _, is_right = cross_entropy_in_place(logits, torch.tensor([0, 1, 2], device=DEVICE), 3, with_gradients=False)
    assert is_right.tolist() == [1.0, 1.0, 0.0]


def test_without_gradients_the_logits_stay() -> None:
    logits, labels = random_block(50, 2, torch.float32)
    before = logits.clone()
    cross_entropy_in_place(logits, labels, 50, with_gradients=False)
    assert torch.equal(logits, before)


def test_no_rows_give_no_losses() -> None:
    logits, labels = random_block(50, 0, torch.float32)
    losses, is_right = cross_entropy_in_place(logits, labels, 50, with_gradients=True)
    assert losses.shape == is_right.shape == (0,)


@pytest.mark.parametrize("num_rows", [0, 5, 80])
def test_the_output_layer_with_the_kernel_agrees_with_itself_without(
    num_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(num_rows)
    shapes = ((num_rows, 16), (50, 16), (50,))
    tensors = [torch.randn(shape, generator=generator).to(DEVICE).requires_grad_() for shape in shapes]
    labels = torch.randint(0, 50, (num_rows,), generator=generator).to(DEVICE)
    labels[::3] = IGNORE_INDEX
    results = []
    for kernel in (None, cross_entropy_in_place):
        monkeypatch.setattr(linear_cross_entropy, "_fused_kernel", lambda device, kernel=kernel: kernel)
        multiple = 1 if kernel is None else 64
        monkeypatch.setattr(linear_cross_entropy, "_column_multiple", lambda *_, multiple=multiple: multiple)
        sums = linear_cross_entropy_sums(*tensors, labels)
        results.append([*sums, *torch.autograd.grad(sums[0], tensors)])
    torch.testing.assert_close(results[1], results[0], atol=1e-5, rtol=1e-5)


COMPILATION = """
import sys, triton
from triton.backends.compiler import GPUTarget
from bert_core.kernels.fused_cross_entropy import _rows_kernel

signature = {"logits": "*bf16", "labels": "*i64", "losses": "*fp32", "is_right": "*fp32", "row_stride": "i32"}
constants = {"num_columns": 30522, "width": 30528, "ignored": -100, "with_gradients": True, "block": 4096}
multiples_of_16 = {(place,): [["tt.divisibility", 16]] for place in (0, 4)}
source = triton.compiler.ASTSource(_rows_kernel, signature, constants, multiples_of_16)
print(triton.compile(source, target=GPUTarget("cuda", int(sys.argv[1]), 32), options={"num_warps": 8}).asm["ptx"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
def test_it_compiles_for_gpus_and_moves_sixteen_bytes_at_a_time(capability: int, tmp_path: Path) -> None:
    """The kernel compiles in a process of its own: what has been loaded for the interpreter cannot be compiled."""
    variables = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", COMPILATION, str(capability)]
    assembly = subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout
    assert "ld.global.v4.b32" in assembly
    assert "st.global.v4.b32" in assembly
