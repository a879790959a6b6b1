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

import bert_core
from bert_core.config import BertConfig
from bert_core.config_fields import HiddenActivation
from bert_core.counter_random import derive_key, integers, permutation, random_bits, uniform
from bert_core.errors import DataError
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
