"""The CRF against every path written out, its gradients, and what BIO forbids.

Run alone: pytest tests/bert_core/layers/test_crf.py
"""

from itertools import pairwise, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bert_core.errors import DataError
from bert_core.layers.crf import LinearChainCrf, best_paths, bio_penalties, log_partitions, path_scores
from tests.synchronizations import counted_synchronizations

BIO = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
LENGTHS = st.lists(st.integers(1, 5), min_size=1, max_size=4)
SEEDS = st.integers(0, 1000)


def random_chain(lengths: list[int], num_labels: int, seed: int) -> tuple[Tensor, ...]:
    """Emissions (B, W, C), mask (B, W), transitions (C, C), start (C,), end (C,) in float64."""
    generator = torch.Generator().manual_seed(seed)
    sizes = ((len(lengths), max(lengths), num_labels), (num_labels, num_labels), (num_labels,), (num_labels,))
    emissions, *scores = (2 * torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes)
    return emissions, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None], *scores


def every_path(emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor) -> dict[tuple[int, ...], float]:
    """The score of each path of one sentence without padding: (W, C)."""
    scores = {}
    for path in product(range(emissions.shape[1]), repeat=len(emissions)):
        score = float(start[path[0]] + end[path[-1]])
        score += sum(float(row[tag]) for row, tag in zip(emissions, path, strict=True))
        score += sum(float(transitions[a, b]) for a, b in pairwise(path))
        scores[path] = score
    return scores


@pytest.mark.heavy
@pytest.mark.core
@settings(deadline=None, max_examples=20)
@given(LENGTHS, st.integers(1, 4), SEEDS)
def test_scores_sums_marginals_and_best_paths_agree_with_every_path(
    lengths: list[int], num_labels: int, seed: int
) -> None:
    emissions, mask, *scores = random_chain(lengths, num_labels, seed)
    emissions.requires_grad_()
    tags = torch.randint(0, num_labels, mask.shape, generator=torch.Generator().manual_seed(seed))
    partitions = log_partitions(emissions, mask, *scores)
    (marginals,) = torch.autograd.grad(partitions.sum(), emissions)
    found = path_scores(emissions, tags, mask, *scores).tolist()
    best = best_paths(emissions, mask, *scores)
    for row, length in enumerate(lengths):
        paths = every_path(emissions[row, :length].detach(), *scores)
        values = torch.tensor(list(paths.values()), dtype=torch.float64)
        probabilities = values.softmax(0)
        expected = torch.zeros_like(marginals[row])
        for path, probability in zip(paths, probabilities, strict=True):
            expected[range(length), path] += probability
        torch.testing.assert_close(partitions[row], values.logsumexp(0))
        torch.testing.assert_close(marginals[row], expected)
        assert found[row] == pytest.approx(paths[tuple(tags[row, :length].tolist())])
        assert tuple(best[row, :length].tolist()) == max(paths, key=lambda path: paths[path])


def plain_log_partitions(emissions: Tensor, mask: Tensor, transitions: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """The forward algorithm as in the books: padding keeps what the word before it had."""
    forward = start + emissions[:, 0]
    for word in range(1, emissions.shape[1]):
        onward = (forward[:, :, None] + transitions + emissions[:, word, None]).logsumexp(1)
        forward = torch.where(mask[:, word, None], onward, forward)
    return (forward + end).logsumexp(1)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=4), SEEDS)
def test_long_sentences_have_values_and_gradients_of_the_plain_recursion(lengths: list[int], seed: int) -> None:
    emissions, mask, *scores = random_chain([2, *lengths], 5, seed)
    inputs = [tensor.requires_grad_() for tensor in (emissions, *scores)]
    results = []
    for compute in (log_partitions, plain_log_partitions):
        partitions = compute(emissions, mask, *scores)
        results.append([partitions.detach(), *torch.autograd.grad(partitions.sum(), inputs)])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


def test_gradients_agree_with_finite_differences() -> None:
    emissions, mask, *scores = random_chain([3, 1, 4], 3, 0)
    tags = torch.tensor([[0, 2, 1, 0], [1, 0, 0, 0], [2, 2, 0, 1]])

    def log_likelihood(emissions: Tensor, *scores: Tensor) -> Tensor:
        return path_scores(emissions, tags, mask, *scores) - log_partitions(emissions, mask, *scores)

    assert torch.autograd.gradcheck(log_likelihood, [t.requires_grad_() for t in (emissions, *scores)])


def random_crf(seed: int = 0) -> LinearChainCrf:
    crf = LinearChainCrf(BIO).requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for parameter in crf.parameters():
        parameter.normal_(generator=generator)
    return crf


def keeps_bio(path: list[str]) -> bool:
    return all(tag[0] != "I" or before[2:] == tag[2:] for before, tag in zip(["O", *path], path, strict=False))


@settings(deadline=None, max_examples=20)
@given(LENGTHS, SEEDS)
@pytest.mark.heavy
def test_the_best_path_is_the_best_of_those_that_keep_bio(lengths: list[int], seed: int) -> None:
    crf = random_crf(seed)
    emissions = 3 * torch.randn(sum(lengths), len(BIO), generator=torch.Generator().manual_seed(seed))
    decoded = crf.decode(emissions, torch.tensor(lengths)).split(lengths)
    for sentence, tags in zip(emissions.split(lengths), decoded, strict=True):
        paths = every_path(sentence, crf.transitions, crf.start, crf.end)
        allowed = {path: score for path, score in paths.items() if keeps_bio([BIO[tag] for tag in path])}
        assert allowed[tuple(tags.tolist())] == pytest.approx(max(allowed.values()), abs=1e-4)


def test_paths_that_keep_bio_share_all_the_probability() -> None:
    crf, emissions = random_crf(), torch.randn(3, len(BIO), generator=torch.Generator().manual_seed(0))
    paths = [path for path in product(range(len(BIO)), repeat=3) if keeps_bio([BIO[tag] for tag in path])]
    tags = torch.tensor(paths).flatten()
    found = crf.log_likelihood(emissions.repeat(len(paths), 1), tags, torch.full((len(paths),), 3))
    assert float(found.exp().sum()) == pytest.approx(1.0)


def test_a_gold_path_that_breaks_bio_has_its_share_of_all_paths() -> None:
    crf, emissions = random_crf(), torch.randn(2, len(BIO), generator=torch.Generator().manual_seed(0))
    paths = every_path(emissions, crf.transitions, crf.start, crf.end)
    total = torch.tensor(list(paths.values())).logsumexp(0)
    for path in [(2, 2), (0, 4), (1, 4)]:
        found = crf.log_likelihood(emissions, torch.tensor(path), torch.tensor([2]))
        assert float(found) == pytest.approx(float(paths[path] - total), abs=1e-5)


def test_tags_outside_bio_are_free() -> None:
    assert not any(penalties.any() for penalties in bio_penalties(("NOUN", "VERB", "I-PER", "O")))
    transitions, start = bio_penalties(BIO)
    assert [label for label, penalty in zip(BIO, start, strict=True) if penalty] == ["I-PER", "I-LOC"]
    assert int((transitions < 0).sum()) == 2 * 3


def test_words_of_any_number_lie_end_to_end_and_a_sentence_may_have_none() -> None:
    crf, emissions = random_crf(), torch.randn(6, len(BIO), generator=torch.Generator().manual_seed(0))
    tags, lengths = torch.tensor([0, 1, 2, 2, 3, 0]), torch.tensor([1, 0, 3, 2])
    together = crf.log_likelihood(emissions, tags, lengths)
    alone = [crf.log_likelihood(emissions[a:b], tags[a:b], torch.tensor([b - a])) for a, b in ((0, 1), (1, 4), (4, 6))]
    torch.testing.assert_close(together, torch.cat([alone[0], torch.zeros(1), *alone[1:]]))
    pieces = [crf.decode(emissions[a:b], torch.tensor([b - a])) for a, b in ((0, 1), (1, 4), (4, 6))]
    assert torch.equal(crf.decode(emissions, lengths), torch.cat(pieces))


def test_a_bound_of_the_lengths_gives_the_same_and_spares_a_wait() -> None:
    crf, lengths, tags = random_crf(), torch.tensor([1, 0, 3, 2]), torch.tensor([0, 1, 2, 2, 3, 0])
    emissions = torch.randn(6, len(BIO), generator=torch.Generator().manual_seed(0))
    behind = torch.cat([emissions, torch.full((2, len(BIO)), 50.0)])  # rows of no sentence
    with counted_synchronizations() as waits:
        bounded = crf.log_likelihood(behind, torch.cat([tags, tags[:2]]), lengths, max_length=7)
    assert waits == []
    torch.testing.assert_close(bounded, crf.log_likelihood(emissions, tags, lengths))
    assert torch.equal(crf.decode(emissions, lengths, max_length=7), crf.decode(emissions, lengths))


def test_half_precision_is_left_at_the_door() -> None:
    crf, tags, lengths = random_crf(), torch.tensor([0, 1, 2]), torch.tensor([3])
    emissions = torch.randn(3, len(BIO), generator=torch.Generator().manual_seed(0)).bfloat16()
    expected = crf.log_likelihood(emissions.float(), tags, lengths)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = crf.log_likelihood(emissions, tags, lengths)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


def test_what_cannot_be_scored_is_refused() -> None:
    crf = random_crf()
    with pytest.raises(DataError, match="no word to tag; labels of -100"):
        crf.log_likelihood(torch.zeros(0, len(BIO)), torch.zeros(0, dtype=torch.long), torch.tensor([0, 0]))
    with pytest.raises(DataError, match="not finite; the model has diverged"):
        crf.decode(torch.full((1, len(BIO)), float("nan")), torch.tensor([1]))
