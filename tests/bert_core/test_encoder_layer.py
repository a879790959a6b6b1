"""Layer norm and layer pooling.

Alone: pytest tests/bert_core/test_encoder_layer.py
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.encoder_layer import LayerNorm, RMSNorm
from bert_core.heads import BertForQuestionAnswering, BertForSequenceClassification, BertForTokenClassification
from bert_core.model import BertModel, LayerPooling
from bert_core.packed_sequences import PackedSequences
from tests.bert_core.reference import ragged_batch, scattered, small_config

BF16, FP32 = torch.bfloat16, torch.float32


def encoder(**choices: Any) -> BertModel:
    model = scattered(BertModel.from_config(small_config(**choices))).eval()
    assert isinstance(model, BertModel)
    return model


def packed(model: BertModel) -> PackedSequences:
    return model.pack(**ragged_batch(model.config, [5, 9], 9))


def additions(model: BertModel, dtype: torch.dtype | None) -> tuple[Tensor, set[torch.dtype]]:
    """Output under autocast to bf16, and the types of what the layers got as input."""
    model.residual_dtype = dtype
    seen: set[torch.dtype] = set()
    handles = [
        layer.register_forward_pre_hook(lambda module, inputs: seen.add(inputs[0].dtype)) for layer in model.layers
    ]
    with torch.no_grad(), torch.autocast("cpu", BF16):
        hidden = model.encode(packed(model))
    for handle in handles:
        handle.remove()
    return hidden, seen


@pytest.mark.parametrize("dtype", [FP32, BF16])
@pytest.mark.parametrize("bias", [True, False])
def test_it_is_the_norm_of_pytorch_before_rounding(dtype: torch.dtype, bias: bool) -> None:
    ours, theirs = LayerNorm(24, bias=bias), nn.LayerNorm(24, bias=bias)
    with torch.no_grad():
        ours.weight.copy_(torch.linspace(-2, 2, 24).to(BF16))
    theirs.load_state_dict(ours.state_dict())
    x = (3 + 5 * torch.randn(7, 24, generator=torch.Generator().manual_seed(0))).to(dtype)
    assert ours(x.float()).equal(theirs(x.float()))
    with torch.autocast("cpu", BF16):
        found = ours(x)
    assert found.dtype == dtype
    assert found.equal(theirs(x.float()).to(dtype)), "the statistics have all digits"


@pytest.mark.parametrize("dtype", [FP32, BF16])
@pytest.mark.parametrize("autocast", [True, False])
def test_the_root_mean_square_is_computed_with_all_digits(dtype: torch.dtype, autocast: bool) -> None:
    norm = RMSNorm(24, eps=1e-3)
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(-2, 2, 24))
    x = (3 + 5 * torch.randn(7, 24, generator=torch.Generator().manual_seed(0))).to(dtype)
    full = x.double()
    expected = full / (full.square().mean(dim=-1, keepdim=True) + 1e-3).sqrt() * norm.weight.double()
    with torch.autocast("cpu", BF16, enabled=autocast):
        found = norm(x)
    assert found.dtype == dtype
    torch.testing.assert_close(found, expected.to(dtype), atol=1e-6, rtol=0.01 if dtype == BF16 else 1e-6)


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"model_type": "bert_core", "norm_placement": "pre"},
        {"embedding_size": 12},
        {"model_type": "bert_core", "norm_placement": "pre", "norm": "rms", "embedding_norm": False},
    ],
)
def test_the_residual_stream_has_the_type_that_is_set(choices: dict[str, Any]) -> None:
    model = encoder(**choices)
    full, _ = additions(model, None)
    rounded, seen = additions(model, BF16)
    assert seen == {rounded.dtype} == {BF16}
    torch.testing.assert_close(rounded.float(), full.float(), atol=0.1, rtol=0.1)
    again, seen = additions(model, None)
    assert again.equal(full)
    assert seen == {FP32}


def test_gradients_reach_all_parameters_in_their_own_type() -> None:
    model = encoder()
    model.residual_dtype = BF16
    with torch.autocast("cpu", BF16):
        loss = model.encode(packed(model)).float().square().sum()
    gradients = torch.autograd.grad(loss, list(model.layers.parameters()) + list(model.embeddings.norm.parameters()))
    assert {gradient.dtype for gradient in gradients} == {FP32}
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)


def test_without_autocast_and_in_a_folder_there_is_no_trace_of_it(tmp_path: Path) -> None:
    model = encoder()
    with torch.no_grad():
        before = model.encode(packed(model))
        model.residual_dtype = BF16
        assert model.encode(packed(model)).equal(before)
    model.save_pretrained(tmp_path)
    again = BertModel.from_pretrained(tmp_path)
    assert again.residual_dtype is None
    assert again.config == model.config


KINDS = ("last", "second_to_last", "sum_last_four", "concat_last_four", "scalar_mix", "embeddings")
HEADS = (BertForSequenceClassification, BertForTokenClassification, BertForQuestionAnswering)
OUTPUTS = [torch.full((2, 3), float(10**place)) for place in range(6)]


def layer_pooling(kind: str) -> LayerPooling:
    return LayerPooling(small_config(num_hidden_layers=5, layer_pooling=kind))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("last", [1e5]),
        ("second_to_last", [1e4]),
        ("sum_last_four", [111_100.0]),
        ("embeddings", [1.0]),
        ("concat_last_four", [1e2, 1e3, 1e4, 1e5]),
    ],
)
def test_layers_that_are_chosen(kind: str, expected: list[float]) -> None:
    chosen = layer_pooling(kind)
    assert chosen(chosen.select(iter(OUTPUTS))).tolist() == [[value for value in expected for _ in range(3)]] * 2


def test_scalar_mix_weighs_every_layer_and_scales() -> None:
    chosen = layer_pooling("scalar_mix")
    with torch.no_grad():
        chosen.weights.copy_(torch.tensor([0.0, 0.0, 3.0, 0.0, 0.0, 1.0]))
        chosen.scale.fill_(2.0)
    shares = chosen.weights.softmax(0).tolist()
    expected = 2 * sum(share * 10**place for place, share in enumerate(shares))
    assert chosen(chosen.select(iter(OUTPUTS)))[1, 2].item() == pytest.approx(expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", HEADS)
def test_kept_states_give_the_same_outputs(head: type[PretrainedModel], kind: str) -> None:
    model = scattered(head.from_config(small_config(num_hidden_layers=4, layer_pooling=kind))).eval()
    batch = ragged_batch(model.config, [5, 3, 4], 6)
    seqs = model.bert.pack(**batch)
    with torch.no_grad():
        states = model.bert.layer_pooling.select(model.bert.layer_outputs(seqs))
        unread = replace(seqs, input_ids=torch.zeros_like(seqs.input_ids))
        # To rounding, as the last layer runs for the tokens alone that the head reads.
        torch.testing.assert_close(model.packed_logits(unread, selected=states), model.packed_logits(seqs))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.heavy
def test_folder_gives_the_model_back_under_a_type_of_its_own(
    head: type[PretrainedModel], kind: str, tmp_path: Path
) -> None:
    model = scattered(head.from_config(small_config(num_hidden_layers=4, layer_pooling=kind))).eval()
    model.save_pretrained(tmp_path)
    again = head.from_pretrained(tmp_path)
    assert (again.config.model_type == "bert") == (kind == "last")
    seqs = model.bert.pack(**ragged_batch(model.config, [5, 3], 6))
    with torch.no_grad():
        assert torch.equal(again.packed_logits(seqs), model.packed_logits(seqs))
