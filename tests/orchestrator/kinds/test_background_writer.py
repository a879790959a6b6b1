"""Writes on a thread of their own: order, errors, the end of a block.

Run alone: pytest tests/orchestrator/kinds/test_background_writer.py
"""

import threading
from collections.abc import Callable, Sequence
from itertools import chain

import pytest

from orchestrator.base.errors import RegistryError, RegistryUnavailableError
from orchestrator.kinds.trial_recording import background_writer
from tests.waiting import PATIENCE_S, wait_until


def run_all(writes: Sequence[Callable[[], object]]) -> None:
    for write in writes:
        write()


def test_items_that_come_meanwhile_are_written_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.kinds.trial_recording.GATHER_S", PATIENCE_S)
    monkeypatch.setattr("orchestrator.kinds.trial_recording._MOST_ITEMS", 40)
    written: list[list[int]] = []

    def write(numbers: Sequence[int]) -> None:
        written.append(list(numbers))

    with background_writer(write, threading.Event()) as put:
        for number in range(100):
            put(number)
    assert [len(numbers) for numbers in written] == [40, 40, 20], "at the end of the block nobody waits for more"
    assert list(chain.from_iterable(written)) == list(range(100))


def test_ordering_does_not_wait_for_a_write() -> None:
    written, is_back = [], threading.Event()

    def wait() -> None:
        assert is_back.wait(PATIENCE_S)
        written.append("first")

    with background_writer(run_all, threading.Event()) as put:
        put(wait)
        put(lambda: written.append("second"))
        assert written == []
        is_back.set()
    assert written == ["first", "second"]


def test_the_error_of_a_write_is_raised_where_the_next_is_ordered() -> None:
    def refuse() -> None:
        raise RegistryError("no such table")

    written: list[str] = []

    def write_all() -> None:
        with background_writer(run_all, threading.Event()) as put:

            def order_later() -> bool:
                put(lambda: written.append("later"))
                return False

            put(refuse)
            with pytest.raises(RegistryError):
                wait_until(order_later, "no order was refused")

    with pytest.raises(RegistryError, match="no such table"):
        write_all()
    assert written == []


def test_an_interrupted_block_does_not_wait_for_a_registry_that_is_away() -> None:
    given_up = threading.Event()
    tries: list[int] = []

    def write() -> None:
        """Try again until the registry is back, which it never is, or the driver gives up."""
        tries.append(1)
        assert given_up.wait(PATIENCE_S)
        raise RegistryUnavailableError("away")

    def write_until_interrupted() -> None:
        with background_writer(run_all, given_up) as put:
            put(write)
            put(write)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_until_interrupted()
    assert tries == [1]
