"""Recorder of the runs of one driver: their starts, attempts, heartbeats, measurements, results and ends.

The driver is the only process that writes the registry. Everything can be recorded twice; the second time changes
nothing. Messages are not recorded here: they are the run's log, a file on the storage.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.errors import RegistryError, RunStoppedError, superseded
from orchestrator.provenance.machine import MadeWith
from orchestrator.registry.patience import retry_while_unavailable
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.registry.runs.lifecycle import RunLifecycle
from orchestrator.registry.trial_rows import trial_id
from orchestrator.repeating import repeating
from orchestrator.results import (
    CheckpointEvent,
    DatasetResult,
    Event,
    MetricEvent,
    ModelResult,
    Split,
    TokenizerResult,
    TrialChange,
    WorkersEvent,
)
from orchestrator.run_ids import new_run_id
from orchestrator.run_states import RunState

logger = logging.getLogger(__name__)

DRIFT_TAG = "drift"
HEARTBEAT_INTERVAL_S = 10.0


class _OwnAttempts:
    """Attempts of this process, one for each run. Of a run that it has not begun nothing is known here.

    Time is counted by a clock that never jumps.
    """

    def __init__(self, lifecycle: RunLifecycle) -> None:
        self._lifecycle = lifecycle
        self._numbers: dict[str, int] = {}
        self._began_at: dict[str, float] = {}

    def begin(self, run_id: str, number: int, job_id: str | None, made_with: MadeWith | None) -> None:
        """Begin an attempt, however long the registry takes to answer.

        Raises: NotFoundError; InputError where the run has completed, or another process has just begun that attempt.
        """
        self._began_at[run_id] = time.monotonic()
        self._numbers[run_id] = retry_while_unavailable(
            lambda: self._lifecycle.start_attempt(
                run_id,
                number=number,
                host=socket.gethostname(),
                pid=os.getpid(),
                job_id=job_id,
                made_with=made_with,
            )
        )

    def number(self, run_id: str) -> int | None:
        """Number of this process's attempt at a run; None where there is none."""
        return self._numbers.get(run_id)

    def ending(self, run_id: str) -> dict[str, Any]:
        """Number and duration of this process's attempt at a run, as `RunLifecycle.finish` takes them."""
        if run_id not in self._numbers:
            return {}
        return {"attempt": self._numbers[run_id], "seconds": time.monotonic() - self._began_at[run_id]}

    @contextmanager
    def heartbeating(self, run_id: str, interval_s: float) -> Iterator[threading.Event]:
        """Say from a thread that a run is alive, until the end of the block.

        Yields an event that is set when a newer attempt has superseded this one. A registry that cannot be reached is
        tried again at the next beat.
        """
        superseded, attempt = threading.Event(), self.number(run_id)

        def beat() -> bool:
            with suppress(RegistryError):
                if not self._lifecycle.heartbeat(run_id, attempt):
                    superseded.set()
            return not superseded.is_set()

        with repeating(beat, interval_s, f"heartbeat-{run_id}"):
            yield superseded


@dataclass(frozen=True)
class RunOutcome:
    """Columns of a completed run's own row; the rest of its result stands in other tables."""

    model_folder: str | None = None
    predictions_path: str | None = None


class Recorder:
    """Writer of one driver's runs. It knows which attempt it speaks for, so that a superseded one changes nothing.

    Args:
        job_id: id of the job on a cluster whose driver this is; None where there is none.
        made_with: code, command and machine of this driver, which stand in each of its attempts.
    """

    def __init__(self, registry: Registry, job_id: str | None = None, made_with: MadeWith | None = None) -> None:
        self.registry = registry
        self._job_id, self._made_with = job_id, made_with
        self.given_up = threading.Event()
        """Set when the driver must end: what trials and events still have to write is then tried once."""
        self._attempts = _OwnAttempts(registry.lifecycle)

    def start(
        self,
        spec: Mapping[str, Any],
        fingerprint: str,
        *,
        metric: str | None = None,
        storage_path: str | None = None,
        run_id: str | None = None,
    ) -> RunRecord:
        """Record a new run and its first attempt.

        Args:
            spec: the whole spec as plain values (`model_dump(mode="json")`).
            metric: the score that ranks, where the task's reader knows it; the spec's when left out.
            run_id: of a run that was announced before; a new one when left out.
        """
        task = spec.get("task") or {}
        new_id = run_id or new_run_id()  # known before the first try, so that a second one makes no second run
        retry_while_unavailable(
            lambda: self.registry.lifecycle.create(
                kind=str(spec["kind"]),
                name=str(spec.get("name") or spec["kind"]),
                fingerprint=fingerprint,
                spec=spec,
                task=task.get("id"),
                metric=metric or task.get("metric"),
                seed=spec.get("seed"),
                tags=spec.get("tags") or (),
                storage_path=storage_path,
                run_id=new_id,
            )
        )
        return self.resume(new_id)

    def resume(self, run_id: str, after: int | None = None) -> RunRecord:
        """Record another attempt of a run that is there.

        Of two processes that do so at once, one is refused.

        Args:
            after: number of the attempt that was seen to have ended, maybe some time ago: where another process has
                begun the next one since, this one is refused. The newest one of now when left out.

        Raises: NotFoundError; InputError where the run has completed, or another process has just resumed it.
        """
        number = (self.read_run(run_id).attempt if after is None else after) + 1
        self._attempts.begin(run_id, number, self._job_id, self._made_with)
        return self.read_run(run_id)

    def add_points(self, run_id: str, spec: Mapping[str, Any], fingerprint: str, remark: str) -> None:
        """Record the spec of a sweep with more points than before, and a note that says so, before its next attempt."""
        retry_while_unavailable(lambda: self.registry.lifecycle.reopen(run_id, spec, fingerprint))
        retry_while_unavailable(lambda: self.registry.annotations.note(run_id, remark))

    def model_folders(self, run_id: str) -> set[str]:
        """Return the folders of the models that a run has registered."""
        return {model.folder for model in retry_while_unavailable(lambda: self.registry.models.of_run(run_id))}

    def read_run(self, run_id: str) -> RunRecord:
        """Read a run's record, however long the registry takes to answer."""
        return retry_while_unavailable(lambda: self.registry.run(run_id))

    def record_events(self, run_id: str, events: Iterable[Event]) -> None:
        """Record what happened since the last call: measurements in one transaction, checkpoints, and workers."""
        events = list(events)
        metrics = [event for event in events if isinstance(event, MetricEvent)]
        checkpoints = [event for event in events if isinstance(event, CheckpointEvent)]
        workers = [event for event in events if isinstance(event, WorkersEvent)]
        retry_while_unavailable(lambda: self.registry.metrics.record(run_id, metrics), self.given_up)
        retry_while_unavailable(lambda: self.registry.checkpoints.record(run_id, checkpoints), self.given_up)
        if workers and (attempt := self._attempts.number(run_id)) is not None:
            record = self.registry.lifecycle.record_workers
            retry_while_unavailable(lambda: record(run_id, attempt, workers), self.given_up)

    def record_trials(self, run_id: str, changes: Sequence[TrialChange]) -> list[str]:
        """Record what became of a sweep's trials, in one transaction; returns the trial's own id for each change."""
        return retry_while_unavailable(lambda: self.registry.trials.record(run_id, changes), self.given_up)

    def trial_states(self, run_id: str) -> dict[str, RunState]:
        """Return the recorded state of each trial of a sweep, by the trial's key."""
        return retry_while_unavailable(lambda: self.registry.trials.states(run_id))

    def drop_trials(self, run_id: str) -> None:
        """Delete the trials of a sweep, which run again on what they read now."""
        retry_while_unavailable(lambda: self.registry.trials.drop(run_id))

    def record_dataset(self, run_id: str, result: DatasetResult) -> None:
        """Record data that a run uses."""
        retry_while_unavailable(lambda: self.registry.datasets.record(run_id, result))

    def record_device(self, run_id: str, device: str) -> None:
        """Record the kind of device that this attempt trains on, `cpu` or `gpu`, as a tag `device:…` of the run.

        A warning says where an earlier attempt trained on another: its bits do not come again.
        """
        tag, prefix = f"device:{device}", "device:"
        known = retry_while_unavailable(lambda: self.registry.tags(run_id))
        if any(each.startswith(prefix) and each != tag for each in known) and tag not in known:
            logger.warning(
                f"this attempt trains on {device.upper()}s, an earlier one did not: weights will differ in the last "
                "bits from those of a run on one kind of device"
            )
        retry_while_unavailable(lambda: self.registry.tag(run_id, tag))

    def record_tokenizer(self, run_id: str, result: TokenizerResult) -> None:
        """Record a tokenizer that a run has trained, among the run's data."""
        retry_while_unavailable(lambda: self.registry.datasets.record_tokenizer(run_id, result))

    def record_model(self, run_id: str, model: ModelResult) -> None:
        """Register a run's model under the name of its experiment, as a new version unless it is there already."""
        retry_while_unavailable(
            lambda: self.registry.models.register(self.registry.run(run_id).experiment, model, run_id)
        )

    def record_final_metrics(
        self, run_id: str, step: int, split: Split, values: Mapping[str, float], *, trial: str | None = None
    ) -> None:
        """Record a run's last scores on a split, which stand in the run's row; a trial's where its key is given."""
        row = run_id if trial is None else trial_id(run_id, trial)
        retry_while_unavailable(
            lambda: self.registry.metrics.record(row, [MetricEvent(step, split, values)], final=True)
        )

    def record_trial_data(self, run_id: str, digests: Mapping[str, str]) -> None:
        """Record digests of each split that a sweep's trials use, before its first trial, as `set_data` takes them.

        The leaderboard takes trials on the same data together, and no others.
        """
        retry_while_unavailable(lambda: self.registry.trials.set_data(run_id, digests))

    def record_ranking(self, run_id: str, task: str, metric: str) -> None:
        """Record the task that a run's models are for, and the score that ranks them."""
        retry_while_unavailable(lambda: self.registry.trials.set_metric(run_id, task, metric))

    def record_drift(self, run_id: str) -> None:
        """Tag a run whose attempts did not all read the same data, models or versions."""
        retry_while_unavailable(lambda: self.registry.tag(run_id, DRIFT_TAG))

    def complete(self, run_id: str, outcome: RunOutcome) -> None:
        """Record that a run has completed, after all of its result.

        Raises: RunStoppedError when a newer attempt is at work: the run is not complete by this one.
        """
        is_complete = retry_while_unavailable(
            lambda: self.registry.lifecycle.finish(
                run_id, RunState.COMPLETED, **self._attempts.ending(run_id), **asdict(outcome)
            )
        )
        if not is_complete:
            raise superseded(run_id)
        retry_while_unavailable(lambda: self.registry.lineage.record_run(run_id))

    def fail(self, run_id: str, exception: BaseException) -> None:
        """Record why a run ended without its result: STOPPED where somebody wanted that, FAILED otherwise."""
        stopped = isinstance(exception, RunStoppedError | KeyboardInterrupt)
        message = str(exception).strip() or ("interrupted" if stopped else type(exception).__name__)
        self.registry.lifecycle.finish(
            run_id, RunState.STOPPED if stopped else RunState.FAILED, error=message, **self._attempts.ending(run_id)
        )

    def heartbeating(
        self, run_id: str, interval_s: float = HEARTBEAT_INTERVAL_S
    ) -> AbstractContextManager[threading.Event]:
        """Say from a thread that the run is alive, until the end of the block.

        Yields an event that is set when a newer attempt has superseded this one: time to stop.
        """
        return self._attempts.heartbeating(run_id, interval_s)
