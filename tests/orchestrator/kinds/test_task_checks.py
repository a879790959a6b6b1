"""Advice on trainings that are too short to learn from their examples.

Alone: .venv/bin/pytest tests/orchestrator/kinds/test_task_checks.py
"""

import pytest

from orchestrator.kinds.task_checks import FEW_STEPS, short_training_advice
from orchestrator.training.batch_order import Schedule


def test_a_batch_larger_than_the_data_is_what_is_blamed() -> None:
    advice = short_training_advice(Schedule(num_examples=220, batch_size=1000, epochs=1.0, evaluations_per_epoch=1))
    assert advice == (
        "1 step only, since recipe.batch_size 1,000 is more than the 220 training examples; "
        "lower it, or raise recipe.epochs"
    )


def test_few_steps_of_a_fitting_batch_want_more_epochs() -> None:
    advice = short_training_advice(Schedule(num_examples=220, batch_size=32, epochs=1.0, evaluations_per_epoch=1))
    assert advice == "7 steps only; raise recipe.epochs or lower recipe.batch_size"


@pytest.mark.parametrize(("steps", "is_told"), [(FEW_STEPS - 1, True), (FEW_STEPS, False)])
def test_a_training_is_short_below_a_number_of_steps(steps: int, is_told: bool) -> None:
    advice = short_training_advice(Schedule(num_examples=steps, batch_size=1, epochs=1.0, evaluations_per_epoch=1))
    assert (advice is not None) == is_told
