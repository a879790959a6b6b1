"""Attempt at a run: its record, heartbeat, log, requests to stop, limit of hours, and the work of its kind.

    run recorded ─► heartbeat, log, watcher, meter { the kind's run } ─► result recorded

A failure after the run is recorded is recorded on it; an interruption leaves it STOPPED, to be resumed.
"""

import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from orchestrator.base.console import LineFormatter, attached, show_progress
from orchestrator.base.errors import (
    ClusterError,
    HoursReached,
    InputError,
    NotFoundError,
    RegistryError,
    StopRequested,
    interruption_under_way,
)
from orchestrator.base.periodic import repeating
from orchestrator.base.run_states import new_run_id
from orchestrator.base.settings import Settings
from orchestrator.cluster.administration import show_gauges
from orchestrator.cluster.capacity import cluster_resources, gpu_types
from orchestrator.cluster.connection import most_cpus
from orchestrator.cluster.head_watch import HeadWatch
from orchestrator.execution.attempt_files import LOG_FILE, StopRequest
from orchestrator.execution.launch_folder import save_launch_folder
from orchestrator.kinds import kind_of
from orchestrator.kinds.base import RunContext
from orchestrator.kinds.resolved import Resolved
from orchestrator.registry.costs import HOUR_S
from orchestrator.registry.database import retry_while_unavailable
from orchestrator.registry.recorder import Recorder
from orchestrator.registry.records import AttemptCostRecord, RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.specs import Spec
from orchestrator.specs.execution_overrides import adds_points, execution_changes
from orchestrator.specs.fields import hour_limit_of
from orchestrator.specs.loading import parse_spec, spec_values
from orchestrator.specs.task import task_of
from orchestrator.storage import exists, join, read_bytes
from orchestrator.storage.attempts import how_to_go_on
from orchestrator.storage.logs import growing_upload
from orchestrator.storage.uris import is_local, local_path

REQUEST_INTERVAL_S = 2.0
"""Pause between two looks of a driver at its run's folder."""
METER_INTERVAL_S = 5.0
logger = logging.getLogger(__name__)
_current_log: ContextVar["RunLog | None"] = ContextVar("current_log", default=None)
"""Log of the innermost run that is going on: a pipeline's stages are runs with logs of their own."""


@dataclass(frozen=True)
class RunController:
    """Starts and resumes runs on the connected Ray, and records how they end."""

    inputs: Resolved
    registry: Registry
    recorder: Recorder
    watcher: "StopRequestWatcher"
    allow_drift: bool = False
    """Whether runs may go on although what they read has changed since their last attempt."""

    @property
    def settings(self) -> Settings:
        return self.inputs.settings

    def start(
        self,
        spec: Spec,
        tags: Sequence[str] = (),
        *,
        run_id: str | None = None,
        on_started: Callable[[str], None] = lambda run_id: None,
    ) -> RunRecord:
        """Record a new run and carry it out; where its id was drawn before, that is `run_id`.

        Raises: InputError for an id that a run has already, beside what its kind raises.
        """
        if run_id is not None:
            self._refuse_taken(run_id)
        spec = retry_while_unavailable(partial(self.inputs.pin, spec))
        spec = kind_of(spec).settle_precision(spec, self.inputs)
        values = spec_values(spec) | {"tags": [*spec.tags, *tags]}
        run_id = run_id or new_run_id()
        folder = join(self.settings.storage, "runs", run_id)
        task = task_of(spec)
        metric = None if task is None else self.inputs.task(task).metric
        record = self.recorder.start(values, spec.fingerprint(), metric=metric, storage_path=folder, run_id=run_id)
        on_started(run_id)
        return self._carry_out(record, spec)

    def _refuse_taken(self, run_id: str) -> None:
        """Check that there is no run of an id: a job that Ray starts twice is not to make a second attempt of it."""
        with suppress(NotFoundError):
            record = self.recorder.registry.run(run_id)
            raise InputError(f"run {record.id} is there already; go on with it: orchestrator resume {record.id}")

    def resume(self, record: RunRecord, spec: Spec) -> RunRecord:
        """Make another attempt at a run, of a sweep also with more points than it had.

        Raises: InputError where an attempt has begun since the record was read.
        """
        before = parse_spec(record.spec)
        if adds_points(before, spec):
            values = {**record.spec, "trials": spec_values(spec)["trials"]}
            remark = f"attempt {record.attempt + 1} adds points: trials {record.spec['trials']} → {values['trials']}"
            self.recorder.registry.lifecycle.replace_spec(record.id, values, spec.fingerprint(), after=record.attempt)
            self.recorder.registry.annotations.note(record.id, remark)
            logger.info(remark)
        return self._carry_out(self.recorder.resume(record.id, after=record.attempt), spec)

    def _carry_out(self, record: RunRecord, spec: Spec) -> RunRecord:
        run_folder, kind = record.folder(self.settings.storage), kind_of(spec)
        try:
            with (
                self.recorder.heartbeating(record.id) as superseded,
                show_progress() as progress,
                logged_run(run_folder),
            ):
                with self.watcher.watching(record, run_folder):
                    save_launch_folder(run_folder, spec)
                    logger.info(f"run {record.id} ({record.kind} {record.name}, attempt {record.attempt})")
                    for change in execution_changes(parse_spec(record.spec), spec):
                        logger.info(f"this attempt changes {change}")
                    context = RunContext(
                        run_id=record.id,
                        attempt=record.attempt,
                        run_folder=run_folder,
                        settings=self.settings,
                        recorder=self.recorder,
                        progress=progress,
                        superseded=superseded,
                        allow_drift=self.allow_drift,
                        show=partial(show_gauges, record.id, record.name),
                        stages=self,
                    )
                    with metered(record, spec, self.registry, self.watcher, most_cpus=most_cpus(self.settings)):
                        result = kind.run(spec, self.inputs, context)
                context.refuse_if_superseded()
                self.recorder.complete(record.id, kind.record(result, record.id, self.recorder))
                for line in kind.summary_lines(record.id, self.registry):
                    logger.info(line)
        except BaseException as error:
            try:
                self.recorder.fail(record.id, error)
            except (RegistryError, NotFoundError) as trouble:  # the run will read LOST
                logger.warning(f"how run {record.id} ended is not recorded: {trouble}")
            raise
        return self.recorder.registry.run(record.id)


class RunLog(logging.Handler):
    """Handler that appends log lines to a file; on an object store all of it is put again from time to time.

    A log that cannot be written ends no run; one warning says so.
    """

    def __init__(self, run_folder: str) -> None:
        super().__init__()
        self.setFormatter(LineFormatter())
        self.addFilter(lambda record: _current_log.get() in (None, self))
        self._path = join(run_folder, LOG_FILE)
        self._is_local = is_local(self._path)
        self._has_warned = False
        self._uploads = ExitStack()
        if self._is_local:
            local_path(self._path).parent.mkdir(parents=True, exist_ok=True)
        else:
            self._text = read_bytes(self._path) if exists(self._path) else b""
            self._uploads.enter_context(growing_upload(self._path, lambda: self._text, self._warn))

    def emit(self, record: logging.LogRecord) -> None:
        """Add the line of a record."""
        self.write(self.format(record))

    def write(self, line: str) -> None:
        """Add a line, stamped with the time (UTC)."""
        stamped = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {line}\n".encode(errors="replace")
        if not self._is_local:
            self._text += stamped
            return
        try:
            with local_path(self._path).open("ab") as file:
                file.write(stamped)
        except OSError as error:
            self._warn(error)

    def close(self) -> None:
        """Put everything on the storage."""
        self._uploads.close()
        super().close()

    def _warn(self, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True  # first, since the warning comes here too
            logger.warning("the run's log %s cannot be written: %s", self._path, error)


@contextmanager
def logged_run(run_folder: str) -> Iterator[None]:
    """Keep a run's log during the block; its last line is how the run ended."""
    with closing(RunLog(run_folder)) as log, attached(log):
        outer = _current_log.set(log)
        try:
            yield
            log.write("completed")
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            log.write(f"ended: {str(error).strip() or ('interrupted' if interrupted else type(error).__name__)}")
            raise
        finally:
            _current_log.reset(outer)


class StopRequestWatcher:
    """Background thread that interrupts the driver when a stop is requested, or its hours are over.

    When the head node is lost it records the runs as FAILED and exits the process, because Ray calls in the main thread
    would block until Ray kills it. The runs are a pipeline and the stage that is at work.

    Args:
        watch_head: makes the watch over the connected Ray's head from the last words of its error; None for none.
    """

    def __init__(self, recorder: Recorder, watch_head: Callable[[str], HeadWatch] | None = None) -> None:
        self._recorder, self._watch_head = recorder, watch_head
        self._at_work: list[str] = []
        self._requested: StopRequested | None = None
        self._lock = threading.Lock()

    @property
    def outermost(self) -> str | None:
        """Id of the run that was asked for, a pipeline's while a stage of it is at work; None while none is."""
        return next(iter(self._at_work), None)

    @contextmanager
    def watching(self, record: RunRecord, run_folder: str, interval_s: float = REQUEST_INTERVAL_S) -> Iterator[None]:
        """Look for a request in a thread until the end of the block, and interrupt the main thread when there is one.

        A run that another thread carries out, in a program of its own, is not watched: only the main one can be
        interrupted.

        Raises: StopRequested, in place of the KeyboardInterrupt that a request has caused.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        done = threading.Event()
        # A pipeline's watch serves its stages as well.
        head = self._watch_head(how_to_go_on(record.id)) if self._watch_head and not self._at_work else None

        def watch() -> None:
            while True:
                request = StopRequest.load(run_folder)
                if request is not None and request.attempt == record.attempt:
                    self._obey(record.id, request, done)
                if done.wait(interval_s):
                    return
                if head is not None:
                    self._check_head(head, done)

        with _one_signal_heeded():  # until nothing is sent any more
            with self._lock:
                self._at_work.append(record.id)
            try:
                threading.Thread(target=watch, name=f"stop-{record.id}", daemon=True).start()
                yield
            except KeyboardInterrupt as error:
                if self._requested is None or isinstance(error, StopRequested):
                    raise
                self._requested.step = getattr(error, "step", None)
                raise self._requested from None
            finally:
                with self._lock:
                    self._at_work.remove(record.id)
                    done.set()

    def _obey(self, run_id: str, request: StopRequest, done: threading.Event) -> None:
        """Interrupt the main thread, once; a forced request ends the process here and now."""
        with self._lock:
            if done.is_set():
                return
            if request.force:
                self._leave(StopRequested(run_id))
            self._interrupt(StopRequested(run_id))

    def stop(self, reason: StopRequested) -> bool:
        """Interrupt the run at work as a request does, for a reason of this driver's own.

        Returns whether it can be interrupted, which takes a run of the main thread.
        """
        with self._lock:
            if self._at_work:
                self._interrupt(reason)
            return bool(self._at_work)

    def _interrupt(self, reason: StopRequested) -> None:
        if self._requested is None and not interruption_under_way.is_set():
            self._requested = reason
            # Into the main thread, so that what it waits for is interrupted as well.
            signal.pthread_kill(threading.main_thread().ident or 0, _handled_signal() or signal.SIGINT)

    def _check_head(self, head: HeadWatch, done: threading.Event) -> None:
        """Warn of a head that does not answer; leave when it has been silent for too long."""
        silent_s = head.silent_s
        try:
            head.look()
        except ClusterError as error:
            with self._lock:
                if not done.is_set():
                    logger.error(str(error))
                    self._leave(error)
        if head.silent_s > silent_s:
            logger.warning(head.problem())

    def _leave(self, reason: ClusterError | StopRequested) -> None:
        """Record that the runs at work have ended, and end the process here and now."""
        for at_work in reversed(self._at_work):
            with suppress(RegistryError):  # the run will read LOST
                self._recorder.fail(at_work, reason)
        os._exit(reason.exit_status)


@contextmanager
def _one_signal_heeded() -> Iterator[None]:
    """Have the main thread heed one signal at least within the block: a script's `&` has SIGINT ignored."""
    if _handled_signal() is not None:
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _handled_signal() -> signal.Signals | None:
    """The first signal that interrupts the main thread; None where each is ignored or ends the process."""
    ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return next((number for number in ends if callable(signal.getsignal(number))), None)


def hours_reached(
    record: RunRecord, spec: Spec, seconds: float, pipeline: RunRecord | None = None
) -> HoursReached | None:
    """The end of a run that has worked for so many seconds; None before its limit, or without one.

    Args:
        pipeline: the run's pipeline, with which a person goes on.
    """
    limit, whole = hour_limit_of(spec), pipeline or record
    if limit is None or seconds < limit[1] * HOUR_S:
        return None
    field, hours = limit
    stage = record.stage_in(whole)
    again = f"{field}={2 * hours:g}" if stage is None else f"stages.{stage}.{field}={2 * hours:g}"
    return HoursReached(whole.id, f"run {record.id} has reached {field}, {hours:g} h", again)


@contextmanager
def metered(
    record: RunRecord,
    spec: Spec,
    registry: Registry,
    watcher: StopRequestWatcher,
    interval_s: float = METER_INTERVAL_S,
    most_cpus: float = math.inf,
) -> Iterator[None]:
    """Record from a thread what an attempt takes, until the end of the block, and stop it at the limit of its hours.

    Args:
        most_cpus: CPUs that there are, where Ray may count more.

    Raises: HoursReached where earlier attempts took all hours.
    """
    whole = watcher.outermost
    pipeline = None if whole is None else retry_while_unavailable(partial(registry.run, whole))
    before_s, begun_at = record.seconds or 0.0, time.monotonic()
    if (reached := hours_reached(record, spec, before_s, pipeline)) is not None:
        raise reached
    meter = _Meter(record, spec, registry, most_cpus)

    def look() -> bool:
        meter.record()
        reached = hours_reached(record, spec, before_s + time.monotonic() - begun_at, pipeline)
        if reached is not None and not watcher.stop(reached):
            logger.warning(f"{reached.reason}; it goes on, as only a run of the main thread can be stopped")
        return reached is None

    with repeating(look, interval_s, f"costs-{record.id}"):
        try:
            yield
        finally:
            meter.record()


class _Meter:
    """Meter of what an attempt holds of the connected Ray: a sweep what its trials hold, others their processes."""

    def __init__(self, record: RunRecord, spec: Spec, registry: Registry, most_cpus: float) -> None:
        self._run, self._registry, self._most_cpus = record, registry, most_cpus
        held = kind_of(spec).resources(spec)
        self._held = held if held.with_gpus is None else held.on(cluster_resources())
        self._gpu_type = " or ".join(gpu_types()) if self._held.total.get("GPU") else None
        self._begun_at = self._looked_at = time.monotonic()
        self._held_s = 0.0

    def record(self) -> None:
        """Record what the attempt has taken until now; where the registry does not answer, the next call records it.

        Nothing is recorded of a pipeline, whose stages have the costs.
        """
        if not self._held.total:
            return
        now = time.monotonic()
        run_id, number = self._run.id, self._run.attempt
        with suppress(RegistryError):
            self._held_s += self._num_held() * (now - self._looked_at)
            self._looked_at = now
            trial_s = self._registry.costs.trial_seconds(run_id, number)
            held_s = self._held_s if trial_s is None else trial_s
            cpu_s, gpu_s = (held_s * self._held.total.get(name, 0.0) for name in ("CPU", "GPU"))
            seconds = now - self._begun_at
            cpu_s = min(cpu_s, self._most_cpus * seconds)
            cost = AttemptCostRecord(run_id, number, seconds, cpu_s, gpu_s, self._gpu_type)
            self._registry.costs.record(cost)

    def _num_held(self) -> float:
        """Number of times that the resources are held now: several where a range of workers has found room."""
        if self._held.up_to == 1.0:
            return 1.0
        attempts = [one for one in self._registry.attempts(self._run.id) if one.number == self._run.attempt]
        groups = [group for one in attempts for group in one.workers or ()]
        return len(groups[-1]["hosts"]) / self._held.processes[0].count if groups else 1.0
