"""Writes on a thread of their own: who orders one never waits for a registry that is away."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Queue

Write = Callable[[], object]


class BackgroundWriter:
    """Carries writes out one after another, in the order in which they were ordered.

    The first write that fails ends it: `put` and `flush` raise its error, and later writes are left out.
    """

    def __init__(self) -> None:
        self._writes: Queue[Write | None] = Queue()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="background-writer", daemon=True)
        self._thread.start()

    def put(self, write: Write) -> None:
        """Order a write. Raises: what an earlier one raised."""
        self._raise_error()
        self._writes.put(write)

    def flush(self) -> None:
        """Wait until all writes are carried out; a signal may interrupt this. Raises: what one of them raised."""
        self._writes.join()
        self._raise_error()

    def close(self) -> None:
        """Wait until the thread has ended, after the writes that were ordered."""
        self._writes.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (write := self._writes.get()) is not None:
            try:
                if self._error is None:
                    write()
            except Exception as error:
                self._error = error
            finally:
                self._writes.task_done()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error


@contextmanager
def background_writer(given_up: threading.Event) -> Iterator[BackgroundWriter]:
    """Yield a writer; at the end of the block all is written.

    A block that ends by an exception, an interruption for one, does not wait for a registry that is away: `given_up` is
    set, upon which a write must not be tried again.
    """
    writer = BackgroundWriter()
    try:
        yield writer
        writer.flush()
    except BaseException:
        given_up.set()
        raise
    finally:
        writer.close()
