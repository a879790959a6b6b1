"""Signals held back, a second one, their handlers. Alone: pytest tests/orchestrator/finetuning/test_interrupts.py"""

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from orchestrator.cli.entry import Interrupted
from orchestrator.finetuning.tune_run import held_interrupts

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Handlers that raise, for each of the signals."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(number, interrupt)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted(number)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_waits_and_is_known(number: signal.Signals) -> None:
    with held_interrupts() as held:
        assert held.error is None
        signal.raise_signal(number)
        assert isinstance(held.error, Interrupted)
        assert held.error.number == number
    assert signal.getsignal(number) is interrupt


def test_a_second_signal_raises_at_once() -> None:
    def interrupt_twice() -> None:
        with held_interrupts():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted, match="SIGTERM"):
        interrupt_twice()
    assert all(signal.getsignal(number) is interrupt for number in SIGNALS)


def test_a_handler_that_the_first_signal_puts_in_place_gets_the_second() -> None:
    left: list[int] = []

    def leave(number: int, frame: FrameType | None) -> None:
        left.append(number)

    def first(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, leave)
        raise Interrupted(number)

    signal.signal(signal.SIGINT, first)
    with held_interrupts() as held:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert held.error is not None
    assert left == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is leave, "a signal after the block leaves at once too"
