"""Pause of Python's garbage collector, for reading many rows at once."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collection() -> Iterator[None]:
    """Keep the collector of cycles from running; also a decorator.

    It looks for garbage each time some hundreds of objects have been made, and then again among all that are still
    held. Where a hundred thousand rows become objects that are all held, it finds nothing and takes up to half of the
    time. What is not part of a cycle is freed at once all the same.
    """
    was_enabled = gc.isenabled()
    if was_enabled:  # else another pause ends after this one has looked, and nothing would end this one
        gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
