"""What is said while work goes on: losses with their accuracies, in lines of a terminal's width.

Alone: .venv/bin/pytest tests/orchestrator/pretraining/test_progress_line.py
"""

import pytest

from orchestrator.pretraining import progress_line as status_module
from orchestrator.pretraining.progress_line import TrainingStatus
from orchestrator.results import MetricEvent

MLM = {"mlm_loss": 6.43, "mlm_accuracy": 0.152, "perplexity": 1234.5, "tokens_per_s": 1500.0}
NSP = {"nsp_loss": 0.5, "nsp_accuracy": 0.83}


def line(split: str, values: dict[str, float]) -> str:
    return TrainingStatus([(128, 100_000)]).line(MetricEvent(20_000, split, values))  # type: ignore[arg-type]


def test_the_validation_line_has_accuracies_beside_losses() -> None:
    found = line("validation", MLM | NSP)
    assert found == "held out 20,000: mlm 6.430 (15.2 %)  nsp 0.500 (83.0 %)  perplexity 1,234.5"
    assert len(found) <= 80


@pytest.mark.parametrize(("share", "told"), [(0.0, ""), (0.02, ""), (0.137, "  14 % waiting for data")])
def test_waiting_for_data_is_told_where_it_costs_something(share: float, told: str) -> None:
    values = MLM | {"data_wait_share": share}
    assert line("train", values) == f"step 20,000/100,000  mlm 6.430  1,500 tokens/s{told}"


def test_time_left_counts_longer_sequences_as_more_work(monkeypatch: pytest.MonkeyPatch) -> None:
    status = TrainingStatus([(32, 50), (128, 50)])
    clock = iter([100.0, 110.0, 140.0])
    monkeypatch.setattr(status_module.time, "monotonic", lambda: next(clock))
    lines = [status.line(MetricEvent(step, "train", MLM)) for step in (0, 25, 75)]
    assert "left" not in lines[0]
    assert lines[1].endswith("1:30 min left")  # 25 short steps in 10 s; 25 more, and 50 four times as long
    assert lines[2].endswith("27 s left")


def test_the_first_line_and_one_in_each_tenth_of_the_steps_are_milestones() -> None:
    status = TrainingStatus([(128, 100)])
    events = [MetricEvent(step, "train", {}) for step in range(35, 101, 5)]
    assert [event.step for event in events if status.is_milestone(event)] == [35, *range(40, 101, 10)]
