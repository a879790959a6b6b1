"""Lines and view of a student's training: how far it is, how long it takes yet, how good it is.

Run alone: pytest tests/orchestrator/kinds/test_student_status.py
"""

from orchestrator.base.console.run_views import TrainingView
from orchestrator.base.results import MetricEvent
from orchestrator.kinds.distill import StudentStatus


def measured(step: int, epoch: float, speed: float = 8.0) -> MetricEvent:
    """A measurement of training: 16 examples in two seconds."""
    return MetricEvent(step, "train", {"loss": 0.5, "examples_per_s": speed, "learning_rate": 1e-4}, epoch)


def test_steps_loss_speed_and_time_left_are_shown() -> None:
    status = StudentStatus(30, 3.0, 16)
    assert status.line(measured(10, 1.0)) is None
    assert status.view == TrainingView(10, 30, ("loss 0.500", "8 examples/s"), 40.0)


def test_a_long_example_is_several_windows_so_that_there_are_more_steps_than_planned() -> None:
    status = StudentStatus(30, 3.0, 16)
    status.line(measured(20, 1.0))
    assert (status.view.num_steps, status.view.left_s) == (60, 80.0)


def test_scores_are_a_line_and_stay_on_the_screen() -> None:
    status = StudentStatus(30, 3.0, 16)
    status.line(measured(10, 1.0))
    assert status.line(MetricEvent(10, "validation", {"accuracy": 0.75, "f1": 0.5}, 1.0)) == (
        "step 10  accuracy 0.7500  f1 0.5000"
    )
    status.line(measured(20, 2.0))
    assert (status.view.step, status.view.held_out) == (20, "step 10 held out: accuracy 0.7500  f1 0.5000")
