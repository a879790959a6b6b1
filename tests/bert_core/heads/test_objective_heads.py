"""Spans from their borders, and tokens left to right, against the definition.

Alone: pytest tests/bert_core/heads/test_objective_heads.py
"""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.constants import IGNORE_INDEX
from bert_core.examples.packing import PackedBatch
from bert_core.heads import BertForPreTraining
from bert_core.heads.pretraining import PretrainingLabels, span_borders
from bert_core.model import BertModel
from bert_core.objectives import TOKEN_OBJECTIVES, build_packed_batch
from bert_core.packed_sequences import PackedSequences
from tests.bert_core.packed_examples import MASKING, SEP, restored
from tests.bert_core.reference import scattered, small_config
from tests.bert_core.small_documents import BERT, all_examples, documents
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


CAUSAL_CONFIG = small_config(vocab_size=50_000, max_position_embeddings=64, causal_attention=True)
NO_LABELS = PretrainingLabels(*(torch.empty(0, dtype=torch.long) for _ in range(3)))
OBJECTIVE = TOKEN_OBJECTIVES["left_to_right"]


@pytest.fixture(scope="module")
def model() -> PretrainedModel:
    return scattered(BertForPreTraining.from_config(CAUSAL_CONFIG)).eval()


def batch_of(name: str = "left_to_right", *, num_examples: int = 12, cross_documents: bool = False) -> PackedBatch:
    docs, only = documents(), np.arange(num_examples)
    _, segments = all_examples(docs, 48, "none", cross_documents=cross_documents, only=only)
    return build_packed_batch(docs, segments, MASKING, layout=BERT, seed=1, epoch=0, example=only, token_objective=name)


def packed_batch(batch: PackedBatch) -> PackedSequences:
    return PackedSequences.from_numpy(batch.input_ids, batch.token_type_ids, batch.cu_seqlens)


@pytest.mark.parametrize("cross_documents", [False, True])
def test_tokens_are_read_as_they_are_and_all_but_the_first_are_predicted(cross_documents: bool) -> None:
    options = {"num_examples": 60, "cross_documents": cross_documents}
    own, masked = (batch_of(name, **options) for name in ("left_to_right", "masked_lm"))
    assert (own.input_ids == restored(masked)).all()
    assert (len(own.masked_positions), len(own.masked_labels)) == (0, 0)
    assert OBJECTIVE.num_predictions(own) == sum(np.diff(own.cu_seqlens) - 1)
    assert ((own.input_ids == SEP).sum() > own.num_sequences) == cross_documents


@pytest.mark.parametrize("cross_documents", [False, True])
@pytest.mark.heavy
def test_the_loss_is_that_of_the_padded_logits(model: BertForPreTraining, cross_documents: bool) -> None:
    seqs = packed_batch(batch_of(cross_documents=cross_documents))
    with torch.no_grad():
        sums = model.packed_loss_sums(seqs, NO_LABELS, ["left_to_right"])["left_to_right"]
        rows = seqs.unpack(seqs.input_ids)  # (B, S)
        logits = model(rows, seqs.attention_mask).prediction_logits  # (B, S, V)
    targets = rows.masked_fill(~seqs.attention_mask, -100)[:, 1:]
    expected = F.cross_entropy(logits[:, :-1].flatten(0, 1), targets.flatten(), reduction="sum")
    torch.testing.assert_close(sums.loss, expected, rtol=1e-5, atol=1e-3)
    assert float(sums.num_predictions) == int((targets != -100).sum())
    assert float(sums.num_correct) == int((logits[:, :-1].argmax(-1) == targets).sum())


def test_its_folder_has_the_weights_of_a_masked_model(model: BertForPreTraining, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    again = BertForPreTraining.from_pretrained(tmp_path)
    assert again.config.causal_attention
    assert again.load_report is not None
    assert not again.load_report.initialized
    assert again.state_dict().keys() == BertForPreTraining.from_config(small_config(vocab_size=50)).state_dict().keys()
    encoder = BertModel.from_pretrained(tmp_path)
    assert torch.equal(encoder.embeddings.word.weight, model.bert.embeddings.word.weight)
