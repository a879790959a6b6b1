"""Normalization in the type of the residual stream. Alone: pytest tests/bert_core/layers/test_layer_norm.py"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bert_core.layers.layer_norm import LayerNorm, set_residual_dtype
from bert_core.model import BertModel
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
    set_residual_dtype(model, dtype)
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
    set_residual_dtype(ours, BF16)
    with torch.autocast("cpu", BF16):
        found = ours(x)
    assert found.dtype == BF16
    assert found.equal(theirs(x.float()).to(BF16)), "the statistics have all digits"


@pytest.mark.parametrize("choices", [{}, {"model_type": "bert_core", "norm_placement": "pre"}, {"embedding_size": 12}])
def test_the_residual_stream_has_the_type_that_is_set(choices: dict[str, Any]) -> None:
    model = encoder(**choices)
    full, _ = additions(model, None)
    rounded, seen = additions(model, BF16)
    assert seen == {rounded.dtype} == {BF16}
    torch.testing.assert_close(rounded.float(), full.float(), atol=0.1, rtol=0.1)
    again, seen = additions(model, None)
    assert again.equal(full)
    assert FP32 in seen or "embedding_size" in choices  # a widened embedding is the output of a matrix product


def test_gradients_reach_all_parameters_in_their_own_type() -> None:
    model = encoder()
    set_residual_dtype(model, BF16)
    with torch.autocast("cpu", BF16):
        loss = model.encode(packed(model)).float().square().sum()
    gradients = torch.autograd.grad(loss, list(model.layers.parameters()) + list(model.embeddings.norm.parameters()))
    assert {gradient.dtype for gradient in gradients} == {FP32}
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)


def test_without_autocast_and_in_a_folder_there_is_no_trace_of_it(tmp_path: Path) -> None:
    model = encoder()
    with torch.no_grad():
        before = model.encode(packed(model))
        set_residual_dtype(model, BF16)
        assert model.encode(packed(model)).equal(before)
    model.save_pretrained(tmp_path)
    again = BertModel.from_pretrained(tmp_path)
    assert {module.residual_dtype for module in again.modules() if isinstance(module, LayerNorm)} == {None}
    assert again.config == model.config
