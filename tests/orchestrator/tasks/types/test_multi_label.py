"""Multi-label classification: lists of labels in every form, labels from logits.

Alone: pytest tests/orchestrator/tasks/types/test_multi_label.py
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.errors import DataError
from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import TaskDataError
from orchestrator.tasks import (
    TaskDefinition,
    decode,
)
from orchestrator.tasks.text_files import BadRecords
from orchestrator.tasks.types.multi_label import LabelsPrediction, MultiLabelExample, MultiLabelTable
from tests.orchestrator.tasks.definitions import define, features_of

NAMES = ["loud", "very loud", "3", "a;b", "zäh"]


TOPICS = MultiLabelTable(("text",), "topics", labels=tuple(NAMES))


def read(table: Any, path: Path, policy: Any = "error") -> list[Any]:
    return list(table.read(str(path), BadRecords(str(path), policy)))


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def make_task(head: Any, *labels: str) -> TaskDefinition:
    return define(head, labels)


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


def test_labels_are_those_above_one_half(tokenizer: Tokenizer) -> None:
    task = make_task("multi_label", "a", "b", "c")
    examples = [MultiLabelExample(str(i), "the house", labels=labels) for i, labels in enumerate([("c", "a"), ()])]
    features = features_of(task.head, task.labels, examples, tokenizer, max_seq_length=8)
    assert features.head_arrays.labels.tolist() == [[1, 0, 1], [0, 0, 0]]
    logits = np.array([[np.log(3.0), 0.0, 900.0], [-900.0, -1.0, -2.0]], np.float32)
    first, second = decode(task, features, examples, logits)
    assert first == LabelsPrediction(("a", "c"), (pytest.approx(0.75), 0.5, 1.0))
    assert (second.labels, second.probabilities[0]) == ((), 0.0)  # type: ignore[union-attr]
    with pytest.raises(DataError, match=r"logits have the shape \(2, 2\); task mine has 3 classes"):
        decode(task, features, examples, logits[:, :2])
