"""Output layer and loss in one, and which kernel a GPU takes.

Alone: pytest tests/bert_core/kernels/test_linear_cross_entropy.py
"""

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from bert_core.constants import IGNORE_INDEX
from bert_core.kernels import linear_cross_entropy
from bert_core.kernels.linear_cross_entropy import _fused_kernel, linear_cross_entropy_sums, vocabulary_logits
from tests.synchronizations import counted_synchronizations


def inputs(count: int, vocabulary: int = 50, width: int = 16) -> tuple[list[torch.Tensor], torch.Tensor]:
    generator = torch.Generator().manual_seed(count)
    shapes = ((count, width), (vocabulary, width), (vocabulary,))
    tensors = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
    return tensors, torch.randint(0, vocabulary, (count,), generator=generator)


@pytest.mark.parametrize("count", [0, 1, 40, 700])  # the last one takes several blocks
def test_values_and_gradients_are_those_of_the_logits(count: int) -> None:
    tensors, labels = inputs(count)
    loss, correct, total = linear_cross_entropy_sums(*tensors, labels)
    logits = F.linear(*tensors)
    expected = F.cross_entropy(logits, labels, reduction="sum")
    torch.testing.assert_close(loss, expected)
    assert (int(correct), int(total)) == (int((logits.argmax(-1) == labels).sum()), count)
    assert not correct.requires_grad
    gradients = torch.autograd.grad(loss * 0.3, tensors)
    for own, theirs in zip(gradients, torch.autograd.grad(expected * 0.3, tensors), strict=True):
        torch.testing.assert_close(own, theirs, atol=1e-5, rtol=1e-4)


def test_bf16_autocast_stays_close_and_sums_in_full_precision() -> None:
    tensors, labels = inputs(700)
    full = linear_cross_entropy_sums(*tensors, labels)[0]
    with torch.autocast("cpu", torch.bfloat16):
        loss, _, _ = linear_cross_entropy_sums(*tensors, labels)
    assert loss.dtype == torch.float32
    assert float(loss.detach()) == pytest.approx(float(full.detach()), rel=2e-3)
    gradients = torch.autograd.grad(loss, tensors)
    for own, expected in zip(gradients, torch.autograd.grad(full, tensors), strict=True):
        assert own.dtype == torch.float32
        assert float((own - expected).norm()) < 0.02 * float(expected.norm())


def test_large_logits_do_not_overflow() -> None:
    hidden, weight, bias = torch.tensor([[1e4]]), torch.tensor([[1.0], [-1.0]]), torch.zeros(2)
    assert float(linear_cross_entropy_sums(hidden, weight, bias, torch.tensor([0]))[0]) == 0.0
    assert float(linear_cross_entropy_sums(hidden, weight, bias, torch.tensor([1]))[0]) == 2e4


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_none_are_made(mode: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    tensors, labels = inputs(5)
    expected = linear_cross_entropy_sums(*tensors, labels)[0]

    def refuse(*_: torch.Tensor) -> torch.Tensor:
        raise AssertionError("a gradient was made that nobody asked for")

    monkeypatch.setattr(linear_cross_entropy, "weight_gradient", refuse)
    with mode():
        torch.testing.assert_close(linear_cross_entropy_sums(*tensors, labels)[0], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_ignored_labels_are_as_if_their_rows_were_not_there(share: float, dtype: torch.dtype) -> None:
    tensors, labels = inputs(600)
    ignored = torch.rand(600, generator=torch.Generator().manual_seed(0)) < share
    hidden, weight, bias = (tensor.detach().to(dtype).requires_grad_() for tensor in tensors)
    sums = linear_cross_entropy_sums(hidden, weight, bias, labels.where(~ignored, IGNORE_INDEX))
    expected = linear_cross_entropy_sums(hidden[~ignored], weight, bias, labels[~ignored])
    torch.testing.assert_close(sums, expected)
    gradients = torch.autograd.grad(sums[0], (hidden, weight, bias))
    assert not gradients[0][ignored].any()
    exact = {"atol": 1e-5, "rtol": 1e-4} if dtype == torch.float32 else {"atol": 0.1, "rtol": 0.02}
    for own, theirs in zip(gradients, torch.autograd.grad(expected[0], (hidden, weight, bias)), strict=True):
        torch.testing.assert_close(own, theirs, **exact)


def test_the_loss_goes_backward_once() -> None:
    tensors, labels = inputs(5)
    loss = linear_cross_entropy_sums(*tensors, labels)[0]
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="goes backward once; compute it again"):
        loss.backward()


def test_nothing_waits_for_the_device() -> None:
    tensors, labels = inputs(40)
    labels[::3] = IGNORE_INDEX
    with counted_synchronizations() as waits:
        linear_cross_entropy_sums(*tensors, labels)[0].backward()
    assert waits == []


@pytest.mark.parametrize("autocast", [False, True])
def test_a_padded_vocabulary_gives_the_same(autocast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors, labels = inputs(600)
    labels[::7] = IGNORE_INDEX
    results = []
    for multiple in (1, 64):  # of 50
        monkeypatch.setattr(linear_cross_entropy, "_column_multiple", lambda *_, multiple=multiple: multiple)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            sums = linear_cross_entropy_sums(*tensors, labels)
        results.append([*sums, *torch.autograd.grad(sums[0], tensors)])
    torch.testing.assert_close(results[1], results[0], atol=1e-5, rtol=2**-7 if autocast else 1e-5)


@pytest.mark.parametrize("autocast", [False, True])
def test_logits_of_a_padded_vocabulary_are_the_same(autocast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for multiple in (1, 64):
        monkeypatch.setattr(linear_cross_entropy, "_column_multiple", lambda *_, multiple=multiple: multiple)
        tensors, labels = inputs(5)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = vocabulary_logits(*tensors)
        F.cross_entropy(logits.float(), labels).backward()
        results.append([logits.detach(), *(tensor.grad for tensor in tensors)])
    assert results[0][0].shape == results[1][0].shape == (5, 50)
    assert results[0][0].dtype == results[1][0].dtype
    for plain, padded in zip(*results, strict=True):
        torch.testing.assert_close(plain, padded)


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


def test_without_triton_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, None)
    assert _fused_kernel(GPU) is None


@pytest.mark.parametrize("error", [RuntimeError, Exception])
def test_a_kernel_that_cannot_be_built_is_named_and_left(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def kernel(*arguments: object) -> None:
        raise error("out of resource")

    offer(monkeypatch, kernel)
    with pytest.warns(UserWarning, match="out of resource"):
        assert _fused_kernel(GPU) is None
