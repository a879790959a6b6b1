"""Totals of a run, and the numbers made of them. Alone: pytest tests/orchestrator/pretraining/test_meter.py"""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bert_core.config import BertConfig, count_pretraining_flops
from bert_core.heads.pretraining import LossSums
from bert_core.objectives import OBJECTIVES
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.meter import Meter, Utilization, measure_training
from orchestrator.pretraining.step import add_sums, empty_totals, named_metrics
from orchestrator.training.clocks import Clock
from tests.orchestrator.pretraining.small_run import make_job

CPU = torch.device("cpu")
ACTIVE = ("masked_lm", "sentence_order", "span_boundary")


class FakeClock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("time.perf_counter", lambda: self.now)

    def batches(self, wait_s: float, num_batches: int = 4) -> Iterator[int]:
        """Numbers of batches, of which each is waited for."""
        for number in range(num_batches):
            self.now += wait_s
            yield number


def sums_of(loss: float, num_correct: float, num_predictions: float) -> LossSums:
    return LossSums(*(torch.tensor(value) for value in (loss, num_correct, num_predictions)))


SUMS = {
    "span_boundary": sums_of(8.0, 0.0, 4.0),
    "sentence_order": sums_of(1.0, 1.0, 2.0),
    "masked_lm": sums_of(12.0, 1.0, 4.0),
}


def test_totals_are_added_up_whatever_the_order_of_the_sums() -> None:
    totals = empty_totals(ACTIVE, CPU)
    for sums in (SUMS, dict(reversed(SUMS.items()))):
        add_sums(totals, sums, num_tokens=50)
    assert totals.tolist() == [24, 2, 8, 2, 2, 4, 16, 0, 8, 100]


def test_metrics_are_means_by_objective_and_the_loss_is_their_sum() -> None:
    totals = empty_totals(ACTIVE, CPU)
    add_sums(totals, SUMS, num_tokens=50)
    assert named_metrics(totals, ACTIVE) == {
        "mlm_loss": 3.0,
        "mlm_accuracy": 0.25,
        "perplexity": pytest.approx(math.exp(3.0)),
        "sop_loss": 0.5,
        "sop_accuracy": 0.5,
        "sbo_loss": 2.0,
        "loss": 5.5,
    }


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_is_measured_by_its_own_names(name: str) -> None:
    totals = empty_totals([name], CPU)
    add_sums(totals, {name: sums_of(6.0, 1.0, 2.0)}, num_tokens=10)
    metrics = named_metrics(totals, [name])
    assert metrics.keys() >= set(OBJECTIVES[name].curve_names)
    assert metrics[OBJECTIVES[name].loss_name] == 3.0
    assert metrics["loss"] == 3.0 * OBJECTIVES[name].weight


def test_a_meter_starts_anew_after_each_reading() -> None:
    meter = Meter(Worker(), ["next_sentence"])
    for loss in (4.0, 8.0):
        totals = empty_totals(["next_sentence"], CPU)
        add_sums(totals, {"next_sentence": sums_of(loss, 1.0, 4.0)}, num_tokens=10)
        meter.add(1, totals, torch.tensor(0.5))
        assert meter.read()["nsp_loss"] == loss / 4


def test_waiting_for_batches_is_told_for_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, meter = FakeClock(monkeypatch), Meter(Worker(), ["next_sentence"])
    for number in meter.waiting(clock.batches(0.5)):
        clock.now += 2.0
        meter.add(1, torch.ones(4), torch.zeros(()))
        if number == 1:
            break
    assert meter.read()["data_wait_s"] == 0.5
    meter.add(1, torch.ones(4), torch.zeros(()))
    assert meter.read()["data_wait_s"] == 0.0


def test_a_restored_meter_has_waited_as_long_as_the_saved_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock(monkeypatch)
    saved, restored = Meter(Worker(), ["next_sentence"]), Meter(Worker(), ["next_sentence"])
    for _ in saved.waiting(clock.batches(3.0, 1)):
        saved.add(1, torch.ones(4), torch.zeros(()))
    restored.restore(saved.state())
    assert restored.read()["data_wait_s"] == 3.0


def test_the_share_of_waiting_is_one_of_the_training_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, meter = FakeClock(monkeypatch), Meter(Worker(), ["next_sentence"])
    for _ in meter.waiting(clock.batches(0.5)):
        clock.now += 2.0
        meter.add(1, torch.ones(4), torch.zeros(()))
        meter.pause()
        clock.now += 100.0  # an evaluation
        meter.resume()
    assert meter.read()["data_wait_share"] == pytest.approx(0.2)


class DeviceInLine(Clock):
    """A clock of a device that does what is in line behind the host: the host waits, the device does not."""

    def __init__(self) -> None:
        self.host, self.free_at = 0.0, 0.0

    def work(self, seconds: float) -> None:
        """Put work in line."""
        self.free_at = max(self.host, self.free_at) + seconds

    def mark(self) -> float:
        """The time at which the device comes to this mark."""
        self.free_at = max(self.host, self.free_at)
        return self.free_at

    def seconds_between(self, first: float, last: float) -> float:
        return last - first

    def wait(self) -> None:
        self.host = max(self.host, self.free_at)


@pytest.mark.parametrize(("host_waits_s", "device_waits_s"), [(1.5, 0.0), (2.0, 0.0), (3.25, 1.25)])
def test_a_device_waits_only_for_what_it_has_no_work_before(host_waits_s: float, device_waits_s: float) -> None:
    device = DeviceInLine()

    def batches() -> Iterator[int]:
        yield 0
        device.host += host_waits_s
        yield 1

    meter = Meter(Worker(), ["next_sentence"], clock=device)
    for _ in meter.waiting(batches()):
        device.work(2.0)
        meter.add(1, torch.ones(4), torch.zeros(()))
    assert meter.read()["data_wait_s"] == device_waits_s / 2


def test_steps_in_line_are_training_time_and_what_follows_them_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    device = DeviceInLine()
    monkeypatch.setattr("time.perf_counter", lambda: device.host)
    meter = Meter(Worker(), ["next_sentence"], clock=device)
    device.work(2.0)  # steps, of which the host is ahead
    meter.add(1, torch.ones(4), torch.zeros(()))
    meter.pause()
    device.work(5.0)  # an evaluation
    device.wait()
    meter.resume()
    assert meter.read()["tokens_per_s"] == 1 / 2.0


def test_the_time_of_a_checkpoint_is_told_once() -> None:
    meter = Meter(Worker(), ["next_sentence"])
    meter.saved(1.5)
    meter.add(1, torch.ones(4), torch.zeros(()))
    assert meter.read()["checkpoint_s"] == 1.5
    meter.add(1, torch.ones(4), torch.zeros(()))
    assert "checkpoint_s" not in meter.read()


BASE = BertConfig.from_size("base")


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
    clock = FakeClock(monkeypatch)
    names = ("masked_lm", "next_sentence")
    meter = Meter(Worker(), names, utilization=Utilization(BASE, peak=1e12))
    totals = empty_totals(names, CPU)
    sums = {name: sums_of(1.0, 1.0, count) for name, count in zip(names, (15.0, 4.0), strict=True)}
    add_sums(totals, sums, num_tokens=100)
    meter.add(1, totals, torch.zeros(()))
    clock.now += 2.0
    assert meter.read()["mfu"] == count_pretraining_flops(BASE, 100, 15) / 2.0 / 1e12


@pytest.mark.training
def test_the_time_of_a_run_that_goes_on_is_that_of_the_steps_left_in_each_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.pretraining.meter.example_seconds", lambda *_: 1.0)
    phases = [{"max_seq_length": 48, "share": 0.9}, {"max_seq_length": 16, "share": 0.1, "global_batch_size": 2}]
    job = make_job(tmp_path, steps=20, phases=phases, init_from="model", init_step=17)
    config = BertConfig.from_shape(1, 32, vocab_size=job.tokenizer.vocab_size)
    assert measure_training(job.spec, config, job.stream) == 1 * 8 + 2 * 2
