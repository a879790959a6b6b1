"""A run's own log on the storage: what it said, with times, over all its attempts."""

import time
from datetime import UTC, datetime

from orchestrator.storage import exists, join, read_bytes, write_bytes
from orchestrator.storage.files import is_local, local_path

LOG_FILE = "log.txt"
_UPLOAD_INTERVAL_S = 30.0


class RunLog:
    """Appends lines; on an object store, which cannot append, the whole log is put again from time to time."""

    def __init__(self, run_folder: str) -> None:
        self._path = join(run_folder, LOG_FILE)
        self._is_local = is_local(self._path)
        self._text = b"" if self._is_local or not exists(self._path) else read_bytes(self._path)
        self._uploaded_at = 0.0
        if self._is_local:
            local_path(self._path).parent.mkdir(parents=True, exist_ok=True)

    def write(self, line: str) -> None:
        """Add a line, stamped with the time (UTC)."""
        stamped = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {line}\n".encode()
        if self._is_local:
            with local_path(self._path).open("ab") as file:
                file.write(stamped)
            return
        self._text += stamped
        if time.monotonic() - self._uploaded_at > _UPLOAD_INTERVAL_S:
            self.close()

    def close(self) -> None:
        """See that everything is on the storage."""
        if not self._is_local:
            write_bytes(self._path, self._text)
            self._uploaded_at = time.monotonic()
