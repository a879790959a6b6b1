"""Launches of a step, held to real ones, and predictions of whole steps. Alone: pytest tests/gpu/test_launches.py"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks._attention_choice import forced_attention
from benchmarks._pretraining_batches import make_batch, pack_batch
from benchmarks.gpu import peers
from benchmarks.gpu.ceilings import COPY, LARGE_PRODUCT, LAUNCH, measured_ceilings
from benchmarks.gpu.launches import host_ms, num_launches, num_peer_launches
from benchmarks.gpu.own_step import Learner, build_learner, own_loss
from benchmarks.gpu.predictions import peer_operations, predict_ms, predict_peer_ms
from benchmarks.gpu.results import Report, StageRecord
from benchmarks.gpu.roofline import AS_IT_WAS, BatchShape, Ceilings, Levers, one_after_another, step_ms, useful_flops
from benchmarks.gpu.setting import in_precision
from bert_core.config import BertConfig

CPU = torch.device("cpu")
BASE, MINI = BertConfig.from_size("base"), BertConfig.from_size("mini")
FULL, FILLED = (BatchShape.of_fill(32_768, 128, fill) for fill in (1.0, 0.56))
*_, (_, ALL_LEVERS) = one_after_another()


class Launches(TorchDispatchMode):
    """Counts operations by name; views and marks of the profiler launch nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view and func.namespace == "aten":
            self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def count_launches(learner: Learner, loss: Callable[[], Tensor]) -> Counter[str]:
    """Count the operations of a second step, by the attention on padded rows that a card has too."""
    with forced_attention("fused"):
        learner.step(loss)
        with Launches() as launches:
            with in_precision("bf16", CPU):
                value = loss()
            value.backward()
            learner.update()
    return launches.counts


def small_learner(num_layers: int) -> tuple[Learner, dict[str, Tensor]]:
    config = BertConfig.from_shape(num_layers, 64, vocab_size=300, attention_probs_dropout_prob=0.0)
    return build_learner(config, CPU), make_batch(config, 4, 16, 0.56)


@pytest.mark.parametrize("num_layers", [2, 4])
def test_launches_are_the_operations_of_a_step(num_layers: int) -> None:
    learner, batch = small_learner(num_layers)
    found = count_launches(learner, own_loss(learner, pack_batch(batch)))
    config = learner.model.config
    assert found.total() == pytest.approx(num_launches(config, AS_IT_WAS), rel=0.05)
    to_rows = num_launches(config, AS_IT_WAS) - num_launches(config, replace(AS_IT_WAS, varlen=True))
    moving = ("new_zeros", "index_copy", "index_select", "index_add")  # and some in embeddings and heads
    assert 0 <= sum(found[name] for name in moving) - to_rows < 12


@pytest.mark.parametrize("num_layers", [2, 4])
def test_launches_of_transformers_are_the_operations_of_its_step(num_layers: int) -> None:
    pytest.importorskip("transformers")
    own, batch = small_learner(num_layers)
    learner = peers.build_peer(own.model, CPU)
    found = count_launches(learner, peers.peer_loss(learner, batch))
    assert found.total() == pytest.approx(num_peer_launches(own.model.config, is_compiled=False), rel=0.05)


def test_a_step_takes_as_long_as_the_slower_of_host_and_device() -> None:
    device_ms = step_ms(MINI, FILLED, ALL_LEVERS)
    assert predict_ms(MINI, FILLED, ALL_LEVERS, Ceilings(launch_us=0.1)) == device_ms
    slow_host = Ceilings(launch_us=50.0)
    expected = host_ms(num_launches(MINI, ALL_LEVERS), slow_host)
    assert predict_ms(MINI, FILLED, ALL_LEVERS, slow_host) == expected > device_ms
    assert predict_ms(MINI, FILLED, ALL_LEVERS, slow_host, is_graphed=True) == device_ms, "one call for all kernels"


def test_transformers_computes_every_slot_and_the_logits_of_all() -> None:
    products = sum(each.flops for each in peer_operations(BASE, FILLED, is_compiled=False) if not each.is_attention)
    all_slots = BatchShape((128,) * 256, 128, num_predictions=32_768)
    attention = 12 * BASE.num_hidden_layers * BASE.hidden_size * all_slots.num_pairs
    assert products + attention == useful_flops(BASE, all_slots)
    assert predict_peer_ms(BASE, FILLED, is_compiled=True) == predict_peer_ms(BASE, FULL, is_compiled=True)


def test_transformers_takes_longer_with_a_mask_and_less_long_compiled() -> None:
    assert predict_peer_ms(BASE, FILLED, is_compiled=False) > predict_peer_ms(BASE, FULL, is_compiled=False)
    assert predict_peer_ms(BASE, FULL, is_compiled=True) < predict_peer_ms(BASE, FULL, is_compiled=False)
    assert predict_peer_ms(BASE, FULL, is_compiled=True) > predict_ms(BASE, FULL, Levers(fused_adamw=True, varlen=True))


def test_a_prediction_has_what_its_run_measured_and_nothing_of_another_card(tmp_path: Path) -> None:
    report = Report(tmp_path / "r", "")
    rows = [{"ceiling": LARGE_PRODUCT, "rate": 100.0}, {"ceiling": COPY, "rate": 1.5}, {"ceiling": LAUNCH, "rate": 7.5}]
    for number in range(len(rows)):
        report.stages["ceilings"] = StageRecord("", rows[:number])
        assert measured_ceilings(report) is None
    report.stages["ceilings"] = StageRecord("", rows)
    assert measured_ceilings(report) == Ceilings(100e12, 1.5e12, launch_us=7.5)
