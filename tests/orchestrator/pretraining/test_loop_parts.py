"""What is due after which step, what a worker tells, and what is said of it: parts that train nothing. Alone:
pytest tests/orchestrator/pretraining/test_loop_parts.py
"""

import pytest

from orchestrator.base.results import Event, MessageEvent, MetricEvent
from orchestrator.pretraining import progress_line as status_module
from orchestrator.pretraining.loop import DueSteps, WorkerEvents
from orchestrator.pretraining.progress_line import TrainingStatus
from orchestrator.specs import PretrainSpec


def due_steps(has_validation: bool = True, steps: int = 25, **execution: object) -> DueSteps:
    values = {"corpus": {"files": ["a.txt"]}, "tokenizer": "t", "steps": steps, "execution": execution}
    return DueSteps(PretrainSpec.model_validate(values), has_validation)


def steps_where(is_due: object) -> list[int]:
    assert callable(is_due)
    return [step for step in range(1, 26) if is_due(step)]


def test_the_loss_is_read_at_its_interval_with_each_checkpoint_and_at_the_end() -> None:
    due = due_steps(log_every_steps=10, checkpoint_every_steps=8)
    assert steps_where(due.is_checkpoint) == [8, 16, 24, 25]
    assert steps_where(due.is_logged) == [8, 10, 16, 20, 24, 25]


@pytest.mark.parametrize(("interval", "expected"), [(6, [6, 12, 18, 24, 25]), (None, [*range(2, 25, 2), 25])])
def test_evaluations_come_at_their_interval_or_some_ten_times(interval: int | None, expected: list[int]) -> None:
    assert steps_where(due_steps(evaluate_every_steps=interval).is_evaluation) == expected


def test_snapshots_are_kept_where_the_spec_names_them() -> None:
    due = due_steps(snapshot_steps=[0, 7])
    assert due.is_snapshot(0)
    assert steps_where(due.is_snapshot) == [7]


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


MLM = {"mlm_loss": 6.43, "mlm_accuracy": 0.152, "perplexity": 1234.5, "tokens_per_s": 1500.0}
NSP = {"nsp_loss": 0.5, "nsp_accuracy": 0.83}


def line(split: str, values: dict[str, float]) -> str:
    return TrainingStatus([(128, 100_000, 8)]).line(MetricEvent(20_000, split, values))  # type: ignore[arg-type]


def test_the_validation_line_has_accuracies_beside_losses() -> None:
    found = line("validation", MLM | NSP)
    assert found == "step 20,000 held out: mlm 6.430 (15 % right)  nsp 0.500 (83 %)  perplexity 1,234"
    assert len(found) <= 80


@pytest.mark.parametrize(("share", "told"), [(0.0, ""), (0.02, ""), (0.137, "  14 % waiting for data")])
def test_waiting_for_data_is_told_where_it_costs_something(share: float, told: str) -> None:
    values = MLM | {"data_wait_share": share}
    assert line("train", values) == f"step 20,000/100,000  mlm 6.430  1,500 tokens/s{told}"


def test_time_left_counts_longer_sequences_as_more_work(monkeypatch: pytest.MonkeyPatch) -> None:
    status = TrainingStatus([(32, 50, 16), (64, 50, 32)])
    clock = iter([100.0, 110.0, 140.0])
    monkeypatch.setattr(status_module.time, "monotonic", lambda: next(clock))
    lines = [status.line(MetricEvent(step, "train", MLM)) for step in (0, 25, 75)]
    assert "left" not in lines[0]
    assert lines[1].endswith("1:30 min left")  # 25 short steps in 10 s; 25 more, and 50 four times as long
    assert lines[2].endswith("27 s left")


def test_the_first_line_and_one_in_each_tenth_of_the_steps_are_milestones() -> None:
    status = TrainingStatus([(128, 100, 8)])
    events = [MetricEvent(step, "train", {}) for step in range(35, 101, 5)]
    assert [event.step for event in events if status.is_milestone(event)] == [35, *range(40, 101, 10)]
