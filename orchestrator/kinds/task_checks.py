"""Checks of a task's data before a run starts, and what is said of a training that is too short to learn from it."""

from collections.abc import Iterable, Iterator
from typing import Any

from bert_core.text.characters import plain_text
from orchestrator.kinds.resolved import Resolved
from orchestrator.progress import counted
from orchestrator.results import Split
from orchestrator.tasks.cell_values import look_alike
from orchestrator.tasks.task import Task
from orchestrator.training.batch_order import Schedule


def count_leaks(task: Task) -> dict[Split, int]:
    """Count the examples of the other splits whose text the training split has as well; splits without one are absent.

    Reads every split: over a million short texts it takes seconds. Examples without a word do not count, nor do parts
    of one file, which have no text in common.

    Raises: TaskDataError for a split that cannot be read.
    """
    if "train" not in task.files:
        return {}
    others: dict[Split, list[str]] = {
        split: list(_plain_texts(task, task.examples(split))) for split in _other_splits(task)
    }
    wanted = set().union(*others.values()) - {""}
    learned = {text for text in _plain_texts(task, task.examples("train")) if text in wanted}
    counts = {split: sum(text in learned for text in texts) for split, texts in others.items()}
    return {split: count for split, count in counts.items() if count}


def _other_splits(task: Task) -> list[Split]:
    return [split for split in task.splits if split != "train" and not (split == "validation" and task.is_divided)]


def _plain_texts(task: Task, examples: Iterable[Any]) -> Iterator[str]:
    """Yield what must not be in two splits, of each example; questions follow one another on the same passage."""
    text, plain = "", ""
    for example in examples:
        own = task.type.split_text(example)
        if own != text:
            text, plain = own, plain_text(own)
        yield plain


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
        if note := task.read(split).bad.repair_note:
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
