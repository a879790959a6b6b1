"""A run's own log on the storage: the project's log lines with times, over all attempts; written, and followed."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

from orchestrator.execution.starting import is_over
from orchestrator.execution.waiting import looks, recorded_id
from orchestrator.progress import LineFormatter, attached
from orchestrator.registry.database import patient
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.settings import Settings
from orchestrator.storage import exists, join, open_read, read_bytes
from orchestrator.storage.logs import GrowingUpload
from orchestrator.storage.uris import is_local, local_path

LOG_FILE = "log.txt"
_current: ContextVar["RunLog | None"] = ContextVar("current", default=None)
"""Log of the innermost run that is going on: a pipeline's stages are runs with logs of their own."""

logger = logging.getLogger(__name__)


class RunLog(logging.Handler):
    """Handler that appends log lines to a file; on an object store all of it is put again from time to time.

    A log that cannot be written ends no run; one warning says so.
    """

    def __init__(self, run_folder: str) -> None:
        super().__init__()
        self.setFormatter(LineFormatter())
        self.addFilter(lambda record: _current.get() in (None, self))
        self._path = join(run_folder, LOG_FILE)
        self._is_local = is_local(self._path)
        self._has_warned = False
        self._upload: GrowingUpload | None = None
        if self._is_local:
            local_path(self._path).parent.mkdir(parents=True, exist_ok=True)
        else:
            self._text = read_bytes(self._path) if exists(self._path) else b""
            self._upload = GrowingUpload(self._path, lambda: self._text, self._warn)

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
        if self._upload is not None:
            self._upload.close()
        super().close()

    def _warn(self, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True  # first, since the warning comes here too
            logger.warning("the run's log %s cannot be written: %s", self._path, error)


@contextmanager
def logged_run(run_folder: str) -> Iterator[None]:
    """Keep a run's log during the block; its last line is how the run ended."""
    with closing(RunLog(run_folder)) as log, attached(log):
        outer = _current.set(log)
        try:
            yield
            log.write("completed")
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            log.write(f"ended: {str(error).strip() or ('interrupted' if interrupted else type(error).__name__)}")
            raise
        finally:
            _current.reset(outer)


_PAUSE_S = 1.0


def follow_log(
    run_id: str,
    *,
    settings: Settings,
    write: Callable[[bytes], object],
    pause_s: float = _PAUSE_S,
) -> RunRecord:
    """Pass on the log of a run from its beginning, and what is added, until the run has ended or its driver is lost.

    A run that is about to go on has not ended.

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
        for _ in looks(None, pause_s):
            # The state before the log, so that the last lines are there when the run has ended.
            record = patient(registry).run(whole_id)
            stages = patient(registry).stages(whole_id) if record.kind == "pipeline" else []
            logs.pass_on(record, stages)
            if is_over(record, settings):
                break
    return record


class _GrowingLogs:
    """Logs of a run and of a pipeline's stages, each passed on from where it was last read."""

    def __init__(self, storage: str, write: Callable[[bytes], object]) -> None:
        self._storage, self._write = storage, write
        self._paths: dict[str, str] = {}
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
        if run.id not in self._paths:
            self._paths[run.id] = join(run.folder(self._storage), LOG_FILE)
        position = self._positions.get(run.id, 0)
        added = _read_from(self._paths[run.id], position)
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
