"""From what stages hand over to rows of the registry: the only translator, used by the driver alone.

Everything can be handed over twice; the second time changes nothing. Messages are the run's log, which is a file on
the storage, not rows.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from orchestrator.errors import RegistryError, RegistryUnavailableError, RunStoppedError
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.registry.trials import trial_id
from orchestrator.results import (
    CheckpointEvent,
    DatasetResult,
    DistillResult,
    EvaluationResult,
    Event,
    MetricEvent,
    ModelResult,
    PretrainResult,
    Result,
    Split,
    SweepResult,
    TokenizerResult,
    TrialResult,
    TrialStart,
)

HEARTBEAT_INTERVAL_S = 10.0
PATIENCE_S = 3600.0
"""How long a run waits for a registry that does not answer."""
RETRY_S = 5.0

_T = TypeVar("_T")

logger = logging.getLogger(__name__)


def retry_while_unavailable(write: Callable[[], _T]) -> _T:
    """Write; while the registry does not answer, warn once and try again, up to `PATIENCE_S`.

    Training goes on meanwhile: measurements wait in the event queue, and checkpoints carry what is not recorded, so
    that nothing is lost even when the driver ends before the registry is back.
    """
    give_up_at = time.monotonic() + PATIENCE_S
    has_said = False
    while True:
        try:
            return write()
        except RegistryUnavailableError as error:
            if time.monotonic() > give_up_at:
                raise
            if not has_said:
                logger.warning("%s Trying again for %.0f minutes.", error, PATIENCE_S / 60)
            has_said = True
            time.sleep(RETRY_S)


class Recorder:
    """Writes one driver's runs; knows the attempt it speaks for, so that one that was taken over stays silent."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._attempts: dict[str, int] = {}

    def start(
        self,
        spec: Mapping[str, Any],
        fingerprint: str,
        *,
        name: str | None = None,
        metric: str | None = None,
        storage_path: str | None = None,
        run_id: str | None = None,
    ) -> RunRecord:
        """Record a new run and its first attempt.

        Args:
            spec: the whole spec as plain values (`model_dump(mode="json")`).
            name: what a person calls the run; the spec's name when left out.
            metric: the score that ranks, where the task's reader knows it; the spec's when left out.
            run_id: of a run that was announced before; a new one when left out.
        """
        task = spec.get("task") or {}
        experiment = str(spec.get("name") or spec["kind"])
        run_id = self.registry.create_run(
            kind=str(spec["kind"]),
            name=name or experiment,
            experiment=experiment,
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

    def resume(self, run_id: str) -> RunRecord:
        """Record another attempt of a run that is there. Raises: NotFoundError; InputError where it has completed."""
        number = self.registry.start_attempt(run_id, host=socket.gethostname(), pid=os.getpid())
        self._attempts[run_id] = number
        return self.registry.run(run_id)

    def events(self, run_id: str, events: Iterable[Event]) -> None:
        """Record what happened since the last call: measurements in one transaction, and checkpoints."""
        events = list(events)
        metrics = [event for event in events if isinstance(event, MetricEvent)]
        checkpoints = [event for event in events if isinstance(event, CheckpointEvent)]
        retry_while_unavailable(lambda: self.registry.record_metrics(run_id, metrics))
        retry_while_unavailable(lambda: self.registry.record_checkpoints(run_id, checkpoints))

    def trial_started(self, run_id: str, start: TrialStart) -> str:
        """Record that a sweep's trial runs; returns the trial's own id, for `events`."""
        return retry_while_unavailable(
            lambda: self.registry.start_trial(
                run_id, key=start.key, number=start.number, parameters=start.parameters, seed=start.seed
            )
        )

    def trial(self, run_id: str, result: TrialResult) -> str:
        """Record how a sweep's trial ended, as soon as it has; returns the trial's own id."""
        return retry_while_unavailable(lambda: self.registry.record_trials(run_id, [result]))[0]

    def dataset(self, run_id: str, result: DatasetResult) -> None:
        """Record data that a run uses."""
        retry_while_unavailable(lambda: self.registry.record_dataset(run_id, result))

    def result(self, run_id: str, result: Result | None) -> None:
        """Record a run's result (None for a pipeline: its stages have theirs), then that it has completed."""
        retry_while_unavailable(lambda: self._result(run_id, result))

    def _result(self, run_id: str, result: Result | None) -> None:
        ended: dict[str, Any] = {}
        if isinstance(result, TokenizerResult):
            self._tokenizer(run_id, result)
        elif isinstance(result, DatasetResult):
            self.registry.record_dataset(run_id, result)
        elif isinstance(result, PretrainResult):
            ended = self._pretraining(run_id, result)
        elif isinstance(result, SweepResult):
            ended = self._sweep(run_id, result)
        elif isinstance(result, DistillResult):
            ended = self._distillation(run_id, result)
        elif isinstance(result, EvaluationResult):
            ended = self._evaluation(run_id, result)
        self.registry.finish_run(run_id, "COMPLETED", attempt=self._attempts.get(run_id), **ended)

    def failed(self, run_id: str, exception: BaseException) -> None:
        """Record why a run ended without its result: STOPPED where somebody wanted that, FAILED otherwise."""
        stopped = isinstance(exception, RunStoppedError | KeyboardInterrupt)
        message = str(exception).strip() or type(exception).__name__
        self.registry.finish_run(
            run_id, "STOPPED" if stopped else "FAILED", error=message, attempt=self._attempts.get(run_id)
        )

    @contextmanager
    def heartbeating(self, run_id: str, interval_s: float = HEARTBEAT_INTERVAL_S) -> Iterator[threading.Event]:
        """Say from a thread that the run is alive, until the end of the block.

        Yields an event that is set when a newer attempt has taken the run over: time to stop. A registry that cannot
        be reached is tried again at the next beat.
        """
        done, superseded = threading.Event(), threading.Event()
        attempt = self._attempts.get(run_id)

        def beat() -> None:
            while not done.wait(interval_s):
                try:
                    owned = self.registry.heartbeat(run_id, attempt)
                except RegistryError:
                    continue
                if not owned:
                    superseded.set()
                    return

        thread = threading.Thread(target=beat, name=f"heartbeat-{run_id}", daemon=True)
        thread.start()
        try:
            yield superseded
        finally:
            done.set()
            thread.join()

    def _tokenizer(self, run_id: str, result: TokenizerResult) -> None:
        row = {"kind": "tokenizer", "name": "tokenizer", "fingerprint": result.fingerprint, "path": result.folder}
        self.registry.record_artifact(run_id, {**row, "counts": {"vocab_size": result.vocab_size}, "files": []})
        self._final(run_id, 0, "validation", result.report)

    def _pretraining(self, run_id: str, result: PretrainResult) -> dict[str, Any]:
        for dataset in result.datasets:
            self.registry.record_dataset(run_id, dataset)
        splits: dict[Split, dict[str, float]] = {"train": {}, "validation": {}, "test": {}}
        for name, value in result.metrics.items():
            split, _, plain = name.partition(".")
            if split not in splits or not plain:
                split, plain = "validation", name
            splits[split][plain] = value  # type: ignore[index]
        for split, values in splits.items():
            self._final(run_id, result.num_steps, split, values)
        self._model(run_id, result.model)
        return {"model_folder": result.model.folder}

    def _sweep(self, run_id: str, result: SweepResult) -> dict[str, Any]:
        for dataset in result.datasets:
            self.registry.record_dataset(run_id, dataset)
        self.registry.set_metric(run_id, result.task, result.metric)
        self.registry.record_trials(run_id, result.trials)
        best = result.best
        for row in (run_id, trial_id(run_id, best.key)):
            self._final(row, best.best_step, "test", result.test_metrics)
        self._final(run_id, best.best_step, "validation", best.metrics)
        if best.model is not None:
            self._model(run_id, best.model)
        folder = best.model.folder if best.model else None
        return {"model_folder": folder, "predictions_path": best.predictions_path}

    def _distillation(self, run_id: str, result: DistillResult) -> dict[str, Any]:
        for dataset in result.datasets:
            self.registry.record_dataset(run_id, dataset)
        self._final(run_id, result.best_step, "test", result.test_metrics)
        self._final(run_id, result.best_step, "validation", result.metrics)
        self._model(run_id, result.model)
        return {"model_folder": result.model.folder, "predictions_path": result.predictions_path}

    def _evaluation(self, run_id: str, result: EvaluationResult) -> dict[str, Any]:
        self._final(run_id, 0, result.split, {**result.metrics, "num_examples": float(result.num_examples)})
        return {"predictions_path": result.predictions_path}

    def _final(self, run_id: str, step: int, split: Split, values: Mapping[str, float]) -> None:
        self.registry.record_metrics(run_id, [MetricEvent(step, split, values)], final=True)

    def _model(self, run_id: str, model: ModelResult) -> None:
        self.registry.register_model(self.registry.run(run_id).experiment, model, run_id)
