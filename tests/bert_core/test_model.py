"""The encoder against transformers, and the README's step.

Alone: pytest tests/bert_core/test_model.py
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn

import bert_core
from bert_core.config import BertConfig
from bert_core.config_fields import HiddenActivation
from bert_core.counter_random import derive_key, integers, permutation, random_bits, uniform
from bert_core.distillation import last_hidden_states
from bert_core.errors import DataError
from bert_core.heads import BertForMultipleChoice, BertForPreTraining, BertForSequenceClassification
from bert_core.heads.pretraining import PretrainingLabels
from bert_core.heads.pretraining.model import OBJECTIVE_HEADS
from bert_core.model import BertModel
from bert_core.packed_sequences import PackedSequences
from tests.bert_core.reference import assert_equal_gradients, ragged_batch, reference_of, scattered, small_config


@st.composite
def configs(draw: st.DrawFn) -> BertConfig:
    heads = draw(st.integers(1, 4))
    return small_config(
        hidden_size=heads * draw(st.sampled_from([2, 8])),
        num_attention_heads=heads,
        num_hidden_layers=draw(st.integers(1, 3)),
        intermediate_size=draw(st.integers(1, 50)),
        hidden_act=draw(st.sampled_from(get_args(HiddenActivation))),
        type_vocab_size=draw(st.integers(1, 3)),
        pad_token_id=draw(st.sampled_from([None, 0, 4])),
    )


@settings(deadline=None, max_examples=12)
@given(configs(), st.lists(st.integers(1, 12), min_size=1, max_size=5), st.integers(0, 3))
def test_outputs_and_gradients_agree_with_transformers(config: BertConfig, lengths: list[int], extra: int) -> None:
    model = scattered(BertModel.from_config(config))
    reference = reference_of(model)
    batch = ragged_batch(config, lengths, max(lengths) + extra)
    ours, theirs = model(**batch), reference(**batch)
    real = batch["attention_mask"].bool()
    torch.testing.assert_close(ours.last_hidden_state[real], theirs.last_hidden_state[real], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(ours.pooler_output, theirs.pooler_output, atol=1e-5, rtol=1e-4)
    for output in (ours, theirs):
        (output.last_hidden_state[real].sin().sum() + output.pooler_output.square().sum()).backward()
    assert_equal_gradients(model, reference)


def test_padding_on_the_left_agrees_with_transformers() -> None:
    model = scattered(BertModel.from_config(small_config()))
    batch = {name: tensor.flip(1) for name, tensor in ragged_batch(model.config, [3, 6, 1], 6).items()}
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        ours, theirs = model(**batch), reference_of(model)(**batch)
    torch.testing.assert_close(ours.last_hidden_state[real], theirs.last_hidden_state[real], atol=1e-5, rtol=1e-4)


def test_padding_comes_back_as_zeros() -> None:
    model = BertModel.from_config(small_config())
    batch = ragged_batch(model.config, [3, 5], 8)
    hidden = model(**batch).last_hidden_state
    assert hidden.shape == (2, 8, 24)
    assert not hidden[batch["attention_mask"] == 0].any()


def test_what_stands_in_padding_changes_nothing() -> None:
    model = BertModel.from_config(small_config())
    batch = ragged_batch(model.config, [3, 5], 5)
    other = {**batch, "input_ids": batch["input_ids"] + 7 * (1 - batch["attention_mask"])}
    assert torch.equal(model(**batch).last_hidden_state, model(**other).last_hidden_state)


def test_mask_and_segments_may_be_left_out() -> None:
    model = BertModel.from_config(small_config())
    input_ids = torch.arange(1, 11).view(2, 5)
    full = model(input_ids, torch.ones_like(input_ids), torch.zeros_like(input_ids))
    assert torch.equal(model(input_ids).last_hidden_state, full.last_hidden_state)


def test_too_long_sequence_is_refused_with_the_limit() -> None:
    model = BertModel.from_config(small_config())
    with pytest.raises(DataError, match=r"33 tokens, but the model reads at most 32"):
        model(torch.ones(1, 33, dtype=torch.long))


def test_padding_beyond_the_limit_does_no_harm() -> None:
    model = BertModel.from_config(small_config())
    batch = ragged_batch(model.config, [4, 32], 40)
    assert model(**batch).last_hidden_state.shape == (2, 40, 24)


def test_equal_seeds_give_equal_weights_without_the_global_generator() -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, again, other = (BertModel.from_config(small_config(), seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.embeddings.word.weight, other.embeddings.word.weight)


def test_weights_start_as_in_bert() -> None:
    model = BertModel.from_config(BertConfig.from_size("tiny", vocab_size=1000))
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            assert float(parameter.detach().std()) == pytest.approx(0.02, rel=0.2), name
        else:
            assert torch.equal(parameter, torch.full_like(parameter, float(not name.endswith("bias")))), name
    assert not model.embeddings.word.weight[0].any()


@pytest.mark.parametrize("field", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_dropout_acts_in_training_only_and_follows_the_seed(field: str) -> None:
    changes: dict[str, Any] = {field: 0.5}
    model = BertModel.from_config(replace(small_config(), **changes))
    batch = ragged_batch(model.config, [4, 6], 6)
    seqs = PackedSequences.from_padded(**batch)

    def draw(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return model.encode(seqs)

    model.train()
    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    model.eval()
    assert torch.equal(draw(1), draw(2))


def test_autocast_gives_nearly_the_same() -> None:
    model = scattered(BertModel.from_config(small_config()))
    batch = ragged_batch(model.config, [7, 3], 7)
    full = model(**batch).last_hidden_state
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(**batch)
    torch.testing.assert_close(output.last_hidden_state.float(), full, atol=0.1, rtol=0.1)
    output.last_hidden_state.float().sum().backward()
    assert all(p.grad is not None for n, p in model.named_parameters() if not n.startswith("pooler"))


def test_step_in_the_readme_runs_and_reaches_every_weight() -> None:
    text = (Path(bert_core.__file__).parent / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec("\n".join(blocks), names)
    assert float(names["loss"].detach()) > 0
    assert all(parameter.grad is not None for parameter in names["model"].parameters())


def test_random_bits_are_splitmix64() -> None:
    # First outputs of the reference generator for seed 1234567 (Vigna's splitmix64.c).
    assert random_bits(1234567, np.arange(3)).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_keys_broadcast_against_counters() -> None:
    keys = random_bits(1, np.arange(4))
    table = random_bits(keys[:, None], np.arange(5))
    assert table.shape == (4, 5)
    assert (table[2] == random_bits(int(keys[2]), np.arange(5))).all()


def test_keys_differ_by_every_label_and_its_type() -> None:
    keys = {derive_key(0), derive_key(1), derive_key(0, "a"), derive_key(0, "a", 1), derive_key(0, "a", "1")}
    assert len(keys) == 5


def test_uniform_numbers_are_uniform() -> None:
    numbers = uniform(derive_key(3, "test"), np.arange(20_000))
    assert stats.kstest(numbers, "uniform").pvalue > 0.001
    assert 0.0 <= numbers.min() < numbers.max() < 1.0


def test_integers_cover_their_range_evenly() -> None:
    numbers = integers(derive_key(4), np.arange(30_000), 7)
    assert stats.chisquare(np.bincount(numbers, minlength=7)).pvalue > 0.001
    assert set(numbers.tolist()) == set(range(7))


def test_permutation_is_one_and_differs_by_key() -> None:
    first, second = permutation(1, 100), permutation(2, 100)
    assert sorted(first.tolist()) == list(range(100))
    assert first.tolist() != second.tolist()


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
