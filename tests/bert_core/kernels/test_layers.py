"""Dropout from shared random words, and the linear layer.

Alone: pytest tests/bert_core/kernels/test_layers.py
"""

import pytest
import torch
import torch.nn.functional as F

from bert_core.kernels.dropout import Dropout, bernoulli_keep_mask, dropout
from bert_core.kernels.linear import Linear


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_asked_share_is_dropped_in_every_lane_of_a_word(p: float) -> None:
    torch.manual_seed(1)
    kept = bernoulli_keep_mask(torch.Size((1000, 1001)), p, torch.float32)
    assert set(kept.unique().tolist()) == {0.0, 1.0}
    for lane in range(4):
        assert float(kept.flatten()[lane::4].mean()) == pytest.approx(1 - p, abs=3e-3)


def test_draws_repeat_with_the_seed_alone() -> None:
    torch.manual_seed(1)
    first, second = (bernoulli_keep_mask(torch.Size((99,)), 0.3, torch.float32) for _ in range(2))
    torch.manual_seed(1)
    assert torch.equal(first, bernoulli_keep_mask(torch.Size((99,)), 0.3, torch.float32))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_kept_grows_so_that_the_mean_stays(dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    dropped = dropout(torch.ones(400, 1000, dtype=dtype), 0.25)
    assert dropped.dtype == dtype
    assert float(dropped.float().mean()) == pytest.approx(1.0, abs=5e-3)
    assert dropped.unique().float().tolist() == pytest.approx([0.0, 4 / 3], rel=1e-2)


def test_adding_to_a_residual_drops_the_same_and_passes_the_gradient() -> None:
    module = Dropout(0.25).train()
    x, residual = torch.randn(50, 8, requires_grad=True), torch.randn(50, 8, requires_grad=True)
    torch.manual_seed(3)
    expected = residual + module(x)
    torch.manual_seed(3)
    added = module.add(residual, x)
    torch.testing.assert_close(added, expected)
    for own, theirs in zip(
        torch.autograd.grad(added.square().sum(), (x, residual)),
        torch.autograd.grad(expected.square().sum(), (x, residual)),
        strict=True,
    ):
        torch.testing.assert_close(own, theirs)


def test_nothing_is_dropped_in_evaluation_or_at_zero() -> None:
    x = torch.randn(4, 4)
    assert Dropout(0.5).eval()(x) is x
    assert torch.equal(Dropout(0.0).train().add(x, x), x + x)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(6, 12), (12, 6)])
@pytest.mark.parametrize("rows", [(7,), (0,), (2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_equal_torch_s(
    dtype: torch.dtype, rows: tuple[int, ...], shape: tuple[int, int], bias: bool
) -> None:
    layer = Linear(*shape, bias=bias, dtype=dtype)
    x = torch.randn(*rows, shape[0], dtype=dtype, requires_grad=True)
    upstream = torch.randn(*rows, shape[1], dtype=dtype)
    inputs = (x, *layer.parameters())
    ours, theirs = layer(x), F.linear(x, layer.weight, layer.bias)
    torch.testing.assert_close(ours, theirs)
    gradients = torch.autograd.grad(ours, inputs, upstream)
    for own, expected in zip(gradients, torch.autograd.grad(theirs, inputs, upstream), strict=True):
        torch.testing.assert_close(own, expected)


def test_frozen_weights_get_no_gradient() -> None:
    layer = Linear(4, 3)
    layer.weight.requires_grad_(False)
    x = torch.randn(2, 4, requires_grad=True)
    layer(x).sum().backward()
    assert layer.weight.grad is None
    torch.testing.assert_close(x.grad, layer.weight.sum(0).expand(2, 4))


def test_autocast_gives_sixteen_bits() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert Linear(4, 3)(torch.randn(2, 4)).dtype == torch.bfloat16
