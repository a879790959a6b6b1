"""Readers of tables for several labels, for choices, and for a person's own columns; broken records are named.

Alone: pytest tests/orchestrator/tasks/test_labeled_tables.py
"""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import TaskDataError
from orchestrator.tasks.text_files import BadRecords
from orchestrator.tasks.types.classification import ClassificationExample, ClassificationTable
from orchestrator.tasks.types.multi_label import MultiLabelExample, MultiLabelTable
from orchestrator.tasks.types.multiple_choice import MultipleChoiceExample, MultipleChoiceTable
from orchestrator.tasks.types.regression import RegressionTable

NAMES = ["loud", "very loud", "3", "a;b", "zäh"]
TOPICS = MultiLabelTable(("text",), "topics", labels=tuple(NAMES))
ENDINGS = MultipleChoiceTable(("first", "begins"), ("left", "right"), "label")
SIZES = ClassificationTable(("text",), "label", numerical_columns=("size",), categorical_columns=("colour",))


def read(table: Any, path: Path, policy: Any = "error") -> list[Any]:
    return list(table.read(str(path), BadRecords(str(path), policy)))


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@given(rows=st.lists(st.lists(st.sampled_from(NAMES), unique=True), min_size=1, max_size=6))
@settings(max_examples=25, deadline=None)
def test_labels_are_the_same_in_every_form(rows: list[list[str]], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("labels")
    expected = [MultiLabelExample(str(i), "x", labels=tuple(row)) for i, row in enumerate(rows)]
    forms = {"lists.jsonl": rows, "names.jsonl": [" | ".join(row) for row in rows], "json.jsonl": map(json.dumps, rows)}
    for name, values in forms.items():
        path = write(folder / name, *({"text": "x", "topics": value} for value in values))
        assert read(TOPICS, path) == expected, name
    (folder / "names.tsv").write_text("text\ttopics\n" + "".join(f"x\t{'|'.join(row)}\n" for row in rows))
    assert read(TOPICS, folder / "names.tsv") == expected
    pyarrow.parquet.write_table(pyarrow.table({"text": ["x"] * len(rows), "topics": rows}), folder / "a.parquet")
    assert read(TOPICS, folder / "a.parquet") == expected


def test_the_separator_is_ones_own_and_a_label_may_be_a_number(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"text": "x", "topics": "a|b;c"}, {"text": "y", "topics": 7})
    table = MultiLabelTable(("text",), "topics", separator=";")
    assert [example.labels for example in read(table, path)] == [("a|b", "c"), ("7",)]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "topics is missing; an empty text or list stands for an example without labels"),
        ("loud||3", r"topics \['loud', '', '3'\] holds something that is no label; names stand apart by '|'"),
        (["loud", ["3"]], "holds something that is no label"),
        ('["loud"', "topics begins as a JSON list and is none: Expecting"),
        ("loud|quiet", "topics has 'quiet', which is none of the labels loud, very loud, 3"),
    ],
)
def test_broken_labels_are_named_or_left_out(tmp_path: Path, value: object, message: str) -> None:
    path = write(tmp_path / "a.jsonl", {"text": "x", "topics": "3"}, {"text": "y", "topics": value})
    with pytest.raises(TaskDataError, match=f"line 2: .*{message}"):
        read(TOPICS, path)
    assert [example.labels for example in read(TOPICS, path, "skip")] == [("3",)]


@pytest.mark.parametrize("label", [1, "1", "right"])
def test_the_second_text_begins_every_choice_and_the_label_is_a_place_or_a_name(tmp_path: Path, label: object) -> None:
    record = {"first": "It rains.", "begins": "She", "left": "swims.", "right": "runs.", "label": label}
    (example,) = read(ENDINGS, write(tmp_path / "a.jsonl", record))
    assert example == MultipleChoiceExample("0", "It rains.", ("She swims.", "She runs."), 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": 2}, "label 2 is neither one of left, right nor a number from 0 to 1"),
        ({"label": None}, "label None is neither"),
        ({"right": None}, "right holds no text"),
        ({"begins": 5}, "begins holds no text"),
    ],
)
def test_a_broken_choice_is_named_or_left_out(tmp_path: Path, change: dict[str, object], message: str) -> None:
    record = {"first": "a", "begins": "b", "left": "c", "right": "d", "label": 0}
    path = write(tmp_path / "a.jsonl", record, {**record, **change})
    with pytest.raises(TaskDataError, match=f"line 2: {message}"):
        read(ENDINGS, path)
    assert len(read(ENDINGS, path, "skip")) == 1


def test_own_columns_are_read_beside_the_text_and_may_be_empty(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("colour,size,text,label\nred,2.5,x,yes\n,,y,no\n")
    expected = [
        ClassificationExample("0", "x", label="yes", numbers=(2.5,), categories=("red",)),
        ClassificationExample("1", "y", label="no", numbers=(None,), categories=(None,)),
    ]
    assert read(SIZES, tmp_path / "a.csv") == expected
    table = pyarrow.table({"text": ["x", "y"], "label": ["yes", "no"], "colour": ["red", None], "size": [2.5, None]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert read(SIZES, tmp_path / "a.parquet") == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": "large"}, "size 'large' is not a number"),
        ({"size": 1e300}, r"size 1e\+300 is beyond 1e\+30"),
        ({"size": 10**400}, "size '1000.*' is not a number"),
        ({"size": [1]}, r"size '\[1\]' is not a number"),
        ({"colour": ["red"]}, r"colour \['red'\] is not one category"),
    ],
)
def test_a_broken_column_is_named_or_left_out(tmp_path: Path, change: dict[str, object], message: str) -> None:
    record = {"text": "x", "size": 1, "colour": "red", "label": 1.5}
    path = write(tmp_path / "a.jsonl", record, {**record, **change})
    with pytest.raises(TaskDataError, match=f"line 2: {message}"):
        read(SIZES, path)
    regression = RegressionTable(("text",), "label", numerical_columns=("size",), categorical_columns=("colour",))
    assert [(example.numbers, example.value) for example in read(regression, path, "skip")] == [((1.0,), 1.5)]
