"""Logs on the storage, also on object stores, which cannot append.

`AppendLog` holds JSON values, and a value that was appended is there for good. `growing_upload` puts all of a text that
grows again from time to time.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from bert_core.errors import CheckpointError
from orchestrator.base.periodic import repeating
from orchestrator.storage.file_access import write_bytes
from orchestrator.storage.folders import names_in
from orchestrator.storage.uris import filesystem_of, is_local, join, local_path

UPLOAD_INTERVAL_S = 30.0


class AppendLog:
    """Log that one process at a time appends to; to append costs the same whatever is in the log already.

    On a local path the log is one file with a line per value. Object stores cannot append: there the log is a folder
    with an object per value, named by its place.

    Args:
        path: of the file, or of the folder on an object store; it is made with the first value.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._ends_whole = False
        self._num_objects: int | None = None

    def read(self) -> list[Any]:
        """Read all values in their order; a last line that was cut short, by the end of its process, is left out.

        Raises: CheckpointError where another line is no JSON.
        """
        lines = self._read_lines() if is_local(self.path) else self._read_objects()
        values = []
        for number, line in enumerate(lines, start=1):
            try:
                values.append(json.loads(line))
            except ValueError:
                raise CheckpointError(f"{self.path}, entry {number}, is altered: it is no JSON; put it back") from None
        return values

    def append(self, value: Any) -> None:
        """Add a value; when this returns it is on the disk, or in the object store."""
        data = json.dumps(value, separators=(",", ":")).encode()
        if is_local(self.path):
            self._append_line(local_path(self.path), data)
        else:
            self._put_object(data)

    def _read_lines(self) -> list[bytes]:
        path = local_path(self.path)
        return path.read_bytes().split(b"\n")[:-1] if path.exists() else []

    def _append_line(self, path: Path, data: bytes) -> None:
        if not self._ends_whole:
            path.parent.mkdir(parents=True, exist_ok=True)
            _cut_last_line(path)
        self._ends_whole = False  # until all of the line is there: a full disk may take half of it
        with path.open("ab") as file:
            file.write(data + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._ends_whole = True

    def _read_objects(self) -> list[bytes]:
        names = names_in(self.path)
        if not names:
            return []
        filesystem, plain = filesystem_of(self.path)
        found = filesystem.cat([join(plain, name) for name in names])  # many at a time, where the store can
        return [found[key] for key in sorted(found)]

    def _put_object(self, data: bytes) -> None:
        if self._num_objects is None:
            last = names_in(self.path)[-1:]
            self._num_objects = int(last[0].partition("-")[0]) + 1 if last else 0
        # The second half keeps apart what two processes write, should a frozen one wake up.
        name = f"{self._num_objects:08d}-{uuid4().hex[:8]}.json"
        write_bytes(join(self.path, name), data)
        self._num_objects += 1


def _cut_last_line(path: Path) -> None:
    """Truncate a file after its last line feed: the rest is a line that was not written to its end."""
    if path.exists():
        data = path.read_bytes()
        if not data.endswith(b"\n"):
            os.truncate(path, data.rfind(b"\n") + 1)


@contextmanager
def growing_upload(path: str, read: Callable[[], bytes], on_error: Callable[[OSError], object]) -> Iterator[None]:
    """Put a text on an object store every half minute while it grows, and at the end of the block.

    So no line waits for longer than that, also when none follows it: a process that is killed leaves its last words.

    Args:
        path: of the object.
        read: gives the whole text so far; called by a thread.
        on_error: told why an upload failed; the next one has its text too.
    """
    num_uploaded = 0

    def put() -> bool:
        nonlocal num_uploaded
        text = read()
        try:
            if len(text) != num_uploaded:
                write_bytes(path, text)
                num_uploaded = len(text)
        except OSError as error:
            on_error(error)
        return True

    try:
        with repeating(put, UPLOAD_INTERVAL_S, "upload"):
            yield
    finally:
        put()
