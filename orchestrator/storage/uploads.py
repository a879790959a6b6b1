"""Uploads of a text that grows to an object store, which cannot append: all of it is put again from time to time."""

import threading
from collections.abc import Callable

from orchestrator.storage.file_access import write_bytes

INTERVAL_S = 30.0


class GrowingUpload:
    """Puts a text on an object store every half minute while it grows, and at the end.

    So no line waits for longer than that, also when none follows it: a process that is killed leaves its last words.

    Args:
        path: of the object.
        read: gives the whole text so far; called by a thread.
        on_error: told why an upload failed; the next one has its text too.
    """

    def __init__(self, path: str, read: Callable[[], bytes], on_error: Callable[[OSError], object]) -> None:
        self._path, self._read, self._on_error = path, read, on_error
        self._done, self._num_uploaded = threading.Event(), 0
        self._thread = threading.Thread(target=self._put_from_time_to_time, name="upload", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Put what is new, and end."""
        self._done.set()
        self._thread.join()
        self._put()

    def _put_from_time_to_time(self) -> None:
        while not self._done.wait(INTERVAL_S):
            self._put()

    def _put(self) -> None:
        text = self._read()
        if len(text) == self._num_uploaded:
            return
        try:
            write_bytes(self._path, text)
        except OSError as error:
            self._on_error(error)
        else:
            self._num_uploaded = len(text)
