"""Every combination of the encoder's choices, against the same written out token by token.

Run alone: pytest tests/bert_core/test_encoder_choices.py
"""

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.attention.positions import alibi_slopes
from bert_core.heads import BertForPreTraining
from bert_core.layers.encoder_layer import EncoderLayer
from bert_core.model import BertModel
from tests.bert_core.reference import ragged_batch, rotated_by_definition, scattered, small_config

AXES: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": ("absolute", "rotary", "alibi"),
    "feed_forward": ("mlp", "gated"),
    "norm_placement": ("post", "pre"),
    "use_bias": (True, False),
    "num_hidden_groups": (None, 1),
    "embedding_size": (None, 7),
    "type_vocab_size": (2, 0),
}
COMBINATIONS = [dict(zip(AXES, values, strict=True)) for values in itertools.product(*AXES.values())]


def attend_by_definition(layer: EncoderLayer, x: Tensor, kind: str) -> Tensor:
    """One sequence (S, H), one head and one query at a time."""
    q, k, v = F.linear(x, layer.qkv.weight, layer.qkv.bias).unflatten(-1, (3, layer.num_heads, -1)).unbind(1)
    slopes = alibi_slopes(layer.num_heads)
    context = torch.zeros_like(v)
    for head in range(layer.num_heads):
        queries, keys = q[:, head], k[:, head]
        if kind == "rotary":
            queries, keys = (
                torch.tensor([rotated_by_definition(row.tolist(), place, 10_000.0) for place, row in enumerate(rows)])
                for rows in (queries, keys)
            )
        for i in range(len(x)):
            scores = torch.stack([queries[i] @ keys[j] / queries.shape[-1] ** 0.5 for j in range(len(x))])
            if kind == "alibi":
                scores = scores - slopes[head] * torch.tensor([float(abs(i - j)) for j in range(len(x))])
            context[i, head] = scores.softmax(0) @ v[:, head]
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
