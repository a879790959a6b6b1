"""How alike two models' predictions are, for every task type: the share of equal decisions, or a correlation.

Alone: pytest tests/orchestrator/tasks/types/test_agreement.py
"""

from typing import Any

import pytest

from orchestrator.specs.task import Head
from orchestrator.tasks import TASK_TYPES
from orchestrator.tasks.types.classification import ClassPrediction
from orchestrator.tasks.types.multi_label import LabelsPrediction
from orchestrator.tasks.types.multiple_choice import ChoicePrediction
from orchestrator.tasks.types.ner import TagsPrediction
from orchestrator.tasks.types.qa import AnswerPrediction
from orchestrator.tasks.types.regression import ValuePrediction
from orchestrator.tasks.types.sentence_selection import SentencesPrediction

SIDES: dict[Head, tuple[list[Any], list[Any], float]] = {
    "classification": (
        [ClassPrediction("a", (0.9, 0.1)), ClassPrediction("b"), ClassPrediction("a"), ClassPrediction("a")],
        [ClassPrediction("a", (0.6, 0.4)), ClassPrediction("b"), ClassPrediction("a"), ClassPrediction("b")],
        0.75,
    ),
    "multi_label": (
        [LabelsPrediction(("a", "b"), (0.9, 0.8)), LabelsPrediction((), (0.1, 0.2))],
        [LabelsPrediction(("a", "b"), (0.6, 0.6)), LabelsPrediction(("a",), (0.6, 0.2))],
        0.5,
    ),
    "multiple_choice": (
        [ChoicePrediction(1), ChoicePrediction(0)],
        [ChoicePrediction(1, (0.4, 0.6)), ChoicePrediction(2)],
        0.5,
    ),
    "ner": (
        [TagsPrediction(("O", "B-x", "I-x")), TagsPrediction(("O",))],
        [TagsPrediction(("O", "B-x", "O")), TagsPrediction(("B-x",))],
        0.5,
    ),
    "qa": ([AnswerPrediction("x"), AnswerPrediction("")], [AnswerPrediction("x"), AnswerPrediction("y")], 0.5),
    "sentence_selection": (
        [SentencesPrediction((0, 2), (0.9, 0.1, 0.6)), SentencesPrediction((), (0.1,))],
        [SentencesPrediction((0,), (0.6, 0.1, 0.4)), SentencesPrediction((), (0.4,))],
        0.75,
    ),
    "regression": ([ValuePrediction(v) for v in (1.0, 2.0, 3.0)], [ValuePrediction(v) for v in (0.0, 5.0, 10.0)], 1.0),
}


@pytest.mark.parametrize("head", SIDES)
def test_agreement_is_the_share_of_equal_predictions(head: Head) -> None:
    student, teacher, expected = SIDES[head]
    agreement = TASK_TYPES[head].agreement
    assert agreement(student, teacher) == agreement(teacher, student) == pytest.approx(expected)
    assert agreement(student, student) == pytest.approx(1.0)
