"""Writes on a thread of their own: who orders one never waits for a registry that is away."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, Queue
from typing import Generic, TypeVar

GATHER_S = 0.5
"""Wait for further items before they are written together: one transaction costs more than what is in it."""
_MOST_ITEMS = 500
"""Items that are written at a time at most, so that other writers have their turn."""

Item = TypeVar("Item")


class BackgroundWriter(Generic[Item]):
    """Writes items in the order in which they come, several at a time.

    The first write that fails ends it: `put` and `flush` raise its error, and later items are left out.
    """

    def __init__(self, write: Callable[[Sequence[Item]], object]) -> None:
        self._write = write
        self._items: Queue[Item | None] = Queue()
        self._hurries = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="background-writer", daemon=True)
        self._thread.start()

    def put(self, item: Item) -> None:
        """Order that an item is written. Raises: what an earlier write raised."""
        self._raise_error()
        self._items.put(item)

    def flush(self) -> None:
        """Wait until all items are written; a signal may interrupt this. Raises: what one of the writes raised."""
        self._hurries.set()
        self._items.join()
        self._hurries.clear()
        self._raise_error()

    def close(self) -> None:
        """Wait until the thread has ended, after the items that were ordered."""
        self._hurries.set()
        self._items.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (item := self._items.get()) is not None:
            self._hurries.wait(GATHER_S)
            items = [item, *self._waiting()]
            try:
                if self._error is None:
                    self._write(items)
            except Exception as error:
                self._error = error
            finally:
                for _ in items:
                    self._items.task_done()

    def _waiting(self) -> Iterator[Item]:
        """Take the items that are there; the end of all stays where it is, for the next look."""
        for _ in range(_MOST_ITEMS - 1):
            try:
                item = self._items.get_nowait()
            except Empty:
                return
            if item is None:
                self._items.put(None)
                return
            yield item

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error


@contextmanager
def background_writer(
    write: Callable[[Sequence[Item]], object], given_up: threading.Event
) -> Iterator[BackgroundWriter[Item]]:
    """Yield a writer; at the end of the block all is written.

    A block that ends by an exception, an interruption for one, does not wait for a registry that is away: `given_up` is
    set, upon which a write must not be tried again.
    """
    writer = BackgroundWriter(write)
    try:
        yield writer
        writer.flush()
    except BaseException:
        given_up.set()
        raise
    finally:
        writer.close()
