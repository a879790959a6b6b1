"""Waiting for a run that another process carries out, and following its log, until it has ended."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from orchestrator.base.console import duration
from orchestrator.base.errors import NotFoundError, RunFailedError
from orchestrator.base.run_states import RunState, is_run_id
from orchestrator.base.settings import Settings
from orchestrator.execution.attempt_files import LOG_FILE
from orchestrator.registry.database import patient
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.storage import join, open_read

logger = logging.getLogger(__name__)
_POLL_S = 2.0
RECORDED_WITHIN_S = 60.0
"""Time in which a submitted run is recorded, once its id is known: Ray starts the job, and the job a driver."""
_SHOWN = ("train.loss", "train.mlm_loss")
"""Metrics for a line of progress, which shows the first one recorded; the score that ranks the run precedes them."""


def poll(timeout_s: float | None, pause_s: float) -> Iterator[None]:
    """Yield again and again, with pauses, until the time is over; for ever where it is None."""
    give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
    yield
    while give_up_at is None or time.monotonic() < give_up_at:
        time.sleep(pause_s)
        yield


def recorded_id(registry: Registry, run_id: str, *, patience_s: float = RECORDED_WITHIN_S, pause_s: float) -> str:
    """Find the whole id of a run by its beginning; a run whose whole id was given may still have to be recorded.

    Raises: NotFoundError.
    """
    has_said = False
    for _ in poll(patience_s, pause_s):
        try:
            return patient(registry).run(run_id).id
        except NotFoundError:
            if not is_run_id(run_id):
                raise
        registry.close()  # one that was empty is looked for again: the first run makes it
        if not has_said:
            logger.info(f"run {run_id} is not recorded yet; its job may be starting")
            has_said = True
    return registry.run(run_id).id


def _is_over(record: RunRecord) -> bool:
    return record.state.is_final or record.state == RunState.LOST


def wait_for_run(
    run_id: str,
    *,
    settings: Settings,
    timeout_s: float | None = None,
    on_progress: Callable[[str], None] | None = None,
    pause_s: float = _POLL_S,
) -> RunRecord:
    """Wait until a run has ended or its driver is lost, and return its record.

    Args:
        timeout_s: longest wait in seconds, until the run is recorded and has ended; None waits for ever.
        on_progress: told how far the run is; nothing is asked of the registry for it where it is None.
        pause_s: seconds between two looks.

    Raises: NotFoundError; RunFailedError when the time is over.
    """
    begun_at = time.monotonic()
    with Registry(settings.registry, read_only=True) as registry:
        patience_s = RECORDED_WITHIN_S if timeout_s is None else min(timeout_s, RECORDED_WITHIN_S)
        whole_id = recorded_id(registry, run_id, patience_s=patience_s, pause_s=pause_s)
        for _ in poll(timeout_s and begun_at + timeout_s - time.monotonic(), pause_s):
            record = patient(registry).run(whole_id)
            if _is_over(record):
                return record
            if on_progress is not None:
                on_progress(progress_line(patient(registry), record))
    raise RunFailedError(f"run {whole_id} is still {record.state} after {timeout_s:g} s")


def progress_line(registry: Registry, record: RunRecord) -> str:
    """Progress of a run in one line: its step or its trials, and a measurement; of a pipeline its newest stage's."""
    for stage in registry.stages(record.id) if record.kind == "pipeline" else ():
        return progress_line(registry, stage)
    parts = [f"{record.name or record.id}  {record.state}"]
    states = Counter(registry.trials.states(record.id).values())
    parts += [f"{number} {state.lower()}" for state, number in states.most_common()]
    step = registry.metrics.last_step(record.id)
    if step is not None:
        steps = record.spec.get("steps") or (record.spec.get("pretraining") or {}).get("steps")
        parts.append(f"step {step:,}" + (f" of {steps:,}" if isinstance(steps, int) else ""))
    latest = registry.metrics.latest(record.id)
    shown = next((name for name in (record.metric or "", *_SHOWN) if name in latest), None)
    if shown is not None:
        parts.append(f"{shown} {latest[shown]:.4f}")
    return "  ".join(parts)


def outcome_line(record: RunRecord) -> str:
    """Outcome of a run, with its reason, in one line."""
    spent = f" after {duration(record.seconds)}" if record.seconds else ""
    reason = f": {record.error}" if record.error else ""
    return f"run {record.id} is {record.state}{spent}{reason}"


def follow_log(
    run_id: str,
    *,
    settings: Settings,
    write: Callable[[bytes], object],
    pause_s: float = 1.0,
) -> RunRecord:
    """Pass on the log of a run from its beginning, and what is added, until the run has ended or its driver is lost.

    The lines of a pipeline's work are in the logs of its stages: that of the stage at work is passed on too, and those
    of the stages after it. A log that is not there yet is waited for.

    Args:
        write: takes each piece as soon as it is there.
        pause_s: seconds between two looks.

    Raises: NotFoundError.
    """
    with Registry(settings.registry, read_only=True) as registry:
        whole_id = recorded_id(registry, run_id, pause_s=pause_s)
        logs = _GrowingLogs(settings.storage, write)
        for _ in poll(None, pause_s):
            # The state before the log, so that the last lines are there when the run has ended.
            record = patient(registry).run(whole_id)
            stages = patient(registry).stages(whole_id) if record.kind == "pipeline" else []
            logs.pass_on(record, stages)
            if _is_over(record):
                break
    return record


class _GrowingLogs:
    """Logs of a run and of a pipeline's stages, each passed on from where it was last read."""

    def __init__(self, storage: str, write: Callable[[bytes], object]) -> None:
        self._storage, self._write = storage, write
        self._positions: dict[str, int] = {}
        self._done: set[tuple[str, int]] | None = None
        """Stages, by id and attempt, whose logs need not be read any more; None before the first look."""

    def pass_on(self, record: RunRecord, stages: Sequence[RunRecord]) -> None:
        """Pass on what was added: of stages that have ended, then of the pipeline, then of the stage at work."""
        if self._done is None:
            self._done = {(stage.id, stage.attempt) for stage in stages if stage.state.is_final}
        new = [stage for stage in reversed(stages) if (stage.id, stage.attempt) not in self._done]
        ended = [stage for stage in new if stage.state.is_final]
        for run in (*ended, record, *(stage for stage in new if not stage.state.is_final)):
            if run is record or run.created_at >= record.created_at:  # other stages are used again, and say nothing
                self._pass_on(run)
        self._done |= {(stage.id, stage.attempt) for stage in ended}

    def _pass_on(self, run: RunRecord) -> None:
        position = self._positions.get(run.id, 0)
        added = _read_from(join(run.folder(self._storage), LOG_FILE), position)
        if not run.state.is_final:  # its last line may be half written
            added = added[: added.rfind(b"\n") + 1]
        if added:
            self._write(added)
            self._positions[run.id] = position + len(added)


def _read_from(path: str, position: int) -> bytes:
    """The bytes of a file from a position on; none where it is not there."""
    try:
        with open_read(path) as file:  # of an object on S3 only what comes after the position is fetched
            file.seek(position)
            return file.read()
    except FileNotFoundError:
        return b""
