"""One labeled example of each kind of task: frozen, readable, in the words of the data set.

Labels may be left out, for texts that a model is asked about.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass


@dataclass(frozen=True, slots=True)
class TextExample:
    """A text, or a pair of texts, and what a person's own columns say beside it."""

    id: str
    text: str
    text_pair: str | None = None
    _: KW_ONLY
    numbers: tuple[float | None, ...] = ()
    """One per number column; None where it is missing."""
    categories: tuple[str | None, ...] = ()
    """One per category column; None where it is missing."""


@dataclass(frozen=True, slots=True)
class ClassificationExample(TextExample):
    """Of one class."""

    label: str | None = None
    """The class's name."""


@dataclass(frozen=True, slots=True)
class MultiLabelExample(TextExample):
    """With any number of labels, or none."""

    labels: tuple[str, ...] | None = None
    """In the order of the file; None where they are not known."""


@dataclass(frozen=True, slots=True)
class RegressionExample(TextExample):
    """With a number."""

    value: float | None = None


@dataclass(frozen=True, slots=True)
class MatchExample(TextExample):
    """Two texts that belong together, and to no other of their file."""

    @property
    def gains(self) -> Mapping[str, float]:
        """The pair's own second text is the one to find."""
        return {self.id: 1.0}


@dataclass(frozen=True, slots=True)
class QueryExample:
    """A text and how much finding each relevant document is worth."""

    id: str
    text: str
    gains: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class MultipleChoiceExample:
    """A text and two or more ways to go on, of which one is right."""

    id: str
    text: str
    choices: tuple[str, ...]
    label: int | None = None
    """The place of the right choice, from 0."""


@dataclass(frozen=True, slots=True)
class NerExample:
    """A sentence as words, and a BIO tag for each."""

    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...] = ()
    document: int | None = None
    """Which of its file's documents it belongs to; None where the file does not say."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A stretch of a passage: its text and the character it starts at."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class QaExample:
    """A question about a passage; no answers where the passage does not hold one."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()


Example = (
    ClassificationExample
    | MultiLabelExample
    | RegressionExample
    | MatchExample
    | QueryExample
    | MultipleChoiceExample
    | NerExample
    | QaExample
)
