"""The training loop of one worker: steps, measurements, validation, checkpoints, snapshots.

The loop knows nothing of Ray: batches come from a function of the first step, events go to a function. So it runs in a
plain process as well as in a Ray worker, and is tested there.
"""

import dataclasses
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bert_core.examples.packing import PackedBatch
from bert_core.micro_batches import compute_in_parts
from orchestrator.corpus.stream import ExampleStream
from orchestrator.errors import RunFailedError
from orchestrator.pretraining import step_graphs
from orchestrator.pretraining.collectives import StopVote, Worker, all_reduce_sum
from orchestrator.pretraining.device_batch import DeviceBatch, device_batches, pretraining_sums
from orchestrator.pretraining.divergence import REMEDY, DivergedStepError, Divergences, StepWatch, max_loss
from orchestrator.pretraining.job import Emit, PretrainJob, build_model
from orchestrator.pretraining.layer_compilation import LayerCompilation
from orchestrator.pretraining.meter import Meter, Utilization, add_sums, empty_totals, named_metrics
from orchestrator.pretraining.micro_batches import EvaluationSizes
from orchestrator.pretraining.shared_checkpoint import read_for_all
from orchestrator.pretraining.step import StepContext, training_step
from orchestrator.pretraining.step_graphs import StepGraphs
from orchestrator.provenance.capture import read_machine
from orchestrator.results import Event, MessageEvent, MetricEvent, WorkersEvent
from orchestrator.specs import PretrainSpec
from orchestrator.training.checkpoints import (
    Checkpoints,
    CheckpointSaver,
    accept_drift,
    check_drift,
    saves_in_background,
)
from orchestrator.training.snapshots import Snapshots

Batches = Callable[[int], Iterator[tuple[int, PackedBatch]]]
"""A function from the first step to the worker's numbered batches, up to the end of the run."""
_READ_AT_ONCE = frozenset({"cpu"})
"""Types of devices whose votes to stop are read in their own step; with others a step later, as it would wait."""
EVALUATIONS_BY_DEFAULT = 10


@dataclass(frozen=True)
class DueSteps:
    """Rules of what is due after so many steps of a run; after the last one everything but a snapshot is.

    They follow from the spec and the number of steps alone, so that every worker knows them alike.
    """

    spec: PretrainSpec
    has_validation: bool

    def is_logged(self, step: int) -> bool:
        """Whether the training loss is read: at its interval, and with each checkpoint."""
        return self._is_due(step, self.spec.execution.log_every_steps) or self.is_checkpoint(step)

    def is_evaluation(self, step: int) -> bool:
        """Whether the validation examples are evaluated."""
        interval = self.spec.execution.evaluate_every_steps or max(1, self.spec.steps // EVALUATIONS_BY_DEFAULT)
        return self.has_validation and self._is_due(step, interval)

    def is_checkpoint(self, step: int) -> bool:
        """Whether a checkpoint is due by its interval of steps; that of minutes is a matter of the clock."""
        interval = self.spec.execution.checkpoint_every_steps
        return step == self.spec.steps or (interval is not None and step % interval == 0)

    def is_snapshot(self, step: int) -> bool:
        """Whether the model is kept as it is."""
        return step in self.spec.execution.snapshot_steps

    def _is_due(self, step: int, interval: int) -> bool:
        return step % interval == 0 or step == self.spec.steps


class WorkerEvents:
    """Events of a worker, on their way to the registry. Workers other than rank 0 tell nothing.

    Args:
        emit_to: takes each event; where the feed's thread warns, from that thread.
        num_confirmed: returns how many of the emitted events, from the first on, are recorded.
    """

    def __init__(self, rank: int, emit_to: Emit, num_confirmed: Callable[[], int]) -> None:
        self._rank, self._emit_to, self._num_confirmed = rank, emit_to, num_confirmed
        self._num_emitted = 0
        self._unconfirmed: list[tuple[int, MetricEvent]] = []
        self._emitting = threading.Lock()
        """Lock of `_num_emitted` and `_unconfirmed`: more than one thread emits."""

    def emit(self, event: Event) -> None:
        """Emit an event, from any thread."""
        if self._rank != 0:
            return
        with self._emitting:
            if isinstance(event, MetricEvent):
                self._unconfirmed.append((self._num_emitted, event))
            self._num_emitted += 1
            self._emit_to(event)

    def tell(self, text: str) -> None:
        self.emit(MessageEvent(text))

    def warn(self, text: str) -> None:
        """Tell a warning, from any thread."""
        self.emit(MessageEvent(text, "warning"))

    def unconfirmed(self) -> list[MetricEvent]:
        """Measurements that may not be recorded yet. A checkpoint carries them: none is lost with the driver."""
        confirmed = self._num_confirmed()
        with self._emitting:
            self._unconfirmed = [(number, event) for number, event in self._unconfirmed if number >= confirmed]
            return [event for _, event in self._unconfirmed]

    def forget_unconfirmed(self) -> None:
        """Forget measurements that may not be recorded yet, where a checkpoint has them or they will come again."""
        with self._emitting:
            self._unconfirmed.clear()


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
        self.events = WorkerEvents(worker.rank, emit, num_confirmed)
        self.context = StepContext.begun(self.spec, build_model(job), worker, self.events.warn, job.loss)
        self.model, self.optimizer = self.context.model, self.context.optimizer
        self.objectives, self.micro_batches = self.context.objectives, self.context.micro_batches
        self.checkpoints = Checkpoints(job.run_folder, job.attempt, self.spec.execution.keep_checkpoints)
        self._saver = CheckpointSaver(self.checkpoints, saves_in_background(worker.device))
        self.snapshots = Snapshots(job.run_folder, job.attempt)
        self._evaluation_sizes = EvaluationSizes(self.micro_batches, self.events.warn)
        self._compilation = LayerCompilation(self.spec, worker, self.events.tell, self.events.warn)
        self._has_form = False
        self.divergences = Divergences(job, worker)
        # A teacher's work beside the model's own would make the share a wrong one.
        knows_work = job.loss is None
        self._utilization = Utilization.of(self.model.config, self.spec.precision, worker) if knows_work else None
        self.meter = Meter(worker, self.objectives, self._utilization)
        self._note_step, self._find_hosts = note_step, find_hosts
        self._due = DueSteps(self.spec, job.validation is not None)
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
                    find_bucket = None if self.context.graphs is None else self.context.graphs.find_bucket
                    with closing(device_batches(batches(first_step), self.worker.device, find_bucket)) as coming:
                        is_complete = self._train_on(coming, first_step)
                    self._tell_saved(wait=True)
                    return is_complete
                except DivergedStepError as diverged:
                    self._tell_saved(wait=True)  # it may be the one to go back to
                    self.events.warn(self.divergences.stop_or_pass_over(diverged))
                    # Those before the checkpoint are in it, the others will be told again.
                    self.events.forget_unconfirmed()
        finally:
            self._saver.settle()

    def _begin(self) -> int:
        """Restore the last checkpoint, and tell with whom the training goes on from there. Returns its first step."""
        first_step = self.restore()
        if hosts := self._find_hosts():
            self.events.emit(WorkersEvent(first_step, hosts, dataclasses.asdict(read_machine())))
        if self.worker.rank == 0 and self.spec.execution.snapshot_steps:
            self.snapshots.claim(first_step)
        if first_step == 0:
            self._save_snapshot_if_due(0)
        return first_step

    def _train_on(self, batches: Iterator[tuple[int, DeviceBatch]], first_step: int) -> bool:
        """Train on batches, as `train` does. Raises: DivergedStepError before anything of such a step is kept."""
        watch = StepWatch(self.worker, len(self.objectives), max_loss(self.spec, self.model.config.vocab_size))
        self.model.train()
        self.meter.resume()
        wants_to_stop = False
        votes: list[StopVote] = []
        num_kept_votes = 0 if self.worker.device.type in _READ_AT_ONCE else 1
        done = first_step
        for step, batch in self.meter.waiting(batches):
            done = step + 1
            if done not in self.divergences.passed_over:
                sums = training_step(self.context, step, batch, self.context.learning_rate(step), wants_to_stop)
                self.meter.add(sums.totals, sums.gradient_norm)
                watch.add(done, sums.totals, sums.gradient_norm)
                votes.append(sums.vote)
            is_logged, evaluates = self._due.is_logged(done), self._due.is_evaluation(done)
            keeps_snapshot = self._due.is_snapshot(done)
            stops = len(votes) > num_kept_votes and votes.pop(0).is_to_stop()
            if is_logged or stops or evaluates or keeps_snapshot:  # on all workers at once
                watch.look()
            if is_logged or stops:
                self.micro_batches.agree()
            if is_logged:
                self._log_training(done)
            # Only where a model that is well is saved, and the meter has just been read, as its totals are not saved.
            saves = is_logged and (self._due.is_checkpoint(done) or self._is_checkpoint_time())
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

    def restore(self) -> int:
        """Load the last whole checkpoint. Returns the step to go on from: 0 where there is no checkpoint."""
        self.meter = Meter(self.worker, self.objectives, self._utilization)
        found = read_for_all(self.checkpoints, self.worker, self.events.warn)
        if found is None:
            self._begin_form(None)
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
            self.events.emit(drift)
        if extra.get("meter") is not None:
            self.meter.restore(extra["meter"])
        self.divergences.passed_over.update(extra.get("passed_over", ()))
        self.micro_batches.restore(extra)
        self._begin_form(extra)
        for values in extra["metrics"]:
            self.events.emit(MetricEvent(**values))
        self.events.emit(event)
        self.events.tell(f"goes on at step {event.step:,} of {self.spec.steps:,}")
        return event.step

    def _begin_form(self, checkpoint: Mapping[str, Any] | None) -> None:
        """Choose once how the run's steps are computed; those of a checkpoint are computed as they were."""
        if not self._has_form:
            graphs = StepGraphs.chosen(self.context, checkpoint, self.events.tell, self.events.warn)
            self.context = dataclasses.replace(self.context, graphs=graphs)
            self._compilation.begin(self.model, checkpoint, has_graphs=graphs is not None)
        self._has_form = True

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
        extra: dict[str, Any] = {
            "identity": self.job.identity(),
            "details": self.job.identity_details(),
            "metrics": [event._asdict() for event in self.events.unconfirmed()],
            "passed_over": sorted(self.divergences.passed_over),
            **self.micro_batches.state(),
            **self._compilation.state(),
            **step_graphs.state(self.context.graphs),
            "meter": meter,
        }
        self._saver.save(step, self.model, self.optimizer, extra)
        self._tell_saved()
        self.meter.saved(time.monotonic() - began_at)

    def _tell_saved(self, wait: bool = False) -> None:
        """Tell of a checkpoint that is complete; `wait` for the one that is being written. Raises: what it raised."""
        if saved := self._saver.take(wait):
            for warning in saved.warnings:
                self.events.warn(warning)
            self.events.emit(saved.event)

    def write_model(self, folder: Path) -> None:
        """Write the model as it is, with its tokenizer, in Hugging Face's layout."""
        self.job.tokenizer.save(folder)
        self.model.save_pretrained(folder)

    def evaluate(self, step: int) -> dict[str, float]:
        """Measure the model on the validation examples, the same ones at each call."""
        assert self.job.validation is not None
        return evaluate(self.context, self.job.validation, self._evaluation_sizes, step)

    def _log_training(self, step: int) -> None:
        if self.meter.num_steps:  # all of them may have been passed over
            self._measure(step, "train", self.meter.read() | {"learning_rate": self.context.learning_rate(step - 1)})

    def _measure(self, step: int, split: Any, values: dict[str, float]) -> None:
        self.events.emit(MetricEvent(step, split, values, round(self.job.stream.epoch_after(step), 6)))

    def _save_snapshot_if_due(self, step: int) -> None:
        if self.worker.rank == 0 and self._due.is_snapshot(step):
            self.snapshots.save(step, self.write_model)

    def _is_checkpoint_time(self) -> bool:
        minutes = self.spec.execution.checkpoint_every_minutes
        return minutes is not None and time.monotonic() - self._checkpoint_at > 60 * minutes


@torch.no_grad()
def evaluate(context: StepContext, held_out: ExampleStream, sizes: EvaluationSizes, step: int) -> dict[str, float]:
    """Measure a model on all held-out examples; each worker takes its part. The model is left in training mode.

    Args:
        sizes: how much goes through the model at a time.
        step: steps that have ended, for messages.

    Raises: RunFailedError where memory runs out with a single example, or the loss is not finite.
    """
    worker = context.worker
    totals = empty_totals(context.objectives, worker.device)
    context.model.eval()
    for _, batch in held_out.batches(range(1), worker.rank, worker.num_workers):
        on_device = DeviceBatch.copied(batch, worker.device)
        totals += compute_in_parts(sizes, batch, step, partial(_totals, context, on_device))
    context.model.train()
    all_reduce_sum(totals, worker)
    metrics = named_metrics(totals, context.objectives)
    if not math.isfinite(metrics["loss"]):
        raise RunFailedError(f"the held-out loss is {metrics['loss']} at step {step}; {REMEDY}")
    return metrics


def _totals(context: StepContext, batch: DeviceBatch, parts: list[PackedBatch]) -> Tensor:
    totals = empty_totals(context.objectives, context.worker.device)
    for micro in batch.cut(parts):
        sums = pretraining_sums(context.model, micro, context.spec, context.objectives)
        add_sums(totals, sums, micro.sequences.num_tokens)
    return totals
