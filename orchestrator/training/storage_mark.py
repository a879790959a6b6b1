"""Mark on the storage by which a worker's process checks that it sees what its driver sees, before it does any work.

A host without the shared storage has an empty folder at the same path: it would start from step 0 and ask for a corpus
that is there.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

from orchestrator.errors import ClusterError
from orchestrator.storage import delete, exists, join, write_bytes


@contextmanager
def marked_storage(run_folder: str, attempt: int) -> Iterator[str]:
    """Leave a file of a name that was never used before in a run's folder during the block; yields its path."""
    mark = join(run_folder, f".attempt-{attempt}-{uuid4().hex}")
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
