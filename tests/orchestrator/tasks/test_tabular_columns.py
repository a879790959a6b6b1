"""Numbers and categories beside a text: what is learned of them, and the vectors they become.

Alone: pytest tests/orchestrator/tasks/test_tabular_columns.py
"""

import json
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from orchestrator.errors import TaskDataError
from orchestrator.tasks.tabular_columns import NO_COLUMNS, TabularColumns
from orchestrator.tasks.types.classification import ClassificationExample


def make_examples(numbers: Sequence[float | None], categories: Sequence[str | None]) -> list[ClassificationExample]:
    return [
        ClassificationExample("0", "x", numbers=(number,), categories=(category,))
        for number, category in zip(numbers, categories, strict=True)
    ]


EXAMPLES = make_examples([1.0, 4.0, None, 10.0], ["red", None, "blue", "red"])
COLUMNS = TabularColumns.learn(("size",), ("color",), EXAMPLES)


def test_vectors_hold_distance_and_flag_of_a_number_and_one_place_of_a_category() -> None:
    assert COLUMNS.names == ("size", "color")
    scaled = StandardScaler().fit_transform(np.array([[1.0], [4.0], [10.0]])).ravel()
    expected = [
        [scaled[0], 0, 0, 0, 1],
        [scaled[1], 0, 1, 0, 0],
        [0, 1, 0, 1, 0],
        [scaled[2], 0, 0, 0, 1],
    ]
    np.testing.assert_allclose(COLUMNS.encode(EXAMPLES), expected, rtol=1e-6)
    assert COLUMNS.width == 5


def test_an_unknown_category_counts_as_missing() -> None:
    unknown, missing = COLUMNS.encode(make_examples([4.0, 4.0], ["green", None]))
    assert unknown.tolist() == missing.tolist()


def test_numbers_that_are_all_the_same_or_all_missing_count_as_they_are() -> None:
    for numbers in ([0.1] * 6, [None] * 6):
        columns = TabularColumns.learn(("size",), (), make_examples(numbers, ["red"] * 6))
        assert columns.encode(make_examples([columns.numbers[0].mean + 2.0], ["red"])).tolist() == [[2.0, 0.0]]


def test_what_was_learnt_comes_back_from_json() -> None:
    for columns in (COLUMNS, NO_COLUMNS):
        assert TabularColumns.from_dict(json.loads(json.dumps(asdict(columns)))) == columns


def test_texts_are_no_categories() -> None:
    examples = make_examples([None] * 1001, [f"note {number}" for number in range(1001)])
    with pytest.raises(TaskDataError, match=r"categorical_columns: color has 1,001 different values.*text_columns"):
        TabularColumns.learn((), ("color",), examples)
