"""A person's own columns beside the text of a table; broken ones are named.

Alone: pytest tests/orchestrator/tasks/test_text_examples.py
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from orchestrator.errors import TaskDataError
from orchestrator.tasks.text_files import BadRecords
from orchestrator.tasks.types.classification import ClassificationExample, ClassificationTable
from orchestrator.tasks.types.regression import RegressionTable
from tests.waiting import PATIENCE_S

SIZES = ClassificationTable(("text",), "label", numerical_columns=("size",), categorical_columns=("color",))


def read(table: Any, path: Path, policy: Any = "error") -> list[Any]:
    return list(table.read(str(path), BadRecords(str(path), policy)))


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def test_own_columns_are_read_beside_the_text_and_may_be_empty(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("color,size,text,label\nred,2.5,x,yes\n,,y,no\n")
    expected = [
        ClassificationExample("0", "x", label="yes", numbers=(2.5,), categories=("red",)),
        ClassificationExample("1", "y", label="no", numbers=(None,), categories=(None,)),
    ]
    assert read(SIZES, tmp_path / "a.csv") == expected
    table = pyarrow.table({"text": ["x", "y"], "label": ["yes", "no"], "color": ["red", None], "size": [2.5, None]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert read(SIZES, tmp_path / "a.parquet") == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": "large"}, "size 'large' is not a number"),
        ({"size": 1e300}, r"size 1e\+300 is beyond 1e\+30"),
        ({"size": 10**400}, "size '1000.*' is not a number"),
        ({"size": [1]}, r"size '\[1\]' is not a number"),
        ({"color": ["red"]}, r"color \['red'\] is not one category"),
    ],
)
def test_a_broken_column_is_named_or_left_out(tmp_path: Path, change: dict[str, object], message: str) -> None:
    record = {"text": "x", "size": 1, "color": "red", "label": 1.5}
    path = write(tmp_path / "a.jsonl", record, {**record, **change})
    with pytest.raises(TaskDataError, match=f"line 2: {message}"):
        read(SIZES, path)
    regression = RegressionTable(("text",), "label", numerical_columns=("size",), categorical_columns=("color",))
    assert [(example.numbers, example.value) for example in read(regression, path, "skip")] == [((1.0,), 1.5)]


@pytest.mark.parametrize("module", ["text_examples", "types", "types.conll", "table_files"])
def test_a_module_of_tasks_can_be_the_first_that_is_imported(module: str) -> None:
    command = [sys.executable, "-c", f"import orchestrator.tasks.{module}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
