"""Leaks: texts of a split that the training split has as well, by which a model's scores come out too good."""

from collections.abc import Iterable, Iterator
from typing import Any

from orchestrator.results import Split
from orchestrator.tasks.task import Task, plain_text


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
