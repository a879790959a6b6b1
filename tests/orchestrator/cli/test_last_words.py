"""Last words of a process that a second signal ends: the line that is said, and the deed before it.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_last_words.py
"""

import threading
from collections.abc import Callable

import pytest

from orchestrator.cli.last_words import last_words, say_last_words
from tests.waiting import PATIENCE_S


def fail() -> str:
    raise RuntimeError("the registry does not answer")


@pytest.mark.parametrize(
    ("leave", "said"), [(None, "go on"), (lambda: "stopped; go on", "stopped; go on"), (fail, "go on")]
)
def test_the_last_deed_makes_the_line(
    capfd: pytest.CaptureFixture[str], leave: Callable[[], str] | None, said: str
) -> None:
    with last_words("go on", leave):
        say_last_words()
    assert capfd.readouterr().err == f"\n{said}\n"


def test_a_last_deed_that_takes_long_is_not_waited_for(capfd: pytest.CaptureFixture[str]) -> None:
    ends = threading.Event()

    def wait() -> str:
        ends.wait(PATIENCE_S)
        return "too late"

    with last_words("go on", wait):
        say_last_words(timeout_s=0.01)
    assert capfd.readouterr().err == "\ngo on\n"
    ends.set()
