"""Spans from their borders, against the definition.

Alone: pytest tests/bert_core/heads/pretraining/test_span_boundary.py
"""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bert_core.constants import IGNORE_INDEX
from bert_core.heads import BertForPreTraining
from bert_core.heads.pretraining import PretrainingLabels
from bert_core.heads.pretraining.span_boundary import span_borders
from bert_core.packed_sequences import PackedSequences
from tests.bert_core.reference import scattered, small_config
from tests.synchronizations import counted_synchronizations

CONFIG = small_config(span_boundary_objective=True)


def packed(*lengths: int) -> PackedSequences:
    ids = torch.arange(sum(lengths)) % 50 + 1
    return PackedSequences.from_lengths(ids, torch.zeros_like(ids), torch.tensor([0, *lengths]).cumsum(0))


def loss_by_definition(
    model: BertForPreTraining, seqs: PackedSequences, positions: list[int], labels: Tensor
) -> Tensor:
    """One masked token at a time: left and right neighbor of its run, place in the run, two layers."""
    head, hidden = model.span_boundary, model.bert.encode(seqs)
    total = torch.zeros(())
    for position, label in zip(positions, labels, strict=True):
        left, right = position, position
        while left in positions:
            left -= 1
        while right in positions:
            right += 1
        place = position - left - 1
        if place >= 20:
            continue
        x = torch.cat([hidden[left], hidden[right], head.place.weight[place]])
        x = head.first_norm(F.gelu(head.first(x[None])))
        x = head.second_norm(F.gelu(head.second(x)))
        total = total + F.cross_entropy(F.linear(x, model.bert.embeddings.word.weight, head.bias), label[None])
    return total


@pytest.mark.parametrize("positions", [[1], [2, 3, 4], [1, 2, 5, 9, 10, 13], list(range(1, 25))])
def test_loss_and_gradients_follow_the_definition(positions: list[int]) -> None:
    model = scattered(BertForPreTraining.from_config(CONFIG)).eval()
    assert isinstance(model, BertForPreTraining)
    seqs = packed(27, 4) if positions[-1] > 13 else packed(8, 7)
    labels = torch.arange(len(positions)) * 3 % CONFIG.vocab_size
    given = PretrainingLabels(torch.tensor(positions), labels, torch.zeros(0))
    ours = model.packed_loss_sums(seqs, given, ["span_boundary"])["span_boundary"].loss
    expected = loss_by_definition(model, seqs, positions, labels)
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-5)
    names, parameters = zip(*model.span_boundary.named_parameters(), strict=True)
    for name, own, theirs in zip(
        names, torch.autograd.grad(ours, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        torch.testing.assert_close(own, theirs, atol=1e-4, rtol=1e-4, msg=name)


def borders_run_by_run(masked_positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The borders by an index of the runs, whose number follows from the values."""
    begins = torch.ones_like(masked_positions, dtype=torch.bool)
    begins[1:] = masked_positions.diff() != 1
    starts = begins.nonzero().squeeze(1)
    run = begins.long().cumsum(0) - 1
    lengths = torch.cat([starts, torch.tensor([len(run)])]).diff()
    place = torch.arange(len(run)) - starts[run]
    left = masked_positions - place - 1
    return left, left + lengths[run] + 1, place


@settings(deadline=None, max_examples=50)
@given(st.sets(st.integers(1, 60)))
def test_borders_are_those_of_the_runs(positions: set[int]) -> None:
    masked_positions = torch.tensor(sorted(positions), dtype=torch.int64)
    for own, expected in zip(span_borders(masked_positions), borders_run_by_run(masked_positions), strict=True):
        assert torch.equal(own, expected)


def test_positions_that_pad_a_batch_change_nothing_and_nothing_waits() -> None:
    model = scattered(BertForPreTraining.from_config(CONFIG))
    seqs, positions, labels = packed(8, 7), torch.tensor([2, 3, 10]), torch.tensor([5, 6, 7])
    padding = torch.tensor([0, 0, 14])
    padded = PretrainingLabels(
        torch.cat([positions, padding]), torch.cat([labels, torch.full((3,), IGNORE_INDEX)]), torch.zeros(0)
    )
    objectives = ["masked_lm", "span_boundary"]
    with counted_synchronizations() as waits:
        found = model.packed_loss_sums(seqs, padded, objectives)
    assert [wait for wait in waits if "heads/" in wait or "kernels/" in wait] == []
    expected = model.packed_loss_sums(seqs, PretrainingLabels(positions, labels, torch.zeros(0)), objectives)
    for name in objectives:
        torch.testing.assert_close(list(vars(found[name]).values()), list(vars(expected[name]).values()))


def test_all_masked_positions_are_counted_whatever_their_place() -> None:
    model = BertForPreTraining.from_config(CONFIG)
    positions = torch.arange(1, 26)
    labels = PretrainingLabels(positions, torch.ones_like(positions), torch.zeros(0))
    sums = model.packed_loss_sums(packed(27), labels, ["masked_lm", "span_boundary"])
    assert float(sums["span_boundary"].num_predictions) == float(sums["masked_lm"].num_predictions) == 25
