"""Recorder of the runs of one driver: their starts, attempts, heartbeats, measurements, results and ends.

The driver is the only process that writes the registry. Everything can be recorded twice; the second time changes
nothing.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.base.errors import RegistryError, RunStoppedError, superseded
from orchestrator.base.periodic import repeating
from orchestrator.base.results import CheckpointEvent, Event, MetricEvent, ModelResult, Split, WorkersEvent
from orchestrator.base.run_states import HEARTBEAT_INTERVAL_S, RunState, new_run_id
from orchestrator.provenance.capture import Provenance
from orchestrator.registry.database import patient
from orchestrator.registry.parameters import trial_id
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunOutcome:
    """Columns of a completed run's own row; the rest of its result stands in other tables."""

    model_folder: str | None = None
    predictions_path: str | None = None


class Recorder:
    """Writer of one driver's runs. It knows which attempt it speaks for, so that a superseded one changes nothing."""

    def __init__(self, registry: Registry, job_id: str | None = None, made_with: Provenance | None = None) -> None:
        self.given_up = threading.Event()
        """Set when the driver must end: what still has to be read or written is then tried once."""
        self.registry = patient(registry, self.given_up)
        self._lifecycle = registry.lifecycle
        self._job_id, self._made_with = job_id, made_with
        self._attempts: dict[str, tuple[int, float]] = {}
        """Number of this process's attempt at each run, and when it began, by a clock that never jumps."""

    def start(
        self,
        spec: Mapping[str, Any],
        fingerprint: str,
        *,
        metric: str | None = None,
        storage_path: str | None = None,
        run_id: str | None = None,
    ) -> RunRecord:
        """Record a new run of a spec and its first attempt; the metric that ranks is the spec's when left out."""
        task = spec.get("task") or {}
        run_id = run_id or new_run_id()  # known before the first try, so that a second one makes no second run
        self.registry.lifecycle.create(
            kind=str(spec["kind"]),
            name=str(spec.get("name") or spec["kind"]),
            fingerprint=fingerprint,
            spec=spec,
            task=task.get("id"),
            metric=metric or task.get("metric"),
            seed=spec.get("seed"),
            tags=spec.get("tags") or (),
            storage_path=storage_path,
            run_id=run_id,
        )
        return self.resume(run_id)

    def resume(self, run_id: str, after: int | None = None) -> RunRecord:
        """Record another attempt of a run that is there; of two processes that do so at once, one is refused.

        `after` is the number of the attempt that was seen to have ended; the newest one of now when left out.

        Raises: NotFoundError; InputError where the run has completed, or another process has resumed it since.
        """
        began_at = time.monotonic()
        number = self.registry.lifecycle.start_attempt(
            run_id,
            number=(self.registry.run(run_id).attempt if after is None else after) + 1,
            host=socket.gethostname(),
            pid=os.getpid(),
            job_id=self._job_id,
            made_with=self._made_with,
        )
        self._attempts[run_id] = number, began_at
        return self.registry.run(run_id)

    def record_events(self, run_id: str, events: Iterable[Event]) -> None:
        """Record what happened since the last call: measurements in one transaction, checkpoints, and workers."""
        events = list(events)
        self.registry.metrics.record(run_id, [event for event in events if isinstance(event, MetricEvent)])
        self.registry.checkpoints.record(run_id, [event for event in events if isinstance(event, CheckpointEvent)])
        workers = [event for event in events if isinstance(event, WorkersEvent)]
        if workers and run_id in self._attempts:
            self.registry.lifecycle.record_workers(run_id, self._attempts[run_id][0], workers)

    def record_device(self, run_id: str, device: str) -> None:
        """Record the kind of device that this attempt trains on, `cpu` or `gpu`, as a tag; warn of another before."""
        tag, known = f"device:{device}", self.registry.annotations.tags(run_id)
        if tag not in known and any(each.startswith("device:") for each in known):
            logger.warning(
                f"this attempt trains on {device.upper()}s, an earlier one did not: weights will differ in the last "
                "bits from those of a run on one kind of device"
            )
        self.registry.annotations.tag(run_id, [tag])

    def record_model(self, run_id: str, model: ModelResult) -> None:
        """Register a run's model under the name of its experiment."""
        self.registry.models.register(self.registry.run(run_id).experiment, model, run_id)

    def record_final_metrics(
        self, run_id: str, step: int, split: Split, values: Mapping[str, float], *, trial: str | None = None
    ) -> None:
        """Record a run's result on a split; a trial's where its key is given."""
        row = run_id if trial is None else trial_id(run_id, trial)
        self.registry.metrics.record(row, [MetricEvent(step, split, values)], final=True)

    def complete(self, run_id: str, outcome: RunOutcome) -> None:
        """Record that a run has completed, after all of its result.

        Raises: RunStoppedError when a newer attempt is at work: the run is not complete by this one.
        """
        ending = self._ending(run_id) | asdict(outcome)
        if not self.registry.lifecycle.finish(run_id, RunState.COMPLETED, **ending):
            raise superseded(run_id)

    def fail(self, run_id: str, exception: BaseException) -> None:
        """Record, without waiting for the registry, why a run ended: as STOPPED, where somebody asked, or FAILED."""
        stopped = isinstance(exception, RunStoppedError | KeyboardInterrupt)
        message = str(exception).strip() or ("interrupted" if stopped else type(exception).__name__)
        state = RunState.STOPPED if stopped else RunState.FAILED
        self._lifecycle.finish(run_id, state, error=message, **self._ending(run_id))

    def _ending(self, run_id: str) -> dict[str, Any]:
        """Number and duration of this process's attempt at a run, as `RunLifecycle.finish` takes them."""
        if run_id not in self._attempts:
            return {}
        number, began_at = self._attempts[run_id]
        return {"attempt": number, "seconds": time.monotonic() - began_at}

    @contextmanager
    def heartbeating(self, run_id: str, interval_s: float = HEARTBEAT_INTERVAL_S) -> Iterator[threading.Event]:
        """Say from a thread that the run is alive, also after failures, until the end of the block.

        Yields an event that is set when a newer attempt has superseded this one: time to stop.
        """
        is_superseded, (attempt, _) = threading.Event(), self._attempts[run_id]

        def beat() -> bool:
            with suppress(RegistryError):
                if not self._lifecycle.heartbeat(run_id, attempt):
                    is_superseded.set()
            return not is_superseded.is_set()

        with repeating(beat, interval_s, f"heartbeat-{run_id}"):
            yield is_superseded
