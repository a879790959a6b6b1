"""Remarks on the data of a task, for a person to know or to mend before anything learns from it."""

from collections.abc import Iterable, Iterator
from typing import Any

from bert_core.text.characters import plain_text
from orchestrator.results import Split
from orchestrator.tasks.cell_values import look_alike
from orchestrator.tasks.task import Task


def data_remarks(task: Task) -> Iterator[tuple[str, str]]:
    """Yield a topic and a text for labels that look alike or measure nothing, mended records and texts in two splits.

    Reads every labeled split. Raises: TaskDataError, naming file and line.
    """
    train = task.file("train")
    labels = {name for example in task.examples("train") for name in task.type.label_names(example)}
    for alike in look_alike(sorted(labels)):
        names = f"{', '.join(map(repr, alike[:-1]))} and {alike[-1]!r}"
        looks = f"{names} look alike and are {len(alike)} classes"
        yield "labels", f"{looks}; if one is meant, write it in one way in {train}"
    for split in {task.files[split]: split for split in task.splits}.values():
        if note := task.read(split).bad.repair_note:
            yield "mended", note
    for split in task.splits:
        if remark := task.type.labels_note(task.examples(split)):
            yield split, f"{task.files[split]}: {remark}; add others"
    for split, count in count_leaks(task).items():
        own = task.files[split]
        remedy = f"{own} is both" if own == train else f"take them out of {own} or of {train}"
        yield (
            "leak",
            f"{count:,} of {len(task.examples(split)):,} {split} examples have a text that is in the training split as "
            f"well, so that scores come out too good; {remedy}",
        )


def count_leaks(task: Task) -> dict[Split, int]:
    """Count the examples of the other splits whose text the training split has as well; splits without one are absent.

    Reads every split: over a million short texts it takes seconds. Examples without a word do not count, nor do parts
    of one file, which have no text in common.

    Raises: TaskDataError for a split that cannot be read.
    """
    if "train" not in task.files:
        return {}
    own = ("train", "validation") if task.is_divided else ("train",)
    others = {split: list(_plain_texts(task, task.examples(split))) for split in task.splits if split not in own}
    wanted = set().union(*others.values()) - {""}
    learned = {text for text in _plain_texts(task, task.examples("train")) if text in wanted}
    counts = {split: sum(text in learned for text in texts) for split, texts in others.items()}
    return {split: count for split, count in counts.items() if count}


def _plain_texts(task: Task, examples: Iterable[Any]) -> Iterator[str]:
    """Yield what must not be in two splits, of each example; questions follow one another on the same passage."""
    text, plain = "", ""
    for example in examples:
        own = task.type.split_text(example)
        if own != text:
            text, plain = own, plain_text(own)
        yield plain
