"""Events of one worker's training. Alone: pytest tests/orchestrator/pretraining/test_worker_events.py"""

from orchestrator.pretraining.loop import WorkerEvents
from orchestrator.results import Event, MessageEvent, MetricEvent


def loss_at(step: int) -> MetricEvent:
    return MetricEvent(step, "train", {"loss": 1.0 / step}, 0.5)


def test_measurements_are_kept_until_they_are_recorded() -> None:
    emitted: list[Event] = []
    num_recorded = 0
    events = WorkerEvents(0, emitted.append, lambda: num_recorded)
    events.emit(loss_at(1))
    events.tell("half way")
    events.emit(loss_at(2))
    assert emitted == [loss_at(1), MessageEvent("half way"), loss_at(2)]
    assert events.unconfirmed() == [loss_at(1), loss_at(2)]
    num_recorded = 2  # the first measurement and the message
    assert events.unconfirmed() == [loss_at(2)]
    num_recorded = 3
    assert events.unconfirmed() == []


def test_measurements_of_steps_gone_back_over_are_forgotten_but_still_counted() -> None:
    events = WorkerEvents(0, lambda event: None, lambda: 1)
    events.emit(loss_at(1))
    events.emit(loss_at(2))
    events.forget_unconfirmed()
    assert events.unconfirmed() == []
    events.emit(loss_at(2))
    assert events.unconfirmed() == [loss_at(2)], "its number is above what is recorded"


def test_other_workers_tell_nothing() -> None:
    emitted: list[Event] = []
    events = WorkerEvents(1, emitted.append, lambda: 0)
    events.emit(loss_at(1))
    events.warn("memory ran out")
    assert emitted == []
    assert events.unconfirmed() == []


def test_a_warning_is_a_message_of_that_level() -> None:
    emitted: list[Event] = []
    WorkerEvents(0, emitted.append, lambda: 0).warn("memory ran out")
    assert emitted == [MessageEvent("memory ran out", "warning")]
