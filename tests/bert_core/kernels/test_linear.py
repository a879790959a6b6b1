"""Linear layers through other kernels. Run alone: pytest tests/bert_core/kernels/test_linear.py"""

import pytest
import torch
import torch.nn.functional as F

from bert_core.kernels.linear import Linear


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
