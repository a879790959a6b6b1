"""Work that a thread repeats beside a block.

Alone: .venv/bin/pytest tests/orchestrator/test_repeating.py
"""

import threading

import pytest

from orchestrator.repeating import repeating

LONG_S = 60.0


def test_the_work_is_repeated_during_the_block_and_not_after_it() -> None:
    num_calls, is_third = 0, threading.Event()

    def call() -> bool:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 3:
            is_third.set()
        return True

    with repeating(call, 0.001, "calls"):
        assert is_third.wait(LONG_S)
    ended_at = num_calls

    assert "calls" not in {thread.name for thread in threading.enumerate()}
    assert num_calls == ended_at


def test_work_that_returns_false_is_not_repeated() -> None:
    calls, thread_ended = [], threading.Event()

    def call() -> bool:
        calls.append(threading.current_thread())
        thread_ended.set()
        return False

    with repeating(call, 0.001, "calls"):
        assert thread_ended.wait(LONG_S)
        calls[0].join(LONG_S)

    assert len(calls) == 1


def test_a_call_under_way_is_waited_for() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), []

    def call() -> bool:
        begun.set()
        may_end.wait(LONG_S)
        ended.append(True)
        return True

    with repeating(call, 0.001, "calls"):
        assert begun.wait(LONG_S)
        may_end.set()

    assert ended


def test_a_call_under_way_is_left_alone_after_its_time() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def call() -> bool:
        begun.set()
        return may_end.wait(LONG_S)

    with repeating(call, 0.001, "left-alone", join_timeout_s=0.0):
        assert begun.wait(LONG_S)

    assert not may_end.is_set()
    may_end.set()


def test_an_error_of_the_block_passes_and_ends_the_work() -> None:
    with pytest.raises(KeyError), repeating(lambda: True, 0.001, "of-an-error"):
        raise KeyError

    assert "of-an-error" not in {thread.name for thread in threading.enumerate()}
