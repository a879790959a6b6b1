"""What a model says about one example of each kind of task."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class ClassPrediction:
    """The likeliest class, and every class's probability in the order of the task's labels."""

    label: str
    probabilities: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelsPrediction:
    """The labels that are likelier than not, and every label's probability; both in the order of the task's labels."""

    labels: tuple[str, ...]
    probabilities: tuple[float, ...]

    @classmethod
    def from_probabilities(cls, labels: Sequence[str], probabilities: Sequence[float]) -> Self:
        """With the labels whose probability is above one half."""
        likely = (label for label, probability in zip(labels, probabilities, strict=True) if probability > 0.5)
        return cls(tuple(likely), tuple(probabilities))


@dataclass(frozen=True, slots=True)
class ChoicePrediction:
    """The place of the likeliest choice, from 0, and every choice's probability."""

    choice: int
    probabilities: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ValuePrediction:
    """A number."""

    value: float


@dataclass(frozen=True, slots=True)
class RankingPrediction:
    """Documents that answer a query, best first, and their scores."""

    documents: tuple[str, ...]
    scores: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class TagsPrediction:
    """A BIO tag for each word."""

    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnswerCandidate:
    """A stretch of the passage, by characters, and the sum of its start and end logits."""

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True, slots=True)
class AnswerPrediction:
    """The answer, empty for none, and what it was chosen from."""

    text: str
    candidates: tuple[AnswerCandidate, ...] = ()
    """The best stretches, best first."""
    null_margin: float = 0.0
    """Score of "no answer" minus that of the best stretch; no answer is said where it exceeds the threshold."""


Prediction = (
    ClassPrediction
    | LabelsPrediction
    | ChoicePrediction
    | ValuePrediction
    | RankingPrediction
    | TagsPrediction
    | AnswerPrediction
)
