"""Steps after which something is due. Alone: pytest tests/orchestrator/pretraining/test_due_steps.py"""

import pytest

from orchestrator.pretraining.loop import DueSteps
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


def test_a_checkpoint_without_an_interval_of_steps_is_due_at_the_end_alone() -> None:
    assert steps_where(due_steps(checkpoint_every_minutes=1.0).is_checkpoint) == [25]


@pytest.mark.parametrize(("interval", "expected"), [(6, [6, 12, 18, 24, 25]), (None, [*range(2, 25, 2), 25])])
def test_evaluations_come_at_their_interval_or_some_ten_times(interval: int | None, expected: list[int]) -> None:
    assert steps_where(due_steps(evaluate_every_steps=interval).is_evaluation) == expected


def test_a_run_of_few_steps_is_evaluated_after_each() -> None:
    assert [step for step in range(1, 4) if due_steps(steps=3).is_evaluation(step)] == [1, 2, 3]


def test_without_held_out_examples_nothing_is_evaluated() -> None:
    assert not steps_where(due_steps(has_validation=False).is_evaluation)


def test_snapshots_are_kept_where_the_spec_names_them() -> None:
    due = due_steps(snapshot_steps=[0, 7])
    assert due.is_snapshot(0)
    assert steps_where(due.is_snapshot) == [7]
