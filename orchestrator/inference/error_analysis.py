"""Analysis of a model's errors on a split: scores of each class, what is taken for what, and the worst mistakes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.results import EvaluationResult, Split
from orchestrator.tasks import Task


@dataclass(frozen=True)
class ErrorAnalysis:
    """A model's scores on a split, taken apart."""

    result: EvaluationResult
    tables: Mapping[str, Sequence[Mapping[str, Any]]]
    """Rows by what they are about: `classes`, `confusions`; which there are depends on the task's type."""
    mistakes: Sequence[Mapping[str, Any]]
    """The worst mistakes, worst first: what the example says, `prediction`, `gold` and `wrongness`."""
    num_mistakes: int
    """Number of all mistakes."""


def analyze_errors(
    result: EvaluationResult, task: Task, split: Split, predictions: Sequence[Any], num_mistakes: int
) -> ErrorAnalysis:
    """Take the predictions for a split apart; right ones are no mistakes, however unsure the model was."""
    examples = task.examples(split)
    scored = [task.type.wrongness(task, *pair) for pair in zip(examples, predictions, strict=True)]
    worst = sorted((number for number, value in enumerate(scored) if value > 0), key=lambda n: -scored[n])
    mistakes = [
        {
            "id": examples[number].id,
            **task.type.said(examples[number]),
            **{key: value for key, value in row.items() if key in ("prediction", "gold")},
            "wrongness": scored[number],
        }
        for number in worst[:num_mistakes]
        for row in [task.type.row(task, examples[number], predictions[number])]
    ]
    return ErrorAnalysis(result, task.type.breakdown(task, examples, predictions), mistakes, len(worst))
