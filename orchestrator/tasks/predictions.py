"""What a model says about one example of each kind of task."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClassPrediction:
    """The likeliest class, and every class's probability in the order of the task's labels."""

    label: str
    probabilities: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ValuePrediction:
    """A number."""

    value: float


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


Prediction = ClassPrediction | ValuePrediction | TagsPrediction | AnswerPrediction
