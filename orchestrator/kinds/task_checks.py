"""Checks of a task's data before a run starts, and what is said of a training that is too short to learn from it."""

from orchestrator.kinds.resolved import Resolved
from orchestrator.progress import counted
from orchestrator.tasks import Task
from orchestrator.tasks.cell_values import look_alike
from orchestrator.tasks.leaks import count_leaks
from orchestrator.training.batch_order import Schedule

FEW_STEPS = 50
"""Steps of a fine-tuning below which it can hardly have learned anything, whatever its learning rate."""


def check_examples(task: Task, inputs: Resolved) -> None:
    """Check that each labeled split can be read, with labels that the training split has too; a run reads them anyway.

    Warns of labels that look alike or measure nothing, of mended records, and of texts that the training split shares
    with another one.

    Raises: TaskDataError, naming file and line.
    """
    task.file("train")
    for alike in look_alike(task.labels):
        names = ", ".join(map(repr, alike))
        inputs.warn(f"task {task.id}: the labels {names} look alike and are classes of their own; is one misspelt?")
    for split in task.splits:
        if note := task.read(split).repair_note:
            inputs.warn(f"task {task.id}: {note}")
        if remark := task.type.labels_note(task.examples(split)):
            inputs.warn(f"task {task.id}: {task.files[split]}: {remark}")
    for split, number in count_leaks(task).items():
        own, learned = task.files[split], task.files["train"]
        remedy = f"{own} is both" if own == learned else f"take them out of {own} or of {learned}"
        inputs.warn(
            f"task {task.id}: {number:,} of {len(task.examples(split)):,} {split} examples have a text that is in the "
            f"training split as well, so that scores come out too good; {remedy}"
        )


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
