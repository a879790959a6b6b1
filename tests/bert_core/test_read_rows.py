"""The last layer only for the tokens that a head reads. Alone: pytest tests/bert_core/test_read_rows.py"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bert_core.distillation import last_hidden_states
from bert_core.heads import BertForMultipleChoice, BertForPreTraining, BertForSequenceClassification
from bert_core.heads.pretraining import PretrainingLabels
from bert_core.heads.pretraining.model import OBJECTIVE_HEADS
from bert_core.model import BertModel
from bert_core.packed_sequences import PackedSequences
from tests.bert_core.reference import ragged_batch, scattered, small_config

SHAPES: dict[str, dict[str, Any]] = {
    "bert": {},
    "pre-norm": {"model_type": "bert_core", "norm_placement": "pre"},
    "shared layers": {"model_type": "albert", "embedding_size": 12, "num_hidden_groups": 1},
    "one layer": {"num_hidden_layers": 1},
    "rotary": {"model_type": "bert_core", "position_embedding_type": "rotary"},
    "alibi": {"model_type": "bert_core", "position_embedding_type": "alibi"},
    "causal": {"model_type": "bert_core", "causal_attention": True},
}
ROWS = torch.tensor([0, 3, 4, 10])


def packed(model: Any) -> PackedSequences:
    batch = ragged_batch(model.config, [4, 7, 3], 8)
    seqs: PackedSequences = getattr(model, "bert", model).pack(**batch)
    return seqs


def gradients(model: nn.Module, value: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(value, list(model.parameters()), allow_unused=True, materialize_grads=True)
    return list(found)


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_those_of_the_whole_output_in_values_and_gradients(shape: str) -> None:
    model = scattered(BertModel.from_config(small_config(**SHAPES[shape]))).eval()
    assert isinstance(model, BertModel)
    whole, part = model.encode(packed(model))[ROWS], model.encode(packed(model), ROWS)
    torch.testing.assert_close(part, whole)
    weights = torch.randn(whole.shape, generator=torch.Generator().manual_seed(0))
    for ours, expected in zip(*(gradients(model, (x * weights).sum()) for x in (part, whole)), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


def test_readers_get_their_own_rows_whether_or_not_one_reads_all() -> None:
    model = scattered(BertModel.from_config(small_config())).eval()
    assert isinstance(model, BertModel)
    seqs, other = packed(model), torch.tensor([3, 13])
    whole = model.encode(seqs)
    for parts in ([ROWS, other], [ROWS, None, other], [None], []):
        states = model.encode_each(seqs, parts)
        assert len(states) == len(parts)
        for rows, found in zip(parts, states, strict=True):
            torch.testing.assert_close(found, whole if rows is None else whole[rows])


def test_the_feed_forward_network_behind_the_last_attention_sees_only_what_is_read() -> None:
    model = BertForPreTraining.from_config(small_config())
    sizes: list[int] = []
    for layer in model.bert.layers:
        layer.output.register_forward_hook(lambda module, inputs, output: sizes.append(len(output)))
    labels = PretrainingLabels(torch.tensor([1, 6]), torch.tensor([5, 8]), torch.tensor([0, 1, 1]))
    model.packed_loss_sums(packed(model), labels, ("masked_lm", "next_sentence"))
    assert sizes == [14, 2 + 3]


@pytest.mark.parametrize(
    "chosen", [("masked_lm", "sentence_order"), ("masked_lm", "span_boundary"), ("left_to_right",)]
)
def test_objectives_lose_nothing_by_reading_rows(chosen: tuple[str, ...]) -> None:
    causal = chosen == ("left_to_right",)
    model = BertForPreTraining(small_config(span_boundary_objective=True, causal_attention=causal, sentence_head=True))
    scattered(model).eval()
    seqs, labels = packed(model), PretrainingLabels(torch.tensor([1, 6]), torch.tensor([5, 8]), torch.tensor([0, 1, 1]))
    whole = model.bert.encode(seqs)
    sums = model.packed_loss_sums(seqs, labels, chosen)
    for name in chosen:
        head = OBJECTIVE_HEADS[name]
        rows = head.rows(model.bert, seqs, labels)
        hidden = whole if rows is None else whole[rows]
        expected = head.loss_sums(model.get_submodule(head.module_name), model.bert, seqs, hidden, labels)
        torch.testing.assert_close(sums[name].loss, expected.loss)


@pytest.mark.parametrize("head", [BertForSequenceClassification, BertForMultipleChoice])
@pytest.mark.parametrize("changes", [{}, {"causal_attention": True}, {"layer_pooling": "second_to_last"}])
def test_classifiers_read_one_token_of_each_sequence(head: Any, changes: dict[str, Any]) -> None:
    model = scattered(head.from_config(small_config(**changes))).eval()
    seqs = packed(model)
    place = seqs.last_tokens if "causal_attention" in changes else seqs.first_tokens
    pooled = model.bert.pool(model.bert.head_states(seqs)[place])
    torch.testing.assert_close(model.packed_logits(seqs), model.classifier(pooled).squeeze(-1))


@pytest.mark.parametrize("shape", SHAPES)
def test_who_notes_the_states_gets_those_of_all_tokens(shape: str) -> None:
    model = scattered(BertModel.from_config(small_config(**SHAPES[shape]))).eval()
    assert isinstance(model, BertModel)
    with torch.no_grad(), last_hidden_states(model) as seen:
        part = model.encode(packed(model), ROWS)
    assert seen[-1].equal(model.encode(packed(model)))
    assert part.equal(seen[-1][ROWS])
