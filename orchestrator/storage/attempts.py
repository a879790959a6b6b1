"""Attempts at a run: an older one that wakes up changes nothing that a newer one has written; how to make another."""

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from bert_core.checkpoints.manifest import json_text
from bert_core.errors import CheckpointError
from orchestrator.base.errors import ClusterError, RunStoppedError
from orchestrator.base.settings import ASKED_AT_VARIABLE
from orchestrator.storage import VersionedFile, delete, exists, join, read_versioned, replace_if_unchanged, write_bytes

Entries = list[dict[str, Any]]


@dataclass(frozen=True)
class FencedList:
    """A list in a JSON file of a run, beside the number of the attempt that has written it last."""

    path: str
    """The file; a missing one is an empty list."""
    name: str
    """Name of the list in the file."""
    fields: tuple[str, ...]
    """Names that each entry of the list has."""
    attempt: int
    """Number of the attempt that reads and writes here; what a newer one has written stops it."""
    remedy: str
    """Advice where the file is damaged."""

    def read(self) -> Entries:
        """Return the entries, whichever attempt has written them. Raises: CheckpointError where the file is damaged."""
        return self._parse(read_versioned(self.path))[1]

    def read_own(self) -> Entries:
        """Return the entries as `read` does. Raises: RunStoppedError where a newer attempt has written them."""
        return self._refuse_if_superseded(read_versioned(self.path))

    def replace(self, change: Callable[[Entries], Entries]) -> tuple[Entries, Entries]:
        """Replace the entries by what `change` makes of them; returns the old and the new ones.

        On S3, where another process writes in between, `change` is called again with what that one has written.

        Raises: RunStoppedError where a newer attempt has written the file; CheckpointError where it is damaged.
        """
        while True:
            seen = read_versioned(self.path)
            before = self._refuse_if_superseded(seen)
            now = change(before)
            if replace_if_unchanged(self.path, json_text({"attempt": self.attempt, self.name: now}).encode(), seen):
                return before, now

    def _refuse_if_superseded(self, seen: VersionedFile) -> Entries:
        newest, entries = self._parse(seen)
        if newest > self.attempt:
            raise RunStoppedError(
                f"this run was resumed elsewhere (attempt {newest}) and goes on there; "
                "this process ends and changes nothing"
            )
        return entries

    def _parse(self, seen: VersionedFile) -> tuple[int, Entries]:
        if seen.data is None:
            return 0, []
        try:
            values = json.loads(seen.data)
            return int(values["attempt"]), [{name: entry[name] for name in self.fields} for entry in values[self.name]]
        except (ValueError, KeyError, TypeError):
            raise CheckpointError(f"{self.path} is cut short or altered; {self.remedy}") from None


def how_to_go_on(run_id: str) -> str:
    """Last words of an error: the command that resumes the run, as its user would type it."""
    asked_at = os.environ.get(ASKED_AT_VARIABLE)
    return f"go on with: orchestrator {f'--address {asked_at} submit --resume' if asked_at else 'resume'} {run_id}"


@contextmanager
def marked_storage(run_folder: str, attempt: int) -> Iterator[str]:
    """Keep a file of a new name in a run's folder during the block, for `refuse_without_mark`; yields its path.

    The name is that of a half-written file: `gc` deletes the mark of a driver that was killed.
    """
    mark = join(run_folder, f".attempt-{attempt}.{uuid4().hex}.tmp")
    write_bytes(mark, b"")
    try:
        yield mark
    finally:
        with suppress(OSError):
            delete(mark)


def refuse_without_mark(mark: str) -> None:
    """Check that this process sees a driver's mark. Raises: ClusterError, naming the host and the folder."""
    if exists(mark):
        return
    folder = mark.rpartition("/")[0]
    raise ClusterError(
        f"host {socket.gethostname()} does not see {folder}, which the driver has written: mount the shared storage "
        "there at the same path, or give a --storage that every host reaches; then resume"
    )
