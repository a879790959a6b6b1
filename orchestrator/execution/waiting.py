"""Waiting for a run that another process carries out: looks at the registry until it has ended."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator

from orchestrator.errors import NotFoundError, RunFailedError
from orchestrator.progress import duration
from orchestrator.registry.database import patient
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.run_states import RunState, is_run_id
from orchestrator.settings import Settings

logger = logging.getLogger(__name__)
_POLL_S = 2.0
RECORDED_WITHIN_S = 60.0
"""Time in which a submitted run is recorded, once its id is known: Ray starts the job, and the job a driver."""
_SHOWN = ("train.loss", "train.mlm_loss")
"""Measurements that a line of progress shows, the first one that there is; before them the score that ranks the run."""


def looks(timeout_s: float | None, pause_s: float) -> Iterator[None]:
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
    for _ in looks(patience_s, pause_s):
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


def wait_for_run(
    run_id: str,
    *,
    settings: Settings,
    timeout_s: float | None = None,
    on_progress: Callable[[str], None] | None = None,
    pause_s: float = _POLL_S,
) -> RunRecord:
    """Wait until a run has ended or its driver is lost, and return its record; one about to go on has not ended.

    Args:
        timeout_s: longest wait in seconds; None waits for ever.
        on_progress: told how far the run is; nothing is asked of the registry for it where it is None.
        pause_s: seconds between two looks.

    Raises: NotFoundError; RunFailedError when the time is over.
    """
    with Registry(settings.registry, read_only=True) as registry:
        patience_s = RECORDED_WITHIN_S if timeout_s is None else min(timeout_s, RECORDED_WITHIN_S)
        whole_id = recorded_id(registry, run_id, patience_s=patience_s, pause_s=pause_s)
        for _ in looks(timeout_s, pause_s):
            record = patient(registry).run(whole_id)
            if (record.state.is_final or record.state == RunState.LOST) and _is_over(record, settings):
                return record
            if on_progress is not None:
                on_progress(progress_line(patient(registry), record))
    raise RunFailedError(f"run {whole_id} is still {record.state} after {timeout_s:g} s")


def _is_over(record: RunRecord, settings: Settings) -> bool:
    from orchestrator.execution.starting import is_over  # the storage's libraries, of no use while a run is at work

    return is_over(record, settings)


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
        parts.append(f"step {step:,}" + (f" of {steps:,}" if steps else ""))
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
