"""Replayed passes of a model, with a stand-in for a graph that calls the function again. Alone:
pytest tests/bert_core/test_cuda_graphs.py

On a card: tests/gpu/test_cuda_graphs.py.
"""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from bert_core.cuda_graphs import ReplayedPasses, Work

CPU = torch.device("cpu")


class Layer(nn.Module):
    """y = dropout(x)·w, beside a parameter that no loss reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.unused = nn.Parameter(torch.randn(3)), nn.Parameter(torch.ones(1))

    def compute(self, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        result = nn.functional.dropout(inputs[0], 0.5) @ self.weight
        return result.square().sum(), result.detach()


@pytest.fixture
def layer() -> Layer:
    return Layer()


@pytest.fixture
def captured() -> list[Work]:
    return []


@pytest.fixture
def passes(layer: Layer, captured: list[Work]) -> ReplayedPasses:
    def capture(work: Work) -> Work:
        captured.append(work)
        work()
        return work

    return ReplayedPasses(layer, CPU, capture)


def eagerly(layer: Layer, x: Tensor, seed: int) -> tuple[Tensor, Tensor | None]:
    torch.manual_seed(seed)
    layer.zero_grad()
    loss, result = layer.compute([x])
    loss.backward()
    return result, layer.weight.grad


def test_results_and_gradients_are_those_of_single_kernels(layer: Layer, passes: ReplayedPasses) -> None:
    for seed, size in enumerate((2, 3, 2, 2, 3)):
        x = torch.randn(size, 3)
        result = passes.run(size, [x], layer.compute, seed)
        gradient = layer.weight.grad
        assert gradient is not None
        assert layer.unused.grad is None, "the optimizer leaves it alone, as without graphs"
        found = gradient.clone()
        expected, expected_gradient = eagerly(layer, x, seed)
        assert torch.equal(result, expected)
        assert torch.equal(found, expected_gradient)
        layer.zero_grad(set_to_none=True)  # as after a step


def test_each_size_is_captured_once_and_all_share_the_memory_of_gradients(
    layer: Layer, passes: ReplayedPasses, captured: list[Work]
) -> None:
    places = set()
    for size in (2, 3, 2, 2, 3):
        passes.run(size, [torch.randn(size, 3)], layer.compute, 0)
        places.add(layer.weight.grad.data_ptr())  # type: ignore[union-attr]
        layer.zero_grad(set_to_none=True)
    assert len(captured) == 2
    assert len(places) == 1


def test_what_is_cleared_is_captured_anew(layer: Layer, passes: ReplayedPasses, captured: list[Work]) -> None:
    for _ in range(2):
        passes.run(2, [torch.randn(2, 3)], layer.compute, 0)
        passes.clear()
        layer.zero_grad(set_to_none=True)
    assert len(captured) == 2
