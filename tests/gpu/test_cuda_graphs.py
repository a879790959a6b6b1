"""CUDA graphs and attention dropout on a card. Alone: pytest tests/gpu/test_cuda_graphs.py

The same with a stand-in on the CPU: tests/bert_core/test_cuda_graphs.py.
"""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks._pretraining_batches import OBJECTIVES
from benchmarks.gpu.own_step import build_learner
from benchmarks.gpu.texts import first_batches, generated_text
from bert_core.attention import attention, varlen
from bert_core.attention.backend import AttentionOptions
from bert_core.cuda_graphs import capture_on
from bert_core.examples.packing import SizeBucket
from bert_core.heads.pretraining import BertForPreTraining
from bert_core.kernels.dropout import seed_dropout
from bert_core.packed_sequences import PackedSequences
from orchestrator.pretraining.device_batch import DeviceBatch, filled_micro_batch
from orchestrator.pretraining.execution_mode import StepGraphs
from orchestrator.pretraining.step import GlobalCounts, label_loss
from tests.gpu.devices import small_setting

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU: this torch sees no CUDA device"
)
LENGTHS = [30, 1, 64, 17]


def sequences() -> PackedSequences:
    ids = torch.zeros(sum(LENGTHS), dtype=torch.int64)
    return PackedSequences.from_lengths(ids, ids, torch.tensor([0, *LENGTHS]).cumsum(0).int()).to("cuda")


def projections() -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = torch.randn(3, sum(LENGTHS), 2, 64, device="cuda", dtype=torch.bfloat16).unbind()
    return q, k, v


def test_attention_dropout_is_unbiased_repeats_by_its_seed_and_has_its_own_gradient() -> None:
    seqs, (q, k, v) = sequences(), projections()
    assert varlen._flash_attention_runs()

    def draw(seed: int, v: Tensor = v) -> Tensor:
        seed_dropout(seed, q.device)
        return attention(q, k, v, seqs, AttentionOptions(dropout_p=0.1))

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    whole = attention(q, k, v, seqs, AttentionOptions()).float()
    mean = torch.stack([draw(seed).float() for seed in range(400)]).mean(0)
    assert float((mean - whole).norm() / whole.norm()) < 0.04
    values = v.detach().requires_grad_()
    weights = torch.randn_like(v)
    output = draw(3, values)
    (gradient,) = torch.autograd.grad(output, values, weights)
    # Context is linear in v, so its product with any weights is that of v with its gradient: the same fell.
    products = [(a.float() * b.float()).sum() for a, b in ((output, weights), (v, gradient))]
    torch.testing.assert_close(*products, rtol=0.02, atol=0.5)


@pytest.mark.parametrize("residual_and_attention_dropout", [0.0, 0.1])
def test_a_replay_has_the_loss_and_gradients_of_its_kernels(residual_and_attention_dropout: float) -> None:
    setting, text = small_setting("cuda"), generated_text(100, 50)
    config = setting.build_config("small", vocab_size=text.vocab_size).with_dropout(residual_and_attention_dropout)
    model = build_learner(config, setting.device).model
    assert isinstance(model, BertForPreTraining)
    spec: Any = SimpleNamespace(precision="bf16")
    context: Any = SimpleNamespace(
        model=model, spec=spec, worker=SimpleNamespace(device=setting.device), objectives=OBJECTIVES
    )
    graphs = StepGraphs(context, capture_on(setting.device))
    batches = first_batches(text, 6, 16, 32, seed=1)
    for seed, packed in enumerate([*batches, *batches]):
        batch = DeviceBatch.copied(packed, setting.device, graphs.find_bucket(packed))
        numbers = [len(packed.masked_positions), packed.num_sequences, len(packed.input_ids)]
        *predictions, num_tokens = torch.tensor(numbers, dtype=torch.float32, device="cuda").unbind()
        counts = GlobalCounts(dict(zip(OBJECTIVES, predictions, strict=True)), num_tokens)
        totals = graphs.run(batch, counts, seed)
        found = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
        model.zero_grad(set_to_none=True)
        seed_dropout(seed, setting.device)
        micro = filled_micro_batch(batch.values, SizeBucket.of(packed, config.max_seq_length))
        sums, loss = label_loss(model, micro, spec, counts)
        loss.backward()
        torch.testing.assert_close(totals[0], sums["masked_lm"].loss.detach(), rtol=1e-5, atol=0)
        assert totals[-1] == len(packed.input_ids)
        expected = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        assert len(found) == len(expected)
        for own, other in zip(found, expected, strict=True):
            torch.testing.assert_close(own, other, rtol=1e-2, atol=1e-3 * float(other.abs().max()))
        model.zero_grad(set_to_none=True)
