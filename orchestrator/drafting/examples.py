"""Labeled files as a draft looks at them: examples, labels, lengths, doubles; the choice of those for validation."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any, NamedTuple

from orchestrator.drafting.text import MAX_BAD_SHARE, count_words, text_key
from orchestrator.errors import InputError
from orchestrator.results import Split
from orchestrator.specs.task import TaskSpec
from orchestrator.tasks.task import hold_out
from orchestrator.tasks.text_files import BadRecords
from orchestrator.tasks.types import TASK_TYPES
from orchestrator.tasks.types.base import AnyTaskType

_MIN_EXAMPLES = 10
_VOCABULARY_BYTES = 64 << 20
"""Text that a vocabulary is learned from, at most."""
_FEW = 1000
_MOST_VALIDATION = 5000
"""Examples for validation at most: more cost time and tell little more."""


class Example(NamedTuple):
    """An example of the task type's own class, and what is counted of it."""

    own: Any
    texts: tuple[str, ...]
    labels: tuple[str, ...]
    """Labels to count; empty where the label is a number, or no label is there."""
    num_words: int
    key: int
    """Key of all of its texts."""
    group: int
    """Key of the text that must not be in two splits, of a question its passage; 0 of an example without a word."""


@dataclass(frozen=True)
class SplitFacts:
    """The examples of a split, read to their end."""

    path: str
    bad: BadRecords
    examples: Sequence[Example]

    @cached_property
    def num_empty(self) -> int:
        return sum(not example.group for example in self.examples)

    @cached_property
    def labels(self) -> Counter[str]:
        return Counter(label for example in self.examples for label in example.labels)

    @cached_property
    def words(self) -> Counter[int]:
        """Number of examples by their number of words."""
        return Counter(example.num_words for example in self.examples)

    @cached_property
    def groups(self) -> Mapping[int, tuple[str, ...]]:
        """Labels of each group's first example."""
        return {example.group: example.labels for example in reversed(self.examples) if example.group}

    @property
    def doubles(self) -> tuple[int, int]:
        """Number of examples whose text stands in the file before, and of those among them that have other labels."""
        first = {example.key: example.labels for example in reversed(self.examples) if example.group}
        others = sum(first[example.key] != example.labels for example in self.examples if example.group)
        return len(self.examples) - self.num_empty - len(first), others


def type_of(task: TaskSpec) -> AnyTaskType:
    """The type of a drafted task."""
    assert task.head is not None, "a draft's task says its head"
    return TASK_TYPES[task.head]


def read_split(task: TaskSpec, path: str) -> SplitFacts:
    """Read a labeled file as the task reads it. Raises: TaskDataError, InputError where many records are broken."""
    task_type, bad = type_of(task), BadRecords(path, "skip")
    examples = []
    for own in task_type.reader(task, None).read(path, bad):
        said = task_type.said(own).values()
        texts = tuple(text if isinstance(text, str) else " ".join(text) for text in said)
        group = text_key(task_type.split_text(own)) if all(text.strip() for text in texts) else 0
        num_words, key = sum(map(count_words, texts)), text_key("\t".join(texts))
        examples.append(Example(own, texts, task_type.label_names(own), num_words, key, group))
    refuse_broken(bad, len(examples))
    return SplitFacts(path, bad, examples)


def refuse_broken(bad: BadRecords, num_read: int) -> None:
    """Refuse a file of which many records cannot be used. Raises: InputError, with the first one's problem."""
    num_records = bad.count + num_read
    if bad.count > MAX_BAD_SHARE * num_records:
        raise InputError(
            f"{bad.path}: {bad.count:,} of {num_records:,} records cannot be used, the first at {bad.first_problem}; "
            "mend the file, or name other columns"
        )


def check_splits(task: TaskSpec, splits: Mapping[Split, SplitFacts]) -> None:
    """Check that there is enough to learn from, and that every split has known labels. Raises: InputError."""
    train, task_type = splits["train"], type_of(task)
    usable = len(train.examples) - train.num_empty
    if usable < _MIN_EXAMPLES:
        raise InputError(
            f"{train.path} has {usable} labeled examples with text; at least {_MIN_EXAMPLES} are needed to learn from "
            "some and to check on others: add more"
        )
    problem = task_type.labels_problem(task, list(train.labels))
    if problem or (problem := task_type.labels_note([example.own for example in train.examples])):
        raise InputError(f"{train.path}: {problem}")
    for split, facts in splits.items():
        unknown = sorted(facts.labels.keys() - train.labels.keys())
        if unknown and task_type.has_labels(task.objective):
            raise InputError(
                f"{facts.path} ({split}) has the label {unknown[0]!r}, which {train.path} never shows; add rows with "
                "it there, or mend it here"
            )


def validation_share(num_examples: int) -> float:
    """Share of the training examples that is kept for validation where no file is for it."""
    return 0.2 if num_examples < _FEW else round(min(0.1, _MOST_VALIDATION / num_examples), 4)


def divide(task: TaskSpec, files: Mapping[Split, SplitFacts], share: float) -> dict[Split, SplitFacts]:
    """The splits with a share of the training examples for validation, as a run divides them. Raises: InputError."""
    train = files["train"]
    is_kept = hold_out(type_of(task), [example.own for example in train.examples], share)
    if not any(is_kept):
        raise InputError(
            f"{train.path}: nothing can be kept for validation, as each label stands beside one text only; add rows, "
            "or give a second file with dev in its name"
        )
    is_trained = [not kept for kept in is_kept]
    parts: dict[Split, SplitFacts] = {
        "train": replace(train, examples=list(compress(train.examples, is_trained))),
        "validation": replace(train, examples=list(compress(train.examples, is_kept))),
    }
    return {**files, **parts}


def vocabulary_texts(examples: Iterable[Example]) -> Iterator[bytes]:
    """Yield the different texts of examples, or the first of very many, an empty line between them."""
    seen: set[int] = set()
    room = _VOCABULARY_BYTES
    for example in examples:
        for text in example.texts:
            line, key = " ".join(text.split()), text_key(text)
            if line and key not in seen:
                seen.add(key)
                document = f"{line}\n\n".encode()
                room -= len(document)
                yield document
        if room <= 0:
            return
