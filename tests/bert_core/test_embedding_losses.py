"""The losses of sentence embeddings, each against its formula written out for one pair after the other.

Alone: pytest tests/bert_core/test_embedding_losses.py
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bert_core.losses import (
    PairClassifier,
    cosine_regression_loss,
    find_positives,
    in_batch_negatives_loss,
)


def vectors(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), requires_grad=True)


def cosine(u: Tensor, v: Tensor) -> Tensor:
    return (u * v).sum() / ((u * u).sum() * (v * v).sum()).sqrt()


def ranking_loss(
    queries: Tensor, candidates: Tensor, temperature: float, texts: tuple[str, str] | None = None
) -> Tensor:
    """Henderson et al. (2017), equation 6, with cosines over a temperature; `texts` are a letter for each vector."""
    losses = []
    for i, query in enumerate(queries):
        negatives = [j for j in range(len(candidates)) if j != i]
        if texts is not None:
            right = {second for first, second in zip(*texts, strict=False) if first == texts[0][i]} | {texts[0][i]}
            negatives = [j for j in negatives if texts[1][j] not in right]
        scores = {j: cosine(query, candidates[j]) / temperature for j in (i, *negatives)}
        losses.append(torch.stack([score.exp() for score in scores.values()]).sum().log() - scores[i])
    return torch.stack(losses).mean()


def assert_same(ours: Tensor, theirs: Tensor, *inputs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs)
    for mine, other in zip(torch.autograd.grad(ours, inputs), torch.autograd.grad(theirs, inputs), strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("num_candidates", [4, 7])
def test_in_batch_negatives_agree_with_the_formula(num_candidates: int) -> None:
    queries, candidates = vectors(4, 6), vectors(num_candidates, 6, seed=1)
    ours = in_batch_negatives_loss(queries, candidates, temperature=0.2)
    assert_same(ours, ranking_loss(queries, candidates, 0.2), queries, candidates)


def numbers(text: str) -> Tensor:
    return torch.tensor([ord(letter) for letter in text])


@settings(deadline=None, max_examples=20)
@given(st.text("abc", min_size=4, max_size=4), st.text("abcd", min_size=4, max_size=6))
def test_what_is_right_as_well_is_no_negative(first: str, second: str) -> None:
    queries, candidates = vectors(4, 6), vectors(len(second), 6, seed=1)
    is_positive = find_positives(numbers(first), numbers(second))
    ours = in_batch_negatives_loss(queries, candidates, temperature=0.5, is_positive=is_positive)
    assert_same(ours, ranking_loss(queries, candidates, 0.5, (first, second)), queries, candidates)


def test_texts_that_all_differ_give_the_very_same_bits() -> None:
    queries, candidates = vectors(5, 6), vectors(7, 6, seed=1)
    is_positive = find_positives(numbers("abcde"), numbers("fghijkl"))
    losses = [in_batch_negatives_loss(queries, candidates, is_positive=given) for given in (None, is_positive)]
    assert torch.equal(*losses)
    gradients = [torch.autograd.grad(loss, (queries, candidates)) for loss in losses]
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


def test_cosine_regression_agrees_with_the_formula() -> None:
    first, second, scores = vectors(5, 6), vectors(5, 6, seed=1), torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0])
    cosines = torch.stack([cosine(u, v) for u, v in zip(first, second, strict=True)])
    assert_same(cosine_regression_loss(first, second, scores), ((cosines - scores) ** 2).mean(), first, second)


def test_classification_agrees_with_the_formula() -> None:
    first, second, labels = vectors(5, 6), vectors(5, 6, seed=1), torch.tensor([0, 2, 1, 1, 0])
    classifier = PairClassifier(hidden_size=6, num_classes=3, seed=4, initializer_range=1.0)
    losses = []
    for u, v, label in zip(first, second, labels, strict=True):
        probabilities = (classifier.weight @ torch.cat([u, v, (u - v).abs()])).softmax(0)
        losses.append(-probabilities[label].log())
    ours = classifier.loss(first, second, labels)
    assert_same(ours, torch.stack(losses).mean(), first, second, classifier.weight)


def test_a_classifier_is_drawn_from_its_seed_alone() -> None:
    torch.manual_seed(1)
    weight = PairClassifier(6, 3, seed=4).weight
    torch.manual_seed(2)
    assert torch.equal(PairClassifier(6, 3, seed=4).weight, weight)
    assert not torch.equal(PairClassifier(6, 3, seed=5).weight, weight)


def test_losses_are_float32_for_vectors_of_half_precision_and_under_autocast() -> None:
    first, second = vectors(4, 6).bfloat16(), vectors(4, 6, seed=1).bfloat16()
    classifier = PairClassifier(6, 3).bfloat16()

    def losses() -> list[Tensor]:
        return [
            in_batch_negatives_loss(first, second),
            cosine_regression_loss(first, second, torch.zeros(4)),
            classifier.loss(first, second, torch.zeros(4)),
        ]

    plain = losses()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert all(torch.equal(loss, other) for loss, other in zip(losses(), plain, strict=True))
    assert {loss.dtype for loss in plain} == {torch.float32}
