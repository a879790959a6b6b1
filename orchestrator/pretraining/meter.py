"""Meter of a training: losses, tokens per second, time without data, MFU. Estimate of its time from a few steps."""

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

import torch
from torch import Tensor

from bert_core.config import BertConfig, count_pretraining_flops
from bert_core.objectives import OBJECTIVES, TOKEN_OBJECTIVES
from orchestrator.base.errors import RunFailedError
from orchestrator.pretraining.collectives import Worker, all_reduce_sum
from orchestrator.pretraining.device_batch import DeviceBatch
from orchestrator.pretraining.step import StepContext, empty_totals, named_metrics, new_model, training_step
from orchestrator.training.clocks import Clock, clock_of
from orchestrator.training.step_time import (
    NUM_MEASURED_STEPS,
    example_seconds,
    num_measured_examples,
    on_threads,
)

if TYPE_CHECKING:  # the GPU benchmark runs on machines without pydantic
    from orchestrator.corpus.stream import ExampleStream
    from orchestrator.specs import PretrainSpec


T = TypeVar("T")


PEAK_FLOPS = {
    **{"A10": 125e12, "A30": 165e12, "A40": 149.7e12, "A6000": 154.8e12, "A100": 312e12},
    **{"H100": 989.4e12, "H100 PCIe": 756e12, "H100 NVL": 835e12},
    **{"H200": 989.4e12, "H200 NVL": 835e12, "GH200": 989.4e12},
    **{"B200": 2250e12, "GB200": 2500e12, "L4": 121e12, "L40": 181e12, "L40S": 362e12, "4090": 165.2e12},
}
"""FLOP/s in bf16 on dense matrices, from NVIDIA's data sheets, by words in the name that its driver gives to a GPU."""


def peak_flops(card: str) -> float | None:
    """FLOP/s of a card by its name; None where it is not known, as of parts of a GPU (MIG) and of laptops.

    >>> [peak_flops(f"NVIDIA {name}") for name in ("A100-SXM4-80GB", "L40S", "A100-SXM4-40GB MIG 1g.5gb", "T4")]
    [312000000000000.0, 362000000000000.0, None, None]
    """
    words = {word for word in PEAK_FLOPS if re.search(rf"(?<![A-Za-z0-9]){word}(?![A-Za-z0-9])", card)}
    is_less = " MIG " in card or "Laptop" in card
    return None if is_less or not words else PEAK_FLOPS[max(words, key=len)]


@dataclass(frozen=True)
class Utilization:
    """MFU, model FLOPs utilization (Chowdhery et al. 2022, appendix B): the model's FLOPs in a second over the peak.

    Activations computed again do not count, nor do the few FLOPs that `count_flops_per_token` leaves out.
    """

    config: BertConfig
    peak: float
    """FLOP/s of all workers' devices."""

    @classmethod
    def of(cls, config: BertConfig, precision: str, worker: Worker) -> Self | None:
        """Utilization of a run; None where the peak of some worker's device is not known. All workers ask."""
        if worker.device.type != "cuda" or precision != "bf16":
            return None
        own = peak_flops(torch.cuda.get_device_name(worker.device)) or math.nan
        peak = torch.tensor(own, dtype=torch.float64, device=worker.device)
        all_reduce_sum(peak, worker)
        return None if math.isnan(peak) else cls(config, float(peak))

    def share(self, num_tokens: float, num_predictions: float, seconds: float) -> float:
        """Share of the peak, from 0 to 1, at which tokens were trained on and predicted in a time."""
        return count_pretraining_flops(self.config, num_tokens, num_predictions) / seconds / self.peak


class DivergedStepError(RunFailedError):
    """A step, counted from 1, that diverged: its mean loss, and the norm of its gradient before clipping."""

    def __init__(self, step: int, loss: float, grad_norm: float) -> None:
        super().__init__(step, loss, grad_norm)  # so that it survives pickling
        self.step, self.loss, self.grad_norm = step, loss, grad_norm

    def __str__(self) -> str:
        return f"step {self.step} diverged: its loss is {self.loss:g} and its gradient's norm {self.grad_norm:g}"


class Meter:
    """Totals and training time since the last reading; only reading, looking and pausing wait for the device."""

    def __init__(
        self,
        worker: Worker,
        objectives: Sequence[str],
        max_loss: float = math.inf,
        utilization: Utilization | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._worker, self._objectives = worker, objectives
        self._weights = torch.tensor([OBJECTIVES[name].weight for name in objectives], device=worker.device)
        self._max_loss, self._utilization = max_loss, utilization
        self._unseen: list[tuple[int, Tensor, Tensor]] = []
        self._clock = clock or clock_of(worker.device)
        self._data_waits: list[tuple[Any, Any]] = []
        self._totals = empty_totals(objectives, worker.device)
        self._norm = torch.zeros((), device=worker.device)
        self._seconds = self._data_wait_s = 0.0
        self._started_at = time.perf_counter()
        self._checkpoint_s: float | None = None
        self.num_steps = 0
        """Number of steps since the last reading."""

    def add(self, step: int, totals: Tensor, norm: Tensor) -> None:
        """Count a step: this worker's totals, and the norm of the gradient of all workers."""
        self.num_steps += 1
        self._totals += totals
        self._norm = norm
        self._unseen.append((step, totals, norm))

    def look(self) -> None:
        """Look at the steps since the last look, on all workers at once. Raises: DivergedStepError for the first."""
        if not self._unseen:
            return
        steps, totals, norms = zip(*self._unseen, strict=True)
        self._unseen.clear()
        summed = torch.stack(totals)
        all_reduce_sum(summed, self._worker)
        by_objective = summed[:, :-1].reshape(len(steps), len(self._objectives), 3)
        losses = (by_objective[:, :, 0] / by_objective[:, :, 2] * self._weights).sum(1).tolist()
        for step, loss, norm in zip(steps, losses, torch.stack(norms).tolist(), strict=True):
            if not (loss <= self._max_loss and math.isfinite(norm)):  # NaN compares as false
                raise DivergedStepError(step, loss, norm)

    def waiting(self, batches: Iterator[T]) -> Iterator[T]:
        """Pass a worker's batches on, and measure how long its device idles before each."""
        asked_at = self._clock.mark()
        for batch in batches:
            self._data_waits.append((asked_at, self._clock.mark()))
            yield batch
            asked_at = self._clock.mark()

    def saved(self, seconds: float) -> None:
        """Record how long training stood still for the last checkpoint."""
        self._checkpoint_s = seconds

    def pause(self) -> None:
        """Stop the clock once the steps so far are done: evaluations and checkpoints are not training time."""
        self._clock.wait()
        self._seconds += time.perf_counter() - self._started_at

    def resume(self) -> None:
        self._started_at = time.perf_counter()

    def state(self) -> dict[str, Any]:
        """Totals of every worker and the time since the last reading, as JSON holds them exactly; all workers ask."""
        totals = torch.zeros(self._worker.num_workers, len(self._totals), dtype=self._totals.dtype)
        totals = totals.to(self._worker.device)
        totals[self._worker.rank] = self._totals
        all_reduce_sum(totals, self._worker)
        times = {"seconds": self._seconds, "data_wait_s": self._read_data_wait_s()}
        return {"totals": totals.tolist(), **times, "num_steps": self.num_steps}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Count from a saved state on; where the number of workers has changed, the first one takes all totals."""
        totals = torch.tensor(state["totals"], dtype=self._totals.dtype, device=self._worker.device)
        if len(totals) == self._worker.num_workers:
            self._totals = totals[self._worker.rank].clone()
        else:
            self._totals = totals.sum(0) if self._worker.rank == 0 else torch.zeros_like(self._totals)
        self._seconds, self.num_steps = float(state["seconds"]), int(state["num_steps"])
        self._data_wait_s = float(state.get("data_wait_s", 0.0))  # older checkpoints do not have it

    def read(self) -> dict[str, float]:
        """Measurements since the last reading; then start anew.

        Of all workers: those of the objectives, `tokens_per_s`, `grad_norm` and, where it is known, `mfu`. Of this
        worker: `data_wait_s`, seconds of an average step in which its device idled before its batch, and
        `data_wait_share`, their share of the training time; `checkpoint_s`, seconds that training stood still for a
        checkpoint since; on a GPU `gpu_memory_bytes`, the peak of its tensors.
        """
        all_reduce_sum(self._totals, self._worker)
        values = named_metrics(self._totals, self._objectives)
        self.pause()
        num_tokens, seconds = float(self._totals[-1]), max(self._seconds, 1e-9)
        values["tokens_per_s"] = num_tokens / seconds
        if self._utilization is not None:
            (place,) = (place for place, name in enumerate(self._objectives) if name in TOKEN_OBJECTIVES)
            values["mfu"] = self._utilization.share(num_tokens, float(self._totals[3 * place + 2]), seconds)
        values["grad_norm"] = float(self._norm)
        data_wait_s = self._read_data_wait_s()
        values["data_wait_s"] = data_wait_s / max(self.num_steps, 1)
        values["data_wait_share"] = min(data_wait_s / seconds, 1.0)
        if self._checkpoint_s is not None:
            values["checkpoint_s"] = self._checkpoint_s
        if self._worker.device.type == "cuda":
            values["gpu_memory_bytes"] = float(torch.cuda.max_memory_allocated(self._worker.device))
            torch.cuda.reset_peak_memory_stats(self._worker.device)
        self._totals.zero_()
        self._seconds = self._data_wait_s = 0.0
        self._checkpoint_s = None
        self.num_steps = 0
        self.resume()
        return values

    def _read_data_wait_s(self) -> float:
        self._data_wait_s += sum(self._clock.seconds_between(*marks) for marks in self._data_waits)
        self._data_waits.clear()
        return self._data_wait_s


def measure_training(spec: "PretrainSpec", config: BertConfig, stream: "ExampleStream") -> float | None:
    """Estimate the seconds of the steps that are left on this machine's CPU, from a few of each phase.

    None for too large a model. The time is that of one worker's part of a step; where several workers share the
    machine's CPUs, it is more.

    Args:
        stream: the run's examples, or those of the beginning of its text.
    """
    phases, seconds = spec.phase_steps(), 0.0
    shares = [-(-size // spec.execution.min_workers) for *_, size in phases]
    sizes = [num_measured_examples(config, length, share) for (length, *_), share in zip(phases, shares, strict=True)]
    if not all(sizes):
        return None
    with on_threads(spec.threads_per_worker):
        model = new_model(spec, config, spec.seed)
        model.train()
        context = StepContext.build(spec, model, Worker(), warn=lambda message: None)
        for num_examples, share, (*_, size), left in zip(sizes, shares, phases, spec.steps_left(), strict=True):
            if measured := left[:NUM_MEASURED_STEPS]:
                seconds += len(left) * share * _measure(context, stream, measured, -(-size // num_examples))
    return seconds


def _measure(context: StepContext, stream: "ExampleStream", steps: range, num_parts: int) -> float:
    """Seconds of an example in these steps, of whose batches one of `num_parts` is taken."""
    measured, num_sequences = [], 0
    for step, batch in stream.batches(steps, 0, num_parts):
        begun_at = time.perf_counter()
        training_step(context, step, DeviceBatch.copied(batch, context.worker.device), learning_rate=0.0)
        measured.append(time.perf_counter() - begun_at)
        num_sequences += batch.num_sequences
    return example_seconds(measured, num_sequences / len(measured))
