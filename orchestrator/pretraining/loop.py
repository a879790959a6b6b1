"""The training loop of one worker: steps, measurements, validation, checkpoints, snapshots.

The loop knows nothing of Ray: batches come from a function of the first step, events go to a function. So it runs in a
plain process as well as in a Ray worker, and is tested there.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from bert_core.errors import CheckpointError
from bert_core.examples.packing import PackedBatch
from bert_core.objectives import active_objectives
from bert_core.optimization import build_optimizer, linear_warmup_decay
from orchestrator.errors import RunFailedError
from orchestrator.pretraining.collectives import Worker, all_reduce_sum, refuse_if_unequal
from orchestrator.pretraining.job import Emit, PretrainJob, build_model
from orchestrator.pretraining.loss import label_loss, pretraining_sums
from orchestrator.pretraining.meter import Meter, add_sums, empty_totals, named_metrics
from orchestrator.pretraining.step import StepContext, training_step
from orchestrator.results import Event, MessageEvent, MetricEvent
from orchestrator.training.checkpoints import Checkpoints
from orchestrator.training.snapshots import Snapshots

Batches = Callable[[int], Iterator[tuple[int, PackedBatch]]]
"""A function from the first step to the worker's numbered batches, up to the end of the run."""
EVALUATION_BATCH_SIZE = 64
EVALUATIONS_BY_DEFAULT = 10
_CHANGED = {
    "spec": ("the spec, or what this version reads in it,", "put the old one back"),
    "tokenizer": ("the tokenizer", "put the old one back"),
    "corpus": ("the text under corpus.files", "put the old files back"),
}
"""Names and remedies by part of a job's identity; the corpus comes last, as another tokenizer makes another corpus."""


class TrainingLoop:
    """One worker's run: model, optimizer, checkpoints. Only rank 0 emits events and writes files.

    Args:
        num_confirmed: returns how many of the emitted events, from the first on, are recorded; a checkpoint carries the
            others.
        note_step: told how many steps have ended, after each step; returns whether the run is to stop. Where it does so
            for one worker, all of them stop after the same step, which is the next one.
    """

    def __init__(
        self,
        job: PretrainJob,
        worker: Worker,
        emit: Emit,
        num_confirmed: Callable[[], int] = lambda: 0,
        note_step: Callable[[int], bool] = lambda step: False,
    ) -> None:
        if worker.device.type == "cpu":
            torch.set_num_threads(job.spec.threads_per_worker)
        self.job, self.spec, self.worker = job, job.spec, worker
        self.model = build_model(job).to(worker.device)
        self.objectives = active_objectives(self.spec.chosen_objectives, self.model.config)
        self.optimizer = build_optimizer(
            self.model,
            learning_rate=self.spec.learning_rate,
            weight_decay=self.spec.weight_decay,
            betas=self.spec.adam_betas,
            eps=self.spec.adam_epsilon,
        )
        self.checkpoints = Checkpoints(job.run_folder, job.attempt, self.spec.execution.keep_checkpoints)
        self.snapshots = Snapshots(job.run_folder, job.attempt)
        self.meter = Meter(worker, self.objectives)
        self._emit_to = emit
        self._num_confirmed, self._note_step = num_confirmed, note_step
        self._num_emitted = 0
        self._unconfirmed: list[tuple[int, MetricEvent]] = []
        self._checkpoint_at = time.monotonic()

    def train(self, batches: Batches) -> bool:
        """Train from the last checkpoint to the end, or until the run is to stop, with a checkpoint there.

        Returns whether the training is complete.

        Raises: RunFailedError when the loss is not finite; CheckpointError when a checkpoint belongs to another job.
        """
        first_step = self.restore()
        refuse_if_unequal(first_step, self.worker)
        if self.worker.rank == 0 and self.spec.execution.snapshot_steps:
            self.snapshots.claim(first_step)
        if first_step == 0:
            self._save_snapshot_if_due(0)
        loss = self.job.loss or label_loss
        context = StepContext(self.model, self.optimizer, self.spec, self.worker, self.objectives, loss)
        self.model.train()
        self.meter.resume()
        wants_to_stop = False
        for step, batch in batches(first_step):
            sums = training_step(context, step, batch, self.learning_rate(step), wants_to_stop)
            self.meter.add(sums.totals, sums.gradient_norm)
            done = step + 1
            is_logged = self._is_due(done, self.spec.execution.log_every_steps) or self._is_checkpoint_step(done)
            if is_logged:
                self._log_training(done)
            # Asking a GPU would wait for it, except where its totals have just been read.
            stops = (is_logged or self.worker.device.type == "cpu") and bool(sums.num_stopping)
            self.meter.pause()
            if self.job.validation is not None and self._is_due(done, self._evaluation_interval()):
                self._measure(done, "validation", self.evaluate(done))
            # Before the checkpoint: an attempt that goes on from there does not come by this step again.
            self._save_snapshot_if_due(done)
            if stops:
                self._save_unread(done, float(sums.gradient_norm))
                return done == self.spec.steps
            # Only where the meter has just been read, as its totals are not saved.
            if is_logged and (self._is_checkpoint_step(done) or self._is_checkpoint_time()):
                self.save_checkpoint(done)
            self.meter.resume()
            wants_to_stop = self._note_step(done)
        return True

    def learning_rate(self, step: int) -> float:
        """Learning rate of the update that a step, counted from 0, makes."""
        steps = self.spec.steps
        return self.spec.learning_rate * linear_warmup_decay(step, steps, round(self.spec.warmup_ratio * steps))

    def restore(self) -> int:
        """Load the last whole checkpoint. Returns the step to go on from: 0 where there is no checkpoint."""
        found = self.checkpoints.load(
            self.model, self.optimizer, lambda text: self._emit(MessageEvent(text, "warning"))
        )
        if self.worker.rank == 0:
            self.checkpoints.tidy()
        if found is None:
            return 0
        event, extra = found
        identity = self.job.identity()
        for name, (what, remedy) in _CHANGED.items():
            if extra["identity"].get(name) != identity[name]:
                raise CheckpointError(
                    f"cannot resume: {what} has changed since step {event.step}; {remedy}, or start a new run"
                )
        if extra["torch"] != str(torch.__version__):
            self._emit(
                MessageEvent(
                    f"the checkpoint of step {event.step} comes from torch {extra['torch']}, this is "
                    f"{torch.__version__}: weights may differ in the last bits from a run that was not interrupted",
                    "warning",
                )
            )
        if extra.get("meter") is not None:
            self.meter.restore(extra["meter"])
        for values in extra["metrics"]:
            self._emit(MetricEvent(**values))
        self._emit(event)
        self._emit(MessageEvent(f"goes on at step {event.step:,} of {self.spec.steps:,}"))
        return event.step

    def save_checkpoint(self, step: int, meter: dict[str, Any] | None = None) -> None:
        """Save everything that decides the next steps, and the measurements that may not be recorded yet.

        Args:
            meter: state of the meter, where it was not read after this step.
        """
        self._checkpoint_at = time.monotonic()
        if self.worker.rank != 0:
            return
        confirmed = self._num_confirmed()
        self._unconfirmed = [(number, event) for number, event in self._unconfirmed if number >= confirmed]
        extra: dict[str, Any] = {
            "identity": self.job.identity(),
            "metrics": [dataclasses.asdict(event) for _, event in self._unconfirmed],
            "torch": str(torch.__version__),
            "meter": meter,
        }
        self._emit(self.checkpoints.save(step, self.model, self.optimizer, extra))

    def _save_unread(self, step: int, gradient_norm: float) -> None:
        """Save a checkpoint after any step, with what the meter has added up since its last reading."""
        meter = self.meter.state()
        _refuse_infinite(sum(map(sum, meter["totals"])), "training loss", step)
        _refuse_infinite(gradient_norm, "training grad_norm", step)
        self.save_checkpoint(step, meter)

    def write_model(self, folder: Path) -> None:
        """Write the model as it is, with its tokenizer, in Hugging Face's layout."""
        self.job.tokenizer.save(folder)
        self.model.save_pretrained(folder)

    @torch.no_grad()
    def evaluate(self, step: int) -> dict[str, float]:
        """Measurements on the validation examples, the same ones at each call."""
        assert self.job.validation is not None
        totals = empty_totals(self.objectives, self.worker.device)
        self.model.eval()
        for _, batch in self.job.validation.batches(range(1), self.worker.rank, self.worker.num_workers):
            for part in batch.split(EVALUATION_BATCH_SIZE):
                sums = pretraining_sums(self.model, part, self.spec, self.objectives, self.worker.device)
                add_sums(totals, sums, len(part.input_ids))
        self.model.train()
        all_reduce_sum(totals, self.worker)
        metrics = named_metrics(totals, self.objectives)
        _refuse_infinite(metrics["loss"], "held-out loss", step)
        return metrics

    def _log_training(self, step: int) -> None:
        values = self.meter.read() | {"learning_rate": self.learning_rate(step - 1)}
        for name in ("loss", "grad_norm"):
            _refuse_infinite(values[name], f"training {name}", step)
        self._measure(step, "train", values)

    def _measure(self, step: int, split: Any, values: dict[str, float]) -> None:
        self._emit(MetricEvent(step, split, values, round(self.job.stream.epoch_after(step), 6)))

    def _save_snapshot_if_due(self, step: int) -> None:
        if self.worker.rank == 0 and step in self.spec.execution.snapshot_steps:
            self.snapshots.save(step, self.write_model)

    def _is_due(self, step: int, interval: int) -> bool:
        return step % interval == 0 or step == self.spec.steps

    def _evaluation_interval(self) -> int:
        return self.spec.execution.evaluate_every_steps or max(1, self.spec.steps // EVALUATIONS_BY_DEFAULT)

    def _is_checkpoint_step(self, step: int) -> bool:
        interval = self.spec.execution.checkpoint_every_steps
        return step == self.spec.steps or (interval is not None and step % interval == 0)

    def _is_checkpoint_time(self) -> bool:
        minutes = self.spec.execution.checkpoint_every_minutes
        return minutes is not None and time.monotonic() - self._checkpoint_at > 60 * minutes

    def _emit(self, event: Event) -> None:
        if self.worker.rank != 0:
            return
        if isinstance(event, MetricEvent):
            self._unconfirmed.append((self._num_emitted, event))
        self._num_emitted += 1
        self._emit_to(event)


def _refuse_infinite(value: float, name: str, step: int) -> None:
    if not math.isfinite(value):
        raise RunFailedError(
            f"the {name} is {value} at step {step}; lower learning_rate, raise warmup_ratio or lower max_grad_norm, "
            f"and start a new run"
        )
