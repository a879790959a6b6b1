"""Compiled layers on a GPU agree with those as written, and give the same bits at each repetition. Alone:
pytest tests/gpu/test_compiled_layers.py
"""

import pytest
import torch
from torch import Tensor

import benchmarks.gpu.setting  # noqa: F401 - sets what deterministic products of cuBLAS want, before CUDA begins
from bert_core.compiled_layers import compile_layers
from bert_core.heads import BertForPreTraining
from tests.bert_core.reference import ragged_batch, small_config

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # the compiler's own
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU: this torch sees no CUDA device"),
]


def model_on_gpu(dropout: float, residual: torch.dtype | None) -> BertForPreTraining:
    config = small_config(hidden_size=128, num_attention_heads=2, num_hidden_layers=3).with_dropout(dropout)
    model = BertForPreTraining.from_config(config, seed=3).train().cuda()
    model.bert.residual_dtype = residual
    return model


def gradients(model: BertForPreTraining, dtype: torch.dtype | None) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of a batch, with dropout from a fixed seed."""
    torch.manual_seed(11)
    batch = {name: value.cuda() for name, value in ragged_batch(model.config, [9, 4, 30] * 40, 32).items()}
    model.zero_grad()
    with torch.autocast("cuda", dtype, enabled=dtype is not None):
        loss = model(**batch, labels=batch["input_ids"], next_sentence_label=torch.zeros(120).long().cuda()).loss
    loss.backward()
    return loss.item(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_compiled_layers_agree_with_those_as_written() -> None:
    model = model_on_gpu(0.0, None)
    expected_loss, expected = gradients(model, None)
    compile_layers(model.bert)
    loss, found = gradients(model, None)
    assert loss == pytest.approx(expected_loss, abs=1e-5)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("residual", [None, torch.bfloat16], ids=["fp32 residual", "bf16 residual"])
def test_compiled_layers_give_the_same_bits_again(residual: torch.dtype | None) -> None:
    """Bits repeat with dropout, also with layers computed again; attention's order is fixed by PyTorch's switch."""
    model = model_on_gpu(0.1, residual)
    torch.use_deterministic_algorithms(True)
    try:
        compile_layers(model.bert, torch.bfloat16)
        first_loss, first = gradients(model, torch.bfloat16)
        model.bert.recomputes_layers = True
        again_loss, again = gradients(model, torch.bfloat16)
    finally:
        torch.use_deterministic_algorithms(False)
    assert first_loss == again_loss
    assert all(torch.equal(again[name], gradient) for name, gradient in first.items())
