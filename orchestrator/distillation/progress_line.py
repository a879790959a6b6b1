"""Lines and the view of a student's training for a person: step, loss, speed, time left, held-out scores."""

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.progress.run_views import TrainingView
from orchestrator.results import MetricEvent


class StudentStatus:
    """Lines and the view of a training on a task, from what its process reports after each evaluation.

    Args:
        num_steps: steps of the training as far as they are known before its examples are tokenized.
        epochs: number of times that all examples are read.
        batch_size: examples of a step.
    """

    def __init__(self, num_steps: int, epochs: float, batch_size: int) -> None:
        self._epochs, self._batch_size = epochs, batch_size
        self.view = TrainingView(0, num_steps)
        """View for a terminal, after the newest event."""

    def line(self, event: MetricEvent) -> str | None:
        """Take in a measurement; returns the line for held-out scores, and None for what was measured in training."""
        if event.split == "validation":
            line = f"step {event.step:,}  {_scores_text(event.values)}"
            self.view = replace(self.view, held_out=f"step {event.step:,} held out: {_scores_text(event.values)}")
            return line
        num_steps = round(event.step * self._epochs / event.epoch) if event.epoch else self.view.num_steps
        speed = event.values["examples_per_s"]
        left_s = (num_steps - event.step) * self._batch_size / speed if speed else None
        measured = f"loss {event.values['loss']:.3f}", f"{speed:,.0f} examples/s"
        self.view = TrainingView(event.step, num_steps, measured, left_s, self.view.held_out)
        return None


def _scores_text(scores: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.4f}" for name, value in scores.items())
