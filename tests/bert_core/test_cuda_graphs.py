"""Replayed passes, with a stand-in for the graph. Alone: pytest tests/bert_core/test_cuda_graphs.py

What a card does: tests/gpu/test_cuda_graphs.py.
"""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from bert_core.cuda_graphs import ReplayedPasses, graph_maker
from tests.replayed_function import ReplayedFunction


class Layer(nn.Module):
    """A product with dropout, and a weight that no loss reaches."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.weight = nn.Parameter(torch.randn(3, 4))
        self.unused = nn.Parameter(torch.ones(2))

    def compute(self, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        (x,) = inputs
        loss = nn.functional.dropout(x @ self.weight, 0.5).square().sum()
        return loss, loss.detach() * 2


def eagerly(layer: Layer, x: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    layer.weight.grad = None
    loss, result = layer.compute([x])
    loss.backward()
    assert layer.weight.grad is not None
    return result, layer.weight.grad


@pytest.fixture
def made() -> list[ReplayedFunction]:
    return []


@pytest.fixture
def layer() -> Layer:
    return Layer()


@pytest.fixture
def passes(layer: Layer, made: list[ReplayedFunction]) -> ReplayedPasses:
    def new_graph() -> ReplayedFunction:
        made.append(ReplayedFunction())
        return made[-1]

    return ReplayedPasses(layer.parameters(), new_graph)


def test_a_replay_computes_what_a_pass_computes(layer: Layer, passes: ReplayedPasses) -> None:
    results = []
    for seed in range(4):
        x = torch.randn(2 + seed % 2, 3)
        result = passes.run(len(x), [x], layer.compute, seed)
        gradient = layer.weight.grad
        assert gradient is not None
        assert layer.unused.grad is None, "the optimizer leaves it alone, as without graphs"
        expected, expected_gradient = eagerly(layer, x, seed)
        assert torch.equal(result, expected)
        assert torch.equal(gradient, expected_gradient)
        results.append((result, expected))
    assert all(torch.equal(*pair) for pair in results), "the next replay overwrites no result"


def test_each_size_is_captured_once(layer: Layer, passes: ReplayedPasses, made: list[ReplayedFunction]) -> None:
    for size in (2, 3, 2, 2, 3):
        passes.run(size, [torch.randn(size, 3)], layer.compute, 0)
    assert [graph.num_replays for graph in made] == [3, 2]


def test_weights_that_were_updated_in_place_are_those_of_the_next_replay(layer: Layer, passes: ReplayedPasses) -> None:
    x = torch.randn(2, 3)
    before = passes.run(2, [x], layer.compute, 0)
    with torch.no_grad():
        layer.weight.mul_(2)
    torch.testing.assert_close(passes.run(2, [x], layer.compute, 0), 4 * before)


def test_what_a_graph_would_not_see_is_refused(layer: Layer, passes: ReplayedPasses) -> None:
    """The stand-in itself: new memory, new numbers and new shapes are errors."""
    numbers = iter(range(10))
    with pytest.raises(AssertionError, match="memory that is new"):
        passes.run("tensor", [torch.ones(1, 3)], lambda i: layer.compute([i[0] + torch.tensor([1.0])]), 0)
    with pytest.raises(AssertionError, match="a replay would do"):
        passes.run("number", [torch.ones(1, 3)], lambda i: layer.compute([i[0] + next(numbers)]), 0)
    with pytest.raises(AssertionError, match="a replay would do"):
        passes.run("shape", [torch.ones(1, 3)], lambda i: layer.compute([i[0].repeat(next(numbers), 1)]), 0)


def test_a_cpu_has_no_graphs() -> None:
    assert graph_maker(torch.device("cpu")) is None
