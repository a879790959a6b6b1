"""Look-up and output matrix with one gradient, against an embedding and its weight.

Run alone: pytest tests/bert_core/kernels/test_tied_embedding.py
"""

import pytest
import torch
from torch import Tensor, nn

from bert_core.kernels.linear_cross_entropy import look_up

IDS = torch.tensor([3, 0, 3, 7, 1])


def gradient(words: nn.Embedding, rows: Tensor, matrix: Tensor, uses: str) -> Tensor:
    losses = {"rows": rows.square().sum(), "matrix": (matrix**3).sum()}
    (found,) = torch.autograd.grad(sum(losses[name] for name in uses.split()), words.weight)
    return found


@pytest.mark.parametrize("uses", ["rows", "matrix", "rows matrix"])
@pytest.mark.parametrize("padding_idx", [None, 0])
def test_values_and_gradients_are_those_of_two_uses(uses: str, padding_idx: int | None) -> None:
    words = nn.Embedding(9, 4, padding_idx=padding_idx)
    nn.init.normal_(words.weight, generator=torch.Generator().manual_seed(1))
    rows, matrix = look_up(words, IDS)
    torch.testing.assert_close(rows, words(IDS), rtol=0, atol=0)
    torch.testing.assert_close(matrix, words.weight, rtol=0, atol=0)
    expected = gradient(words, words(IDS), words.weight, uses)
    torch.testing.assert_close(gradient(words, rows, matrix, uses), expected)


def test_a_frozen_embedding_gets_no_gradient() -> None:
    words = nn.Embedding(9, 4).requires_grad_(False)
    rows, matrix = look_up(words, IDS)
    assert not rows.requires_grad
    assert not matrix.requires_grad
