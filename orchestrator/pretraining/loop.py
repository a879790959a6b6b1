"""The training loop of one worker: steps, measurements, validation, checkpoints, snapshots.

The loop knows nothing of Ray: batches come from a function of the first step, events go to a function. So it runs in a
plain process as well as in a Ray worker, and is tested there.
"""

import dataclasses
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bert_core.examples.packing import PackedBatch
from bert_core.layers.layer_norm import set_residual_dtype
from bert_core.micro_batches import compute_in_parts
from bert_core.objectives import active_objectives
from bert_core.optimization import build_optimizer, linear_warmup_decay
from orchestrator.errors import RunFailedError
from orchestrator.pretraining.collectives import Worker, all_reduce_sum
from orchestrator.pretraining.device_batch import DeviceBatch
from orchestrator.pretraining.device_feed import device_batches
from orchestrator.pretraining.divergence import REMEDY, DivergedStepError, Divergences, StepWatch, max_loss
from orchestrator.pretraining.gradient_buckets import GradientBuckets
from orchestrator.pretraining.job import Emit, PretrainJob, build_model
from orchestrator.pretraining.layer_compilation import LayerCompilation
from orchestrator.pretraining.loss import label_loss, pretraining_sums
from orchestrator.pretraining.meter import Meter, add_sums, empty_totals, named_metrics
from orchestrator.pretraining.micro_batches import EvaluationSizes, MicroBatches
from orchestrator.pretraining.shared_checkpoint import read_for_all
from orchestrator.pretraining.step import StepContext, training_step
from orchestrator.pretraining.stop_vote import StopVote
from orchestrator.pretraining.utilization import Utilization
from orchestrator.provenance.machine import read_machine
from orchestrator.results import Event, MessageEvent, MetricEvent, WorkersEvent
from orchestrator.training.checkpoint_saver import CheckpointSaver, saves_in_background
from orchestrator.training.checkpoints import Checkpoints
from orchestrator.training.drift import accept_drift, check_drift
from orchestrator.training.snapshots import Snapshots

Batches = Callable[[int], Iterator[tuple[int, PackedBatch]]]
"""A function from the first step to the worker's numbered batches, up to the end of the run."""
EVALUATIONS_BY_DEFAULT = 10
_READ_AT_ONCE = frozenset({"cpu"})
"""Types of devices whose votes to stop are read in their own step; with others a step later, as it would wait."""


class TrainingLoop:
    """One worker's run: model, optimizer, checkpoints. Only rank 0 emits events and writes files.

    Args:
        num_confirmed: returns how many of the emitted events, from the first on, are recorded; a checkpoint carries the
            others.
        note_step: told how many steps have ended, after each step; returns whether the run is to stop. Where it does so
            for one worker, all of them stop after the same step: the next one on CPUs, the one after that on GPUs.
        find_hosts: returns the host of each worker that has begun, by rank; nothing where that is unknown.
    """

    def __init__(
        self,
        job: PretrainJob,
        worker: Worker,
        emit: Emit,
        num_confirmed: Callable[[], int] = lambda: 0,
        note_step: Callable[[int], bool] = lambda step: False,
        find_hosts: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        if worker.device.type == "cpu":
            torch.set_num_threads(job.spec.threads_per_worker)
        self.job, self.spec, self.worker = job, job.spec, worker
        self.model = build_model(job).to(worker.device)
        if self.spec.residual_precision == "bf16":
            set_residual_dtype(self.model, torch.bfloat16)
        self.model.bert.recomputes_layers = self.spec.execution.activation_checkpointing == "layers"
        self.objectives = active_objectives(self.spec.chosen_objectives, self.model.config)
        self.optimizer = build_optimizer(
            self.model,
            learning_rate=self.spec.learning_rate,
            weight_decay=self.spec.weight_decay,
            betas=self.spec.adam_betas,
            eps=self.spec.adam_epsilon,
        )
        self.checkpoints = Checkpoints(job.run_folder, job.attempt, self.spec.execution.keep_checkpoints)
        self._saver = CheckpointSaver(self.checkpoints, saves_in_background(worker.device))
        self.snapshots = Snapshots(job.run_folder, job.attempt)
        self.micro_batches = MicroBatches(worker, self.spec, self.warn)
        self._evaluation_sizes = EvaluationSizes(self.micro_batches, self.warn)
        self.gradients = GradientBuckets(self.model.parameters(), worker, self.spec.gradient_precision)
        self._compilation = LayerCompilation(self.spec, worker, self._tell, self.warn)
        self.divergences = Divergences(job, worker)
        # A teacher's work beside the model's own would make the share a wrong one.
        knows_work = job.loss is None
        self._utilization = Utilization.of(self.model.config, self.spec.precision, worker) if knows_work else None
        self.meter = Meter(worker, self.objectives, self._utilization)
        self._emit_to = emit
        self._num_confirmed, self._note_step, self._find_hosts = num_confirmed, note_step, find_hosts
        self._num_emitted = 0
        self._emitting = threading.Lock()
        """Lock of `_num_emitted` and `_unconfirmed`: the feed's thread emits warnings."""
        self._unconfirmed: list[tuple[int, MetricEvent]] = []
        self._checkpoint_at = time.monotonic()

    def train(self, batches: Batches) -> bool:
        """Train from the last checkpoint to the end, or until the run is to stop, with a checkpoint there.

        Where the spec says so, a step that diverges sends the training back to its last checkpoint.

        Returns whether the training is complete.

        Raises: RunFailedError when a step diverges, or memory runs out; CheckpointError when a checkpoint belongs to
            another job.
        """
        try:
            while True:
                first_step = self._begin()
                try:
                    with closing(device_batches(batches(first_step), self.worker.device)) as coming:
                        is_complete = self._train_on(coming, first_step)
                    self._tell_saved(wait=True)
                    return is_complete
                except DivergedStepError as diverged:
                    self._tell_saved(wait=True)  # it may be the one to go back to
                    self.warn(self.divergences.stop_or_pass_over(diverged))
                    self._unconfirmed.clear()  # those before the checkpoint are in it, the others will be told again
        finally:
            self._saver.settle()

    def _begin(self) -> int:
        """Restore the last checkpoint, and tell with whom the training goes on from there. Returns its first step."""
        first_step = self.restore()
        if hosts := self._find_hosts():
            self._emit(WorkersEvent(first_step, hosts, dataclasses.asdict(read_machine())))
        if self.worker.rank == 0 and self.spec.execution.snapshot_steps:
            self.snapshots.claim(first_step)
        if first_step == 0:
            self._save_snapshot_if_due(0)
        return first_step

    def _train_on(self, batches: Iterator[tuple[int, DeviceBatch]], first_step: int) -> bool:
        """Train on batches, as `train` does. Raises: DivergedStepError before anything of such a step is kept."""
        loss = self.job.loss or label_loss
        context = StepContext(
            self.model,
            self.optimizer,
            self.spec,
            self.worker,
            self.objectives,
            loss,
            self.micro_batches,
            self.gradients,
        )
        watch = StepWatch(self.worker, len(self.objectives), max_loss(self.spec, self.model.config.vocab_size))
        self.model.train()
        self.meter.resume()
        wants_to_stop = False
        votes: list[StopVote] = []
        num_kept_votes = 0 if self.worker.device.type in _READ_AT_ONCE else 1
        done = first_step
        for step, batch in self.meter.waiting(batches):
            done = step + 1
            sums = None
            if done not in self.divergences.passed_over:
                sums = training_step(context, step, batch, self.learning_rate(step), wants_to_stop)
                self.meter.add(sums.totals, sums.gradient_norm)
                watch.add(done, sums.totals, sums.gradient_norm)
                votes.append(sums.vote)
            is_logged = self._is_due(done, self.spec.execution.log_every_steps) or self._is_checkpoint_step(done)
            evaluates = self.job.validation is not None and self._is_due(done, self._evaluation_interval())
            keeps_snapshot = done in self.spec.execution.snapshot_steps
            stops = len(votes) > num_kept_votes and votes.pop(0).is_to_stop()
            if is_logged or stops or evaluates or keeps_snapshot:  # on all workers at once
                watch.look()
            if is_logged or stops:
                self.micro_batches.agree()
            if is_logged:
                self._log_training(done)
            # Only where a model that is well is saved, and the meter has just been read, as its totals are not saved.
            saves = is_logged and (self._is_checkpoint_step(done) or self._is_checkpoint_time())
            stands_still = saves or stops or evaluates or keeps_snapshot
            if stands_still:
                self.meter.pause()
            if evaluates:
                self._measure(done, "validation", self.evaluate(done))
            # Before the checkpoint: an attempt that goes on from there does not come by this step again.
            self._save_snapshot_if_due(done)
            if stops:
                self.save_checkpoint(done, self.meter.state())  # added up since its last reading
                return done == self.spec.steps
            if saves:
                self.save_checkpoint(done)
            if stands_still:
                self.meter.resume()
            self._tell_saved()
            wants_to_stop = self._note_step(done)
        assert done == self.spec.steps, "the feed ended before the run"
        return True

    def learning_rate(self, step: int) -> float:
        """Learning rate of the update that a step, counted from 0, makes."""
        steps = self.spec.steps
        return self.spec.learning_rate * linear_warmup_decay(step, steps, round(self.spec.warmup_ratio * steps))

    def restore(self) -> int:
        """Load the last whole checkpoint. Returns the step to go on from: 0 where there is no checkpoint."""
        self.meter = Meter(self.worker, self.objectives, self._utilization)
        found = read_for_all(self.checkpoints, self.worker, self.warn)
        if found is None:
            self._compilation.begin(self.model, None)
            if self.divergences.passed_over:  # the step that diverged has changed model and optimizer
                self.model.load_state_dict(build_model(self.job).state_dict())
                self.optimizer.state.clear()
                self.micro_batches.restore({})
            return 0
        event, state = found
        extra = state.extra
        # Before the tensors: where the tokenizer has changed, they may have other shapes too.
        changes = check_drift(extra, self.job.identity(), self.job.identity_details())
        drifts = accept_drift(changes, event.step, allowed=self.job.allow_drift)
        state.load_into(self.model, self.optimizer)
        for drift in drifts:
            self._emit(drift)
        if extra.get("meter") is not None:
            self.meter.restore(extra["meter"])
        self.divergences.passed_over.update(extra.get("passed_over", ()))
        self.micro_batches.restore(extra)
        self._compilation.begin(self.model, extra)
        for values in extra["metrics"]:
            self._emit(MetricEvent(**values))
        self._emit(event)
        self._tell(f"goes on at step {event.step:,} of {self.spec.steps:,}")
        return event.step

    def save_checkpoint(self, step: int, meter: dict[str, Any] | None = None) -> None:
        """Save everything that decides the next steps, and the measurements that may not be recorded yet.

        Where checkpoints are written in the background, its `CheckpointEvent` is emitted once it is complete.

        Args:
            meter: state of the meter, where it was not read after this step.
        """
        self._checkpoint_at = began_at = time.monotonic()
        if self.worker.rank != 0:
            return
        self._tell_saved(wait=True)  # one at a time
        confirmed = self._num_confirmed()
        self._unconfirmed = [(number, event) for number, event in self._unconfirmed if number >= confirmed]
        extra: dict[str, Any] = {
            "identity": self.job.identity(),
            "details": self.job.identity_details(),
            "metrics": [dataclasses.asdict(event) for _, event in self._unconfirmed],
            "passed_over": sorted(self.divergences.passed_over),
            **self.micro_batches.state(),
            **self._compilation.state(),
            "meter": meter,
        }
        self._saver.save(step, self.model, self.optimizer, extra)
        self._tell_saved()
        self.meter.saved(time.monotonic() - began_at)

    def _tell_saved(self, wait: bool = False) -> None:
        """Tell of a checkpoint that is complete; `wait` for the one that is being written. Raises: what it raised."""
        if saved := self._saver.take(wait):
            for warning in saved.warnings:
                self.warn(warning)
            self._emit(saved.event)

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
            on_device = DeviceBatch.copied(batch, self.worker.device)
            totals += compute_in_parts(self._evaluation_sizes, batch, step, partial(self._evaluation_totals, on_device))
        self.model.train()
        all_reduce_sum(totals, self.worker)
        metrics = named_metrics(totals, self.objectives)
        if not math.isfinite(metrics["loss"]):
            raise RunFailedError(f"the held-out loss is {metrics['loss']} at step {step}; {REMEDY}")
        return metrics

    def _evaluation_totals(self, batch: DeviceBatch, parts: list[PackedBatch]) -> Tensor:
        totals = empty_totals(self.objectives, self.worker.device)
        for micro in batch.cut(parts):
            sums = pretraining_sums(self.model, micro, self.spec, self.objectives)
            add_sums(totals, sums, micro.sequences.num_tokens)
        return totals

    def _log_training(self, step: int) -> None:
        if self.meter.num_steps:  # all of them may have been passed over
            self._measure(step, "train", self.meter.read() | {"learning_rate": self.learning_rate(step - 1)})

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

    def warn(self, text: str) -> None:
        """Tell a warning, from any thread."""
        self._emit(MessageEvent(text, "warning"))

    def _tell(self, text: str) -> None:
        self._emit(MessageEvent(text))

    def _emit(self, event: Event) -> None:
        if self.worker.rank != 0:
            return
        with self._emitting:
            if isinstance(event, MetricEvent):
                self._unconfirmed.append((self._num_emitted, event))
            self._num_emitted += 1
            self._emit_to(event)
