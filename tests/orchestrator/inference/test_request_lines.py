"""Lines that a model is asked about: what each kind of task reads of them, and what its answers look like.

Alone: pytest tests/orchestrator/inference/test_request_lines.py
"""

import json
from typing import Any

import pytest

from orchestrator.errors import InputError
from orchestrator.inference.requests import make_request
from orchestrator.storage.text_lines import parse_line
from orchestrator.tasks import TabularColumns, TaskDefinition
from orchestrator.tasks.tabular_columns import NO_COLUMNS, CategoricalColumn, NumericalColumn
from orchestrator.tasks.types.classification import ClassificationExample
from orchestrator.tasks.types.multi_label import LabelsPrediction, MultiLabelExample
from orchestrator.tasks.types.multiple_choice import ChoicePrediction, MultipleChoiceExample
from orchestrator.tasks.types.regression import RegressionExample
from tests.orchestrator.tasks.definitions import define

COLUMNS = TabularColumns((NumericalColumn("size", 0.0, 1.0),), (CategoricalColumn("color", ("red",)),))


def make_task(head: Any, columns: TabularColumns = NO_COLUMNS) -> TaskDefinition:
    return define(head, ("a", "b"), columns=columns)


def read(line: str | dict[str, Any], task: TaskDefinition) -> object:
    text = line if isinstance(line, str) else json.dumps(line)
    return task.type.example_of(task, make_request(parse_line(text, 3), 3, task))


def answer(task: TaskDefinition, prediction: object) -> dict[str, Any]:
    return task.type.answer(task, prediction)


def test_each_head_reads_its_keys() -> None:
    assert read("one\ttwo", make_task("multi_label")) == MultiLabelExample("3", "one", "two")
    choices = {"id": 7, "text": "It rains.", "choices": ["She runs.", "She swims."]}
    expected = MultipleChoiceExample("7", "It rains.", ("She runs.", "She swims."))
    assert read(choices, make_task("multiple_choice")) == expected


def test_own_columns_are_read_by_their_names_and_null_is_missing() -> None:
    line = {"text": "x", "size": 2, "color": None}
    beside: dict[str, Any] = {"numbers": (2.0,), "categories": (None,)}
    assert read(line, make_task("classification", COLUMNS)) == ClassificationExample("3", "x", **beside)
    assert read(line, make_task("multi_label", COLUMNS)) == MultiLabelExample("3", "x", **beside)
    assert read(line, make_task("regression", COLUMNS)) == RegressionExample("3", "x", **beside)


@pytest.mark.parametrize(
    ("head", "columns", "line", "message"),
    [
        ("multiple_choice", NO_COLUMNS, "plain", "line 3 .*text, choices"),
        ("multiple_choice", NO_COLUMNS, {"text": "x"}, "line 3.*'choices'"),
        ("multiple_choice", NO_COLUMNS, {"text": "x", "choices": ["y"]}, "choices.* 2"),
        ("regression", COLUMNS, "plain", "line 3 .*text, text_pair, size, color"),
        ("regression", COLUMNS, {"text": "x", "size": 1}, "line 3.*'color'"),
        ("regression", COLUMNS, {"text": "x", "size": "big", "color": "red"}, "line 3: size 'big'"),
    ],
)
def test_a_line_that_lacks_something_is_named(head: str, columns: TabularColumns, line: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(line, make_task(head, columns))


def test_answers_are_json_with_a_probability_for_each_label_or_choice() -> None:
    labels = answer(make_task("multi_label"), LabelsPrediction(("b",), (0.25, 0.75)))
    assert labels == {"labels": ["b"], "probabilities": {"a": 0.25, "b": 0.75}}
    choice = answer(make_task("multiple_choice"), ChoicePrediction(2, (0.2, 0.2, 0.6)))
    assert json.loads(json.dumps(choice)) == {"choice": 2, "probabilities": [0.2, 0.2, 0.6]}
