"""The training loop of one worker: steps, measurements, validation, checkpoints, snapshots.

The loop knows nothing of Ray: batches come from a function of the first step, events go to a function. So it runs in a
plain process as well as in a Ray worker, and is tested there.

Exact resume: a run that was killed or stopped ends with the bits and the measurements of one that was not.

* A step's batch is a function of its number: going on at a step is opening the stream there (`corpus/stream.py`).
* Dropout is a function of seed, step, rank and micro-batch (`step.py`), and of the execution mode.
* A checkpoint has weights, optimizer, and in `save_checkpoint` all else that decides the next steps.
* Nothing is told, measured or saved of steps before all workers have looked at them (`divergence.py`).
* A checkpoint follows a reading of the meter, or carries the meter's totals. It carries the measurements that may not
  be recorded yet as well: whoever goes on from there tells them again.
* A step's snapshot comes before its checkpoint: whoever goes on from there does not come by this step again.
"""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed

from bert_core.checkpoints.training_state import contents_of, read_training_state
from bert_core.heads.replaced_tokens import GENERATOR_FOLDER
from orchestrator.base.results import Event, MessageEvent, MetricEvent, Split, WorkersEvent
from orchestrator.pretraining.batch_trace import Batches
from orchestrator.pretraining.collectives import StopFlag, Worker, read_for_all
from orchestrator.pretraining.device_batch import DeviceBatch, device_batches
from orchestrator.pretraining.divergence import Divergences, max_loss
from orchestrator.pretraining.execution_mode import choose_mode
from orchestrator.pretraining.job import Emit, PretrainJob, build_model
from orchestrator.pretraining.meter import DivergedStepError, Meter, Utilization
from orchestrator.pretraining.step import EvaluationBatches, StepContext, encoders_of, evaluate, training_step
from orchestrator.provenance.capture import read_machine
from orchestrator.specs import PretrainSpec
from orchestrator.specs.pretrain_execution import NUM_EVALUATIONS
from orchestrator.storage import local_copy
from orchestrator.training.checkpoints import Checkpoints, CheckpointSaver, accept_drift, check_drift
from orchestrator.training.snapshots import STATE_FOLDER, Snapshots, snapshot_folders

_READ_AT_ONCE = frozenset({"cpu"})
"""Types of devices whose stop flags are read in their own step; with others a step later, as the host would wait."""


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
        interval = self.spec.execution.evaluate_every_steps or max(1, self.spec.num_steps // NUM_EVALUATIONS)
        return self.has_validation and self._is_due(step, interval)

    def is_checkpoint(self, step: int) -> bool:
        """Whether a checkpoint is due by its interval of steps; that of minutes is a matter of the clock."""
        interval = self.spec.execution.checkpoint_every_steps
        return step == self.spec.num_steps or (interval is not None and step % interval == 0)

    def is_snapshot(self, step: int) -> bool:
        return step in self.spec.execution.snapshot_steps

    def _is_due(self, step: int, interval: int) -> bool:
        return step % interval == 0 or step == self.spec.num_steps


class WorkerEvents:
    """Events of a worker, on their way to the registry, from any of its threads. Only rank 0 emits."""

    def __init__(self, rank: int, emit_to: Emit, num_confirmed: Callable[[], int]) -> None:
        self._rank, self._emit_to, self._num_confirmed = rank, emit_to, num_confirmed
        self._num_emitted = 0
        self._unconfirmed: list[tuple[int, MetricEvent]] = []
        self._lock = threading.Lock()

    def emit(self, event: Event) -> None:
        if self._rank != 0:
            return
        with self._lock:
            if isinstance(event, MetricEvent):
                self._unconfirmed.append((self._num_emitted, event))
            self._num_emitted += 1
            self._emit_to(event)

    def tell(self, text: str) -> None:
        self.emit(MessageEvent(text))

    def warn(self, text: str) -> None:
        self.emit(MessageEvent(text, "warning"))

    def unconfirmed(self) -> list[MetricEvent]:
        """Measurements that may not be recorded yet. A checkpoint carries them: none is lost with the driver."""
        confirmed = self._num_confirmed()
        with self._lock:
            self._unconfirmed = [(number, event) for number, event in self._unconfirmed if number >= confirmed]
            return [event for _, event in self._unconfirmed]

    def forget_unconfirmed(self) -> None:
        """Forget measurements that may not be recorded yet, where a checkpoint has them or they will come again."""
        with self._lock:
            self._unconfirmed.clear()


class TrainingLoop:
    """One worker's run: model, optimizer, checkpoints. Only rank 0 emits events and writes files.

    Args:
        num_confirmed: returns how many of the emitted events, from the first on, are recorded.
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
        self._note_step, self._find_hosts = note_step, find_hosts
        self.context = StepContext.build(self.spec, build_model(job), worker, self.events.warn, job.loss)
        self.model, self.optimizer = self.context.model, self.context.optimizer
        self.micro_batches = self.context.micro_batches
        self._mode: dict[str, bool] = {}
        """Execution mode as checkpoints carry it: chosen at the start, or as the checkpoint says."""
        # The work of a teacher or a second encoder beside the model's own would make the share a wrong one.
        is_alone = job.loss is None and len(encoders_of(self.model)) == 1
        self._utilization = Utilization.of(self.model.config, self.spec.precision, worker) if is_alone else None
        self._max_loss = max_loss(self.spec, self.model.config.vocab_size)
        self.meter = self._new_meter()
        self.divergences = Divergences(job, worker)
        self._due = DueSteps(self.spec, job.validation is not None)
        self._evaluation_batches = EvaluationBatches(self.events.warn)
        self.checkpoints = Checkpoints(job.run_folder, job.attempt, self.spec.execution.keep_checkpoints)
        # While it trains, where the host's CPUs are idle; elsewhere the writer would take them from training.
        in_background = worker.device.type == "cuda"
        self._saver = CheckpointSaver(self.checkpoints, in_background, self.events.emit, self.events.warn)
        self._checkpoint_at = time.monotonic()
        self._snapshots = Snapshots(job.run_folder, job.attempt)

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
                graphs = self.context.graphs
                find_bucket = None if graphs is None else graphs.find_bucket
                try:
                    with closing(device_batches(batches(first_step), self.worker.device, find_bucket)) as on_device:
                        is_complete = self._train_steps(on_device, first_step)
                    self._saver.wait()
                    if is_complete and self.spec.average_steps:
                        self._take_average()
                    return is_complete
                except DivergedStepError as diverged:
                    self._saver.wait()  # for the checkpoint that the training may go back to
                    self.events.warn(self.divergences.stop_or_pass_over(diverged))
                    # Those before the checkpoint are in it, the others will be told again.
                    self.events.forget_unconfirmed()
        finally:
            self._saver.settle()

    def _begin(self) -> int:
        """Restore the last checkpoint, and tell with whom the training goes on from there. Returns its first step."""
        first_step = self.restore()
        self.context.enter_phase(max(0, first_step - 1))  # a snapshot and the model may be written before any step
        if hosts := self._find_hosts():
            self.events.emit(WorkersEvent(first_step, hosts, dataclasses.asdict(read_machine())))
        if self.worker.rank == 0 and self.spec.execution.snapshot_steps:
            self._snapshots.claim(first_step)
            if first_step == 0 and self._due.is_snapshot(0):
                self._snapshots.save(0, self.write_snapshot)
        return first_step

    def _train_steps(self, batches: Iterator[tuple[int, DeviceBatch]], first_step: int) -> bool:
        """Train on batches, as `train` does. Raises: DivergedStepError before anything of such a step is kept."""
        due, meter = self._due, self.meter
        stop_flags: list[StopFlag] = []
        num_flags_on_their_way = 0 if self.worker.device.type in _READ_AT_ONCE else 1
        wants_to_stop = False
        done = first_step
        self.model.train()
        meter.resume()
        for step, batch in meter.waiting(batches):
            done = step + 1
            self.context.enter_phase(step)
            if done not in self.divergences.passed_over:
                result = training_step(self.context, step, batch, self.context.learning_rate(step), wants_to_stop)
                meter.add(done, result.totals, result.gradient_norm)
                stop_flags.append(result.stop_flag)
            stops = len(stop_flags) > num_flags_on_their_way and stop_flags.pop(0).is_set()
            is_logged, evaluates, keeps_snapshot = due.is_logged(done), due.is_evaluation(done), due.is_snapshot(done)
            if is_logged or stops or evaluates or keeps_snapshot:
                meter.look()  # with all workers; a step that diverged raises
            if is_logged or stops:
                self.micro_batches.take_smallest_of_all_workers()
            if is_logged and meter.num_steps:  # all steps since the last reading may have been passed over
                rate = self.context.learning_rate(step)
                self._measure(done, "train", meter.read() | {"learning_rate": rate})
            saves = is_logged and (due.is_checkpoint(done) or self._is_checkpoint_time())
            if saves or stops or evaluates or keeps_snapshot:  # which is no training time
                meter.pause()
                if evaluates:
                    self._measure(done, "validation", self.evaluate(done))
                if keeps_snapshot and self.worker.rank == 0:
                    self._snapshots.save(done, self.write_snapshot)
                if saves or stops:
                    self.save_checkpoint(done, meter.state() if stops else None)
                if stops:
                    return done == self.spec.num_steps
                meter.resume()
            self._saver.raise_failure()
            wants_to_stop = self._note_step(done)
        assert done == self.spec.num_steps, "the feed ended before the run"
        return True

    def restore(self) -> int:
        """Load the last whole checkpoint, else another run's state. Returns the step to go on from."""
        self.meter = self._new_meter()
        found = read_for_all(self.checkpoints, self.worker, self.events.warn)
        if found is None:
            self._choose_mode(None)
            if self.divergences.passed_over:  # the step that diverged has changed model and optimizer
                self.model.load_state_dict(build_model(self.job).state_dict())
                self.optimizer.state.clear()
                self.micro_batches.restore({})
            return self._take_over()
        event, state = found
        extra = state.extra
        self._set_own_base(extra.get("own_rotary_base"))
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
        self._choose_mode(extra)
        for values in extra["metrics"]:
            self.events.emit(MetricEvent(**values))
        self.events.emit(event)
        self.events.tell(f"goes on at step {event.step:,} of {self.spec.num_steps:,}")
        return event.step

    def _take_over(self) -> int:
        """Load the state that the spec goes on from, by its own settings. Returns its step: 0 where there is none."""
        step = self.spec.init_step
        if step is None or self.job.init_state is None:
            return 0
        state = read_training_state(local_copy(self.job.init_state))
        state.load_into(self.model, self.optimizer, keeps_settings=True)
        self._set_own_base(state.extra.get("rotary_base"))
        self.events.tell(
            f"goes on at step {step:,} of {self.spec.num_steps:,}, with the optimizer of {self.spec.init_from}"
        )
        return step

    def _rotary_bases(self) -> dict[str, float]:
        """Bases of rotary positions: that of the phase, from which another run goes on, and that of the run's begin.

        The folder that the run started from may have another, that of the last phase of the run before it.
        """
        return {"rotary_base": self.model.config.rotary_base, "own_rotary_base": self.context.rotary_base}

    def _set_own_base(self, base: float | None) -> None:
        if base is not None:
            self.context = dataclasses.replace(self.context, rotary_base=base)

    def _take_average(self) -> None:
        """Put the mean of snapshots' weights into the model of every worker, and measure it again.

        Latest weight averaging (Kaddour 2022), with steps of one's own choice.
        """
        weights, steps = self.model.state_dict(), self.spec.average_steps
        if self.worker.rank == 0:
            folders = snapshot_folders(self.job.run_folder)
            sums = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
            for step in steps:
                snapshot = type(self.model).from_pretrained(local_copy(folders[step]))
                for name, tensor in snapshot.state_dict().items():
                    sums[name] += tensor.to(self.worker.device)
            for name, tensor in weights.items():
                tensor.copy_(sums[name] / len(steps))
        if self.worker.num_workers > 1:
            for tensor in weights.values():
                torch.distributed.broadcast(tensor, 0)
        self.events.tell(f"the model is the mean of those after steps {', '.join(f'{step:,}' for step in steps)}")
        if self._due.has_validation:
            self._measure(self.spec.num_steps, "validation", self.evaluate(self.spec.num_steps))

    def save_checkpoint(self, step: int, meter: dict[str, Any] | None = None) -> None:
        """Save everything that decides the next steps, and the measurements that may not be recorded yet.

        Where checkpoints are written in the background, its `CheckpointEvent` is emitted once it is complete.

        Args:
            meter: state of the meter, where it was not read after this step.
        """
        self._checkpoint_at = began_at = time.monotonic()
        if self.worker.rank != 0:
            return
        self._saver.wait()  # one at a time
        extra: dict[str, Any] = {
            "identity": self.job.identity(),
            "details": self.job.identity_details(),
            "metrics": [event._asdict() for event in self.events.unconfirmed()],
            "passed_over": sorted(self.divergences.passed_over),
            **self._rotary_bases(),
            **self.micro_batches.state(),
            **self._mode,
            "meter": meter,
        }
        self._saver.save(step, self.model, self.optimizer, extra)
        self.meter.saved(time.monotonic() - began_at)

    def write_model(self, folder: Path) -> None:
        """Write the model as it is, with its tokenizer, in Hugging Face's layout."""
        self.model.save_pretrained(folder)
        for part in (folder, folder / GENERATOR_FOLDER):
            if part.exists():
                self.job.tokenizer.save(part)

    def write_snapshot(self, folder: Path) -> None:
        """Write the model and, where the spec says so, all that another run needs to go on from this step."""
        self.write_model(folder)
        if self.spec.execution.snapshot_optimizer:
            (folder / STATE_FOLDER).mkdir()
            extra = {"identity": self.job.identity(), "details": self.job.identity_details(), **self._rotary_bases()}
            contents_of(self.model, self.optimizer, extra).write(folder / STATE_FOLDER)

    def evaluate(self, step: int) -> dict[str, float]:
        """Measure the model on the validation examples, the same ones at each call."""
        assert self.job.validation is not None
        return evaluate(self.context, self.job.validation, self._evaluation_batches, step)

    def _new_meter(self) -> Meter:
        return Meter(self.worker, self.context.objectives, self._max_loss, self._utilization)

    def _choose_mode(self, checkpoint: dict[str, Any] | None) -> None:
        """Choose how the run's steps are computed, those of a checkpoint as they were; a rollback keeps the choice."""
        if not self._mode:
            graphs, self._mode = choose_mode(self.context, checkpoint, self.events.tell, self.events.warn)
            self.context = dataclasses.replace(self.context, graphs=graphs)

    def _measure(self, step: int, split: Split, values: dict[str, float]) -> None:
        self.events.emit(MetricEvent(step, split, values, round(self.job.stream.epoch_after(step), 6)))

    def _is_checkpoint_time(self) -> bool:
        minutes = self.spec.execution.checkpoint_every_minutes
        return minutes is not None and time.monotonic() - self._checkpoint_at > 60 * minutes
