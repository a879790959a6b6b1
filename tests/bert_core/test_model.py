"""The encoder against transformers, every combination of its choices, rows read alone; the README's step.

Alone: pytest tests/bert_core/test_model.py
"""

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn

import bert_core
from bert_core.attention.positions import alibi_slopes
from bert_core.config import BertConfig
from bert_core.config_fields import HiddenActivation
from bert_core.counter_random import derive_key, integers, permutation, random_bits, uniform
from bert_core.encoder_layer import EncoderLayer
from bert_core.errors import DataError
from bert_core.heads import BertForMultipleChoice, BertForPreTraining, BertForSequenceClassification
from bert_core.heads.pretraining import OBJECTIVE_HEADS, HeadInputs, PretrainingLabels
from bert_core.model import BertModel
from bert_core.packed_sequences import PackedSequences
from tests.bert_core.reference import (
    assert_equal_gradients,
    ragged_batch,
    reference_of,
    rotated_by_definition,
    scattered,
    small_config,
)


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


@pytest.mark.parametrize("field", ["hidden_dropout_prob", "attention_probs_dropout_prob", "pooler_dropout"])
def test_dropout_acts_in_training_only_and_follows_the_seed(field: str) -> None:
    changes: dict[str, Any] = {field: 0.5}
    model = BertModel.from_config(replace(small_config(), **changes))
    batch = ragged_batch(model.config, [4, 6], 6)

    def draw(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return model(**batch).pooler_output

    model.train()
    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    model.eval()
    assert torch.equal(draw(1), draw(2))


@pytest.mark.parametrize("positions", ["absolute", "disentangled"])
def test_autocast_gives_nearly_the_same(positions: str) -> None:
    model = scattered(BertModel.from_config(small_config(position_embedding_type=positions)))
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
    sums, again = model.packed_loss_sums(seqs, labels, chosen), model.packed_loss_sums(seqs, labels, chosen, whole)
    for name in chosen:
        head = OBJECTIVE_HEADS[name]
        inputs = HeadInputs(model.bert, seqs, labels, model.bert.embeddings.word.weight)
        rows = head.rows(inputs)
        hidden = whole if rows is None else whole[rows]
        expected = head.loss_sums(model.get_submodule(head.module_name), inputs, hidden)
        torch.testing.assert_close(sums[name].loss, expected.loss)
        assert again[name].loss.equal(expected.loss), "the encoder is not run again"


@pytest.mark.parametrize("head", [BertForSequenceClassification, BertForMultipleChoice])
@pytest.mark.parametrize("changes", [{}, {"causal_attention": True}, {"layer_pooling": "second_to_last"}])
def test_classifiers_read_one_token_of_each_sequence(head: Any, changes: dict[str, Any]) -> None:
    model = scattered(head.from_config(small_config(**changes))).eval()
    seqs = packed(model)
    place = seqs.last_tokens if "causal_attention" in changes else seqs.first_tokens
    pooled = model.bert.pool(model.bert.head_states(seqs)[place])
    torch.testing.assert_close(model.packed_logits(seqs), model.classifier(pooled).squeeze(-1))


AXES: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": ("absolute", "rotary", "alibi"),
    "feed_forward": ("mlp", "gated"),
    "norm_placement": ("post", "pre"),
    "use_bias": (True, False),
    "num_hidden_groups": (None, 1),
    "embedding_size": (None, 7),
    "type_vocab_size": (2, 0),
}
LATER_AXES: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": ("absolute", "rotary", "alibi"),
    "norm_placement": ("post", "pre"),
    "norm": ("layer", "rms"),
    "num_key_value_heads": (None, 1),
    "embedding_norm": (True, False),
}
COMBINATIONS = [
    dict(zip(axes, values, strict=True)) for axes in (AXES, LATER_AXES) for values in itertools.product(*axes.values())
]


def attend_by_definition(layer: EncoderLayer, x: Tensor, kind: str) -> Tensor:
    """One sequence (S, H), one head and one query at a time."""
    num_heads, num_shared, _ = layer.qkv_heads
    heads = F.linear(x, layer.qkv.weight, layer.qkv.bias).unflatten(-1, (sum(layer.qkv_heads), -1))
    q, k, v = heads.split(layer.qkv_heads, dim=1)
    slopes = alibi_slopes(num_heads)
    context = torch.zeros_like(q)
    for head in range(num_heads):
        shared = head * num_shared // num_heads
        queries, keys = q[:, head], k[:, shared]
        if kind == "rotary":
            queries, keys = (
                torch.tensor([rotated_by_definition(row.tolist(), place, 10_000.0) for place, row in enumerate(rows)])
                for rows in (queries, keys)
            )
        for i in range(len(x)):
            scores = torch.stack([queries[i] @ keys[j] / queries.shape[-1] ** 0.5 for j in range(len(x))])
            if kind == "alibi":
                scores = scores - slopes[head] * torch.tensor([float(abs(i - j)) for j in range(len(x))])
            context[i, head] = scores.softmax(0) @ v[:, shared]
    return layer.attention_output(context.flatten(1))


def feed_by_definition(layer: EncoderLayer, x: Tensor, kind: str) -> Tensor:
    inner = layer.intermediate(x)
    if kind == "gated":
        width = inner.shape[-1] // 2
        return layer.output(F.gelu(inner[:, :width]) * inner[:, width:])
    return layer.output(F.gelu(inner))


def encode_by_definition(model: BertModel, input_ids: Tensor, token_type_ids: Tensor) -> Tensor:
    """One sequence (S,) → (S, H)."""
    config, embeddings = model.config, model.embeddings
    x = embeddings.word.weight[input_ids]
    if config.position_embedding_type == "absolute":
        x = x + embeddings.position.weight[: len(input_ids)]
    if config.type_vocab_size:
        x = x + embeddings.token_type.weight[token_type_ids]
    x = embeddings.norm(x)
    if config.embedding_size:
        x = embeddings.projection(x)
    for place in range(config.num_hidden_layers):
        layer = model.layers[0 if config.num_hidden_groups == 1 else place]
        assert isinstance(layer, EncoderLayer)
        if config.norm_placement == "pre":
            x = x + attend_by_definition(layer, layer.attention_norm(x), config.position_embedding_type)
            x = x + feed_by_definition(layer, layer.output_norm(x), config.feed_forward)
        else:
            x = layer.attention_norm(x + attend_by_definition(layer, x, config.position_embedding_type))
            x = layer.output_norm(x + feed_by_definition(layer, x, config.feed_forward))
    return model.norm(x) if config.norm_placement == "pre" else x


@pytest.mark.parametrize("choices", COMBINATIONS, ids=lambda choices: "-".join(map(str, choices.values())))
@pytest.mark.heavy
@pytest.mark.core
def test_choices_agree_with_their_definition(choices: dict[str, Any]) -> None:
    model = scattered(BertModel.from_config(small_config(num_hidden_layers=2, **choices))).eval()
    assert isinstance(model, BertModel)
    batch = ragged_batch(model.config, [5, 3], 6)
    types = batch.get("token_type_ids", torch.zeros_like(batch["input_ids"]))
    with torch.no_grad():
        found = model(**batch).last_hidden_state
        for row, length in enumerate((5, 3)):
            expected = encode_by_definition(model, batch["input_ids"][row, :length], types[row, :length])
            torch.testing.assert_close(found[row, :length], expected, atol=1e-5, rtol=1e-4)


def test_only_what_adds_to_the_residual_stream_starts_smaller_in_a_deep_model() -> None:
    plain, scaled = (
        BertForPreTraining.from_config(small_config(num_hidden_layers=8, depth_scaled_init=is_scaled))
        for is_scaled in (False, True)
    )
    for (name, weight), other in zip(plain.named_parameters(), scaled.parameters(), strict=True):
        adds = name.startswith("bert.layers.") and name.endswith(("attention_output.weight", ".output.weight"))
        torch.testing.assert_close(weight / 4 if adds else weight, other)


@pytest.mark.parametrize("num_groups", [1, 2, 3, 6])
def test_shared_layers_are_used_in_runs(num_groups: int) -> None:
    config = small_config(num_hidden_layers=6, num_hidden_groups=num_groups)
    model = BertModel.from_config(config)
    used: list[int] = []
    for group, layer in enumerate(model.layers):
        layer.register_forward_hook(lambda *_, group=group: used.append(group))
    model(**ragged_batch(config, [4], 4))
    assert used == [place * num_groups // 6 for place in range(6)]


def test_without_biases_only_heads_have_any() -> None:
    model = BertForPreTraining.from_config(small_config(use_bias=False))
    with_bias = {name.split(".")[0] for name, _ in model.named_parameters() if name.endswith("bias")}
    assert with_bias == {"bert", "prediction", "next_sentence"}
    assert [name for name, _ in model.bert.named_parameters() if name.endswith("bias")] == ["pooler.bias"]


def test_layer_outputs_begin_with_the_embeddings_and_end_with_the_result() -> None:
    model = scattered(BertModel.from_config(small_config(norm_placement="pre"))).eval()
    assert isinstance(model, BertModel)
    seqs = model.pack(ragged_batch(model.config, [4, 2], 4)["input_ids"])
    outputs = list(model.layer_outputs(seqs))
    assert len(outputs) == 1 + model.config.num_hidden_layers
    assert torch.equal(outputs[0], model.embeddings(seqs))
    assert torch.equal(outputs[-1], model.encode(seqs))


@pytest.mark.parametrize("choices", [{}, {"position_embedding_type": "rotary"}, {"position_embedding_type": "alibi"}])
def test_a_causal_model_does_not_look_ahead(choices: dict[str, Any]) -> None:
    config = small_config(causal_attention=True, **choices)
    model = scattered(BertModel.from_config(config)).eval()
    batch = ragged_batch(config, [9, 9], 9, seed=0)
    changed = {**batch, "input_ids": batch["input_ids"].clone()}
    changed["input_ids"][:, 5:] = 1
    with torch.no_grad():
        before, after = (model(**inputs).last_hidden_state for inputs in (batch, changed))
        pooled_before, pooled_after = (model(**inputs).pooler_output for inputs in (batch, changed))
    torch.testing.assert_close(after[:, :5], before[:, :5])
    assert not torch.allclose(after[:, 5:], before[:, 5:])
    assert not torch.allclose(pooled_after, pooled_before)  # of the last token, which sees everything


@pytest.mark.parametrize("pooling", ["cls", "mean", "late"])
def test_an_encoder_alone_pools_as_it_does_for_a_classifier(pooling: str) -> None:
    model = scattered(BertModel.from_config(small_config(classifier_pooling=pooling))).eval()
    ids = torch.randint(5, 20, (3, 7), generator=torch.Generator().manual_seed(0))
    # The last layer runs for the first tokens alone there, and products of other sizes may have other last bits.
    torch.testing.assert_close(model(ids).pooler_output, model.pooled_states(model.pack(ids)), rtol=0.0, atol=1e-6)


def test_a_model_of_one_token_type_reads_pairs_of_any_tokenizer() -> None:
    model = BertModel.from_config(small_config(type_vocab_size=1)).eval()
    ids, types = torch.tensor([[2, 9, 3, 8, 3]]), torch.tensor([[0, 0, 0, 1, 1]])
    both = (model(ids, token_type_ids=given).last_hidden_state for given in (types, torch.zeros_like(types)))
    assert torch.equal(*both)
