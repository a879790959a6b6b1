"""Checks of a task's data before a run starts, and what is said of a training that is too short to learn from it."""

from orchestrator.kinds.resolved import Resolved
from orchestrator.progress import counted
from orchestrator.tasks.loading import data_remarks
from orchestrator.tasks.task import Task
from orchestrator.training.batch_order import Schedule

FEW_STEPS = 50
"""Steps of a fine-tuning below which it can hardly have learned anything, whatever its learning rate."""


def check_examples(task: Task, inputs: Resolved) -> None:
    """Check that each labeled split can be read, with labels that the training split has too; a run reads them anyway.

    Warns of what a person may want to mend in the data.

    Raises: TaskDataError, naming file and line.
    """
    for _, remark in data_remarks(task):
        inputs.warn(f"task {task.id}: {remark}")


def short_training_advice(schedule: Schedule) -> str | None:
    """Advice on a training of few steps: how many it has, and what to change; None where there are enough of them."""
    steps = schedule.num_steps
    if steps >= FEW_STEPS:
        return None
    taken = counted(steps, "step")
    if schedule.batch_size > schedule.num_examples:
        return (
            f"{taken} only, since recipe.batch_size {schedule.batch_size:,} is more than the {schedule.num_examples:,} "
            "training examples; lower it, or raise recipe.epochs"
        )
    return f"{taken} only; raise recipe.epochs or lower recipe.batch_size"
