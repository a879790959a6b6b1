"""Losses beside what test_heads.py compares with transformers; batches in smaller parts; losses of sentence embeddings.

Alone: pytest tests/bert_core/test_losses.py
"""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bert_core.constants import IGNORE_INDEX
from bert_core.errors import DataError
from bert_core.losses import (
    ClassLoss,
    PairClassifier,
    cosine_regression_loss,
    cross_entropy_sums,
    find_positives,
    in_batch_negatives_loss,
    sequence_classification_loss,
    span_loss,
)
from bert_core.micro_batches import compute_in_parts
from tests.synchronizations import counted_synchronizations


def test_cross_entropy_sums_count_right_guesses() -> None:
    logits = torch.tensor([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0]])
    loss, correct, count = cross_entropy_sums(logits, torch.tensor([0, 1, 1]))
    torch.testing.assert_close(loss, 3 * F.cross_entropy(logits, torch.tensor([0, 1, 1])))
    assert (float(correct), float(count)) == (2.0, 3.0)


def test_cross_entropy_sums_leave_ignored_labels_out() -> None:
    logits, labels = torch.tensor([[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]]), torch.tensor([1, IGNORE_INDEX, 0])
    with counted_synchronizations() as waits:
        sums = cross_entropy_sums(logits, labels)
    torch.testing.assert_close(sums, cross_entropy_sums(logits[[0, 2]], labels[[0, 2]]))
    assert waits == []


def test_cross_entropy_of_sixteen_bit_logits_is_summed_in_full_precision() -> None:
    loss, _, _ = cross_entropy_sums(torch.zeros(5000, 4, dtype=torch.bfloat16), torch.zeros(5000, dtype=torch.long))
    assert float(loss) == pytest.approx(5000 * 1.3862944, rel=1e-5)


LABELS = torch.tensor([0, 2, IGNORE_INDEX, 2, 1])
SETS = torch.tensor([[0.0, 1.0, 1.0]] * 5)
WEIGHTS = np.array([0.5, 2.0, 1.25], np.float32)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_focal_loss_is_its_formula(weights: np.ndarray | None, gamma: float) -> None:
    """-α (1 - p)^γ log p over the sum of α, or all labels (Lin et al. 2017, equation 5); cross entropy at γ = 0."""
    on_device = None if weights is None else torch.from_numpy(weights)
    alpha = torch.ones(3) if on_device is None else on_device
    loss, plain = (ClassLoss(on_device, focal_gamma=power, host_weights=weights) for power in (gamma, None))
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    logits[0, 0] = 200.0  # nothing is wrong there, so that a power below 1 has no slope
    logits.requires_grad_()
    with counted_synchronizations() as waits:
        found = loss.of_classes(logits, LABELS), loss.of_label_sets(logits, SETS)
        sum(found).backward()  # type: ignore[union-attr, no-untyped-call]
    assert waits == []
    assert bool(logits.grad.isfinite().all())  # type: ignore[union-attr]
    known, exact = LABELS != IGNORE_INDEX, logits.detach().double()
    weight, p = alpha[LABELS[known]], exact.softmax(dim=1)[known, LABELS[known]]
    torch.testing.assert_close(found[0].detach(), (weight * (1 - p) ** gamma * -p.log()).sum().float() / weight.sum())
    weight, log_p = torch.where(SETS > 0, alpha, 1.0), F.logsigmoid(torch.where(SETS > 0, exact, -exact))
    torch.testing.assert_close(found[1].detach(), (weight * (1 - log_p.exp()) ** gamma * -log_p).mean().float())
    if gamma == 0.0:
        torch.testing.assert_close(found, (plain.of_classes(logits, LABELS), plain.of_label_sets(logits, SETS)))


def test_smoothing_of_a_label_is_that_of_two_classes() -> None:
    logit, targets = torch.tensor([[0.7], [-1.5]]), torch.tensor([[1.0], [0.0]])
    both = torch.cat([torch.zeros_like(logit), logit], dim=1)
    expected = F.cross_entropy(both, targets[:, 0].long(), label_smoothing=0.2)
    torch.testing.assert_close(ClassLoss(label_smoothing=0.2).of_label_sets(logit, targets), expected)


def test_positions_outside_the_row_are_left_out() -> None:
    logits = torch.randn(3, 4)
    inside = span_loss(logits[:2], logits[:2], torch.tensor([1, 2]), torch.tensor([3, 0]))
    beside = span_loss(logits, logits, torch.tensor([1, 2, 9]), torch.tensor([3, 0, 4]))
    torch.testing.assert_close(inside, beside)


@pytest.mark.parametrize(
    ("labels", "kind"), [([0, 3], None), ([-1, 0], None), ([0], None), ([0.0, 0.0, 0.0], "regression")]
)
def test_labels_that_are_no_classes_or_of_another_shape_are_refused(labels: list, kind: str | None) -> None:
    with pytest.raises(DataError, match="labels"):
        sequence_classification_loss(torch.zeros(2, 3), torch.tensor(labels), kind)


def test_labels_left_out_are_no_mistake() -> None:
    logits = torch.randn(2, 3)
    loss = sequence_classification_loss(logits, torch.tensor([-100, 2]), None)
    torch.testing.assert_close(loss, F.cross_entropy(logits[1:], torch.tensor([2])))
    assert sequence_classification_loss(logits, torch.tensor([-100, -100]), None).isnan(), "the mean of no losses"


MEMORY = (
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
)


class Halves:
    """Parts of a list, as many numbers each as there is room for."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.reasons: list[str] = []

    def split(self, batch: list[int]) -> list[list[int]]:
        return [batch[begin : begin + self.room] for begin in range(0, len(batch), self.room)]

    def halve(self, tried: Sequence[list[int]], step: int | None, reason: str) -> None:
        self.room //= 2
        self.reasons.append(reason)


def total(error: Exception, parts: list[list[int]]) -> int:
    """Sum of the parts, where none has more than two numbers."""
    if max(map(len, parts)) > 2:
        raise error
    return sum(map(sum, parts))


@pytest.mark.parametrize("error", MEMORY, ids=["PyTorch's", "cuBLAS's", "the driver's"])
def test_memory_that_ran_out_is_known_by_class_or_words(error: Exception) -> None:
    halves = Halves(8)
    assert compute_in_parts(halves, list(range(8)), 1, lambda parts: total(error, parts)) == 28
    assert halves.reasons == [str(error)] * 2


def test_another_error_is_no_reason_for_smaller_parts() -> None:
    halves = Halves(8)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        compute_in_parts(
            halves, list(range(8)), 1, lambda parts: total(RuntimeError("CUDA error: an illegal memory access"), parts)
        )
    assert halves.room == 8


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
