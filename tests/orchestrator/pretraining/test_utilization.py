"""Model FLOPs utilization: on which devices it is known, and what it is there.

Alone: pytest tests/orchestrator/pretraining/test_utilization.py
"""

import math

import pytest
import torch

from bert_core.config import BertConfig
from bert_core.heads.pretraining import LossSums
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.meter import Meter, Utilization, add_sums, empty_totals

BASE = BertConfig.from_size("base")
CPU = torch.device("cpu")


def on_gpu(name: str, monkeypatch: pytest.MonkeyPatch, precision: str = "bf16") -> Utilization | None:
    """What a worker on a GPU of a name finds; the sum over workers stays on the CPU."""
    monkeypatch.setattr("torch.cuda.get_device_name", lambda _: name)
    make_tensor = torch.tensor
    monkeypatch.setattr("torch.tensor", lambda value, dtype, device: make_tensor(value, dtype=dtype))
    return Utilization.of(BASE, precision, Worker(device=torch.device("cuda")))


def test_a_named_gpu_has_the_peak_of_its_data_sheet(monkeypatch: pytest.MonkeyPatch) -> None:
    found = on_gpu("NVIDIA A100-SXM4-80GB", monkeypatch)
    assert found is not None
    assert found.peak == 312e12


@pytest.mark.parametrize(
    ("name", "precision"),
    [("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "bf16"), ("NVIDIA A10G", "bf16"), ("NVIDIA L4", "fp32")],
)
def test_no_peak_is_guessed(name: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_gpu(name, monkeypatch, precision) is None


@pytest.mark.parametrize(("other", "together"), [(121e12, 483e12), (math.nan, None)])
def test_the_peak_is_that_of_all_workers_or_unknown(
    other: float, together: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.pretraining.meter.all_reduce_sum", lambda values, _: values.add_(other))
    found = on_gpu("NVIDIA L40S", monkeypatch)
    assert (found.peak if found else None) == together


def test_a_meter_tells_the_share_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    names = ("masked_lm", "next_sentence")
    meter = Meter(Worker(), names, Utilization(flops_per_token=10, flops_per_prediction=100, peak=1e4))
    totals = empty_totals(names, CPU)
    masked, pairs = (LossSums(*map(torch.tensor, (1.0, 1.0, count))) for count in (15.0, 4.0))
    add_sums(totals, {"masked_lm": masked, "next_sentence": pairs}, num_tokens=100)
    meter.add(totals, torch.zeros(()))
    now[0] = 2.0
    assert meter.read()["mfu"] == (10 * 100 + 100 * 15) / 2.0 / 1e4
