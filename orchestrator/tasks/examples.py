"""One labelled example of each kind of task: frozen, readable, in the words of the data set.

Labels may be left out, for texts that a model is asked about.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClassificationExample:
    """A text, or a pair of texts, of one class."""

    id: str
    text: str
    text_pair: str | None = None
    label: str | None = None
    """The class's name."""


@dataclass(frozen=True, slots=True)
class RegressionExample:
    """A text, or a pair of texts, with a number."""

    id: str
    text: str
    text_pair: str | None = None
    value: float | None = None


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


Example = ClassificationExample | RegressionExample | NerExample | QaExample
