"""Following the log of a run that another process carries out: what is added is passed on until the run has ended."""

from collections.abc import Callable
from functools import partial

from orchestrator.execution.pulling import log_folder
from orchestrator.execution.run_log import LOG_FILE
from orchestrator.execution.waiting import looks, progress_line, recorded_id
from orchestrator.registry.patience import retry_while_unavailable
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.run_states import RunState
from orchestrator.settings import Settings
from orchestrator.storage import join, open_read

_PAUSE_S = 1.0


def follow_log(
    run_id: str,
    *,
    settings: Settings,
    write: Callable[[bytes], object],
    on_progress: Callable[[str], None] | None = None,
    pause_s: float = _PAUSE_S,
) -> RunRecord:
    """Pass on the log of a run from its beginning, and what is added, until the run has ended or its driver is lost.

    A log that is not there yet is waited for.

    Args:
        write: takes each piece as soon as it is there.
        on_progress: told how far the run is; nothing is asked of the registry for it where it is None.
        pause_s: seconds between two looks.

    Raises: NotFoundError.
    """
    with Registry(settings.registry, read_only=True) as registry:
        whole_id = recorded_id(registry, run_id, pause_s=pause_s)
        position = 0
        for _ in looks(None, pause_s):
            # The state before the log, so that the last lines are there when the run has ended.
            record = retry_while_unavailable(lambda: registry.run(whole_id))
            added = _read_from(join(log_folder(record, registry, settings), LOG_FILE), position)
            if added:
                write(added)
                position += len(added)
            if record.state.is_final or record.state == RunState.LOST:
                break
            if on_progress is not None:
                on_progress(retry_while_unavailable(partial(progress_line, registry, record)))
    return record


def _read_from(path: str, position: int) -> bytes:
    """The bytes of a file from a position on; none where it is not there."""
    try:
        with open_read(path) as file:  # of an object on S3 only what comes after the position is fetched
            file.seek(position)
            return file.read()
    except FileNotFoundError:
        return b""
