"""A run's own log on the storage: the log lines of the project while the run goes on, with times, over all attempts."""

import logging
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

from orchestrator.progress import LineFormatter, attached
from orchestrator.storage import exists, join, read_bytes, write_bytes
from orchestrator.storage.uris import is_local, local_path

LOG_FILE = "log.txt"
_UPLOAD_INTERVAL_S = 30.0
_current: ContextVar["RunLog | None"] = ContextVar("current", default=None)
"""Log of the innermost run that is going on: a pipeline's stages are runs with logs of their own."""

logger = logging.getLogger(__name__)


class RunLog(logging.Handler):
    """Handler that appends log lines to a file; an object store cannot append, so all is put again from time to time.

    There no line waits for longer than `_UPLOAD_INTERVAL_S`, also when none follows it: a run that dies leaves its last
    words. A log that cannot be written ends no run; one warning says so.
    """

    def __init__(self, run_folder: str) -> None:
        super().__init__()
        self.setFormatter(LineFormatter())
        self.addFilter(lambda record: _current.get() in (None, self))
        self._path = join(run_folder, LOG_FILE)
        self._is_local = is_local(self._path)
        self._text = b"" if self._is_local or not exists(self._path) else read_bytes(self._path)
        self._upload_timer: threading.Timer | None = None
        self._upload_lock = threading.Lock()
        self._has_warned = False
        if self._is_local:
            local_path(self._path).parent.mkdir(parents=True, exist_ok=True)

    def emit(self, record: logging.LogRecord) -> None:
        """Add the line of a record."""
        self.write(self.format(record))

    def write(self, line: str) -> None:
        """Add a line, stamped with the time (UTC)."""
        stamped = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {line}\n".encode(errors="replace")
        if not self._is_local:
            self._text += stamped
            if self._upload_timer is None:
                self._upload_timer = threading.Timer(_UPLOAD_INTERVAL_S, self._upload)
                self._upload_timer.daemon = True
                self._upload_timer.start()
            return
        with self._errors_as_warning(), local_path(self._path).open("ab") as file:
            file.write(stamped)

    def close(self) -> None:
        """Put everything on the storage."""
        if self._upload_timer is not None:
            self._upload_timer.cancel()
        if not self._is_local:
            self._upload()
        super().close()

    def _upload(self) -> None:
        with self._upload_lock, self._errors_as_warning():
            self._upload_timer = None  # first: a line that comes now may be too late for this upload
            write_bytes(self._path, self._text)

    @contextmanager
    def _errors_as_warning(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
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
