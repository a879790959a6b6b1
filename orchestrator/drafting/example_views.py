"""Examples of every kind of task as a draft looks at them: words, labels, and what makes two of them the same."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from orchestrator.drafting.vocabulary import count_words
from orchestrator.tasks.leaks import plain_text
from orchestrator.tasks.text_examples import TextExample
from orchestrator.tasks.types.base import AnyTaskType
from orchestrator.tasks.types.classification import ClassificationExample
from orchestrator.tasks.types.conll import NerExample
from orchestrator.tasks.types.multi_label import MultiLabelExample
from orchestrator.tasks.types.squad import QaExample


@dataclass(frozen=True, slots=True)
class ExampleView:
    """One labeled example."""

    row: int
    """Number of the record in its file; -1 where the layout has no rows."""
    texts: tuple[str, ...]
    labels: tuple[str, ...]
    """Labels to count; empty where the label is a number, or no label is there."""
    group: str
    """Text that must not be in two splits: of a question its passage."""

    @property
    def key(self) -> int:
        """Number that two examples with the same text share, whatever their white space and capitals."""
        return text_key("\t".join(self.texts))

    @property
    def group_key(self) -> int:
        """Number that all examples share which belong into one split."""
        return text_key(self.group)

    @property
    def num_words(self) -> int:
        """Number of words, as `count_words` counts them."""
        return sum(map(count_words, self.texts))

    @property
    def is_empty(self) -> bool:
        """Whether a text has no word."""
        return not all(text.strip() for text in self.texts)


def text_key(text: str) -> int:
    """A number for a text that its copies share, whatever their white space and capitals."""
    return int.from_bytes(hashlib.blake2b(plain_text(text).encode(errors="replace"), digest_size=8).digest())


def view_of(example: Any, task_type: AnyTaskType) -> ExampleView:
    """An example as a draft looks at it. Raises: TypeError for a type of example that no draft is made for."""
    return _view(example, task_type.split_text(example))


@singledispatch
def _view(example: Any, group: str) -> ExampleView:
    raise TypeError(f"no view of {type(example).__name__}")


@_view.register
def _(example: TextExample, group: str) -> ExampleView:
    texts = (example.text,) if example.text_pair is None else (example.text, example.text_pair)
    labels: tuple[str, ...] = ()
    if isinstance(example, ClassificationExample) and example.label is not None:
        labels = (example.label,)
    elif isinstance(example, MultiLabelExample):
        labels = example.labels or ()
    return ExampleView(int(example.id), texts, labels, group)


@_view.register
def _(example: NerExample, group: str) -> ExampleView:
    entities = tuple(tag[2:] for tag in example.tags if tag.startswith("B-"))
    return ExampleView(int(example.id), (" ".join(example.words),), entities, group)


@_view.register
def _(example: QaExample, group: str) -> ExampleView:
    answered = _ANSWERED[bool(example.answers)]
    return ExampleView(-1, (example.question, example.context), (answered,), group)


_ANSWERED: Mapping[bool, str] = {True: "answered", False: "without an answer"}
