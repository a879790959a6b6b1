"""A run's own log on the storage: the log lines of the project while the run goes on, with times, over all attempts."""

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

from orchestrator.progress import LineFormatter, attached
from orchestrator.storage import exists, join, read_bytes
from orchestrator.storage.uploads import GrowingUpload
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
