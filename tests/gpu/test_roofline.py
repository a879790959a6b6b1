"""Counts of operations and bytes that predictions rest on. Run alone: pytest tests/gpu/test_roofline.py"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.gpu.roofline import (
    AS_IT_WAS,
    BatchShape,
    Ceilings,
    Levers,
    component_ms,
    one_after_another,
    step_ms,
    step_operations,
    sublayer_bytes,
    useful_flops,
    utilization,
)
from benchmarks.gpu.roofline_tables import tables
from bert_core.config import BertConfig
from bert_core.heads.pretraining import BertForPreTraining
from bert_core.packed_sequences import PackedSequences

CONFIG = BertConfig.from_shape(2, 64, vocab_size=120).with_dropout(0.0)
SHAPE = BatchShape((16, 32, 32, 48), width=48, num_predictions=20)
"""Multiples of 16: attention on the CPU rounds lengths up to them."""
BASE, FULL = BertConfig.from_size("base"), BatchShape.of_fill(32_768, 128)


@pytest.fixture
def counted_flops(monkeypatch: pytest.MonkeyPatch) -> int:
    """Operations of a step with the model on the CPU, as PyTorch counts them."""
    monkeypatch.setattr("bert_core.kernels.linear._ONEDNN", False)  # whose products the counter does not know
    model = BertForPreTraining.from_config(CONFIG)
    tokens = torch.ones(SHAPE.num_tokens, dtype=torch.int64)
    cu_seqlens = F.pad(torch.tensor(SHAPE.lengths).cumsum(0), (1, 0))
    seqs = PackedSequences.from_lengths(tokens, torch.zeros_like(tokens), cu_seqlens)
    with FlopCounterMode(display=False) as counter:
        hidden = model.bert.encode(seqs)
        head = model.prediction.loss_sums(hidden[:20], model.bert.embeddings.word.weight, tokens[:20])
        (head.loss + hidden.sum()).backward()
    return counter.get_total_flops()


def test_useful_operations_are_those_that_pytorch_counts(counted_flops: int) -> None:
    groups = BatchShape((48,) * 4, 48, 20)  # one group of attention, as wide as its longest sequence
    attention = useful_flops(CONFIG, groups) - useful_flops(CONFIG, replace(groups, lengths=(48,) * 3))
    assert attention > 0
    assert useful_flops(CONFIG, SHAPE) + 12 * 2 * 64 * (groups.num_pairs - SHAPE.num_pairs) == counted_flops


def test_products_of_a_step_are_the_useful_operations_but_for_attention() -> None:
    products = sum(o.flops for o in step_operations(BASE, FULL, AS_IT_WAS) if not o.is_attention)
    attention = 12 * BASE.num_hidden_layers * BASE.hidden_size * FULL.num_pairs
    assert products + attention == useful_flops(BASE, FULL)


class ByteCounter(TorchDispatchMode):
    """Counts the bytes of matrices that operations read and write; views move none."""

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if not func.is_view and func is not torch.ops.aten.detach.default:
            results = found if isinstance(found, tuple) else (found,)
            matrices = [x for x in (*args, *results) if isinstance(x, torch.Tensor) and x.dim() == 2 and x.shape[1] > 1]
            self.num_bytes += sum(x.numel() * x.element_size() for x in matrices)
        return found


@pytest.mark.parametrize("is_16_bit", [False, True])
def test_bytes_of_a_sublayer_are_those_of_its_operations(is_16_bit: bool) -> None:
    stream_type = torch.bfloat16 if is_16_bit else torch.float32
    shape = (64, 32)
    stream = torch.randn(shape).to(stream_type).requires_grad_()
    branch = torch.randn(shape).to(torch.bfloat16).requires_grad_()
    gradients = [torch.ones(shape, dtype=stream_type), torch.ones(shape, dtype=torch.bfloat16)]
    with ByteCounter() as counter:
        product_input = stream.to(torch.bfloat16)
        added = stream + torch.native_dropout(branch, 0.1, True)[0]
        normalized = F.layer_norm(added, (32,), torch.ones(32, dtype=stream_type), torch.zeros(32, dtype=stream_type))
        torch.autograd.backward([normalized, product_input], gradients)
    assert counter.num_bytes == sublayer_bytes(Levers(bf16_residual=is_16_bit)) * 64 * 32


def test_levers_never_make_a_step_longer() -> None:
    steps = [step_ms(BASE, FULL, levers) for _, levers in (("none", Levers()), *one_after_another())]
    assert steps == sorted(steps, reverse=True)
    assert len(set(steps)) == len(steps)


def test_a_step_of_products_at_their_full_rate_has_a_utilization_of_one() -> None:
    perfect = Ceilings(product_share=1.0, copy_bytes_per_s=1e30)
    no_attention = BatchShape((1,) * 4096, 1, 600)
    *_, (_, levers) = one_after_another()
    ms = component_ms(BASE, no_attention, replace(levers, last_layer_rows=False), perfect)["products"]
    assert utilization(BASE, no_attention, ms, perfect) == pytest.approx(1, rel=1e-3)


def test_batches_have_the_fill_that_was_asked_for() -> None:
    shape = BatchShape.of_fill(32_768, 512, 0.56)
    assert shape.num_slots == 32_768
    assert shape.num_tokens / shape.num_slots == pytest.approx(0.56, abs=0.01)
    assert max(shape.lengths) == 512


def test_the_page_holds_the_tables_that_the_code_prints() -> None:
    page = (Path(__file__).parents[2] / "docs" / "performance.md").read_text(encoding="utf-8")
    for table in tables():
        assert table in page, "put the output of `python -m benchmarks.gpu.roofline_tables` into docs/performance.md"
