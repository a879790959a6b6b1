"""A run's own log on the storage: what it said, with times, over all its attempts."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from orchestrator.storage import exists, join, read_bytes, write_bytes
from orchestrator.storage.files import is_local, local_path

LOG_FILE = "log.txt"
_UPLOAD_INTERVAL_S = 30.0


class RunLog:
    """Appends lines; on an object store, which cannot append, the whole log is put again from time to time.

    A log that cannot be written ends no run: that is said once, on the terminal.
    """

    def __init__(self, run_folder: str) -> None:
        self._path = join(run_folder, LOG_FILE)
        self._is_local = is_local(self._path)
        self._text = b"" if self._is_local or not exists(self._path) else read_bytes(self._path)
        self._uploaded_at = 0.0
        self._has_complained = False
        if self._is_local:
            local_path(self._path).parent.mkdir(parents=True, exist_ok=True)

    def write(self, line: str) -> None:
        """Add a line, stamped with the time (UTC)."""
        stamped = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {line}\n".encode(errors="replace")
        if not self._is_local:
            self._text += stamped
            if time.monotonic() - self._uploaded_at > _UPLOAD_INTERVAL_S:
                self.close()
            return
        with self._complaining(), local_path(self._path).open("ab") as file:
            file.write(stamped)

    def close(self) -> None:
        """See that everything is on the storage."""
        if self._is_local:
            return
        self._uploaded_at = time.monotonic()
        with self._complaining():
            write_bytes(self._path, self._text)

    @contextmanager
    def _complaining(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not self._has_complained:
                print(f"warning: the run's log {self._path} cannot be written: {error}", file=sys.stderr)
            self._has_complained = True
