"""Labels and scores as people write them. Alone: pytest tests/orchestrator/tasks/test_cell_values.py"""

import math
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import TaskDataError
from orchestrator.tasks.text_files import BadRecords
from orchestrator.tasks.types.classification import ClassificationTable
from orchestrator.tasks.types.multi_label import MultiLabelTable
from orchestrator.tasks.types.regression import RegressionTable
from tests.orchestrator.tasks.definitions import read, write_records

CLASSES = ClassificationTable(("text",), "label")
SCORES = RegressionTable(("text",), "label")


def known(*labels: str) -> ClassificationTable:
    return ClassificationTable(("text",), "label", {label: label for label in labels})


def rows_of(*labels: Any) -> list[dict[str, Any]]:
    return [{"text": "x", "label": label} for label in labels]


def labels_of(folder: Path, labels: list[Any], table: Any = CLASSES) -> tuple[list[Any], BadRecords]:
    """Examples that a table of JSON gives for some labels."""
    examples, bad = read(table, write_records(folder / "a.jsonl", *rows_of(*labels)))
    return [getattr(example, "label", None) or getattr(example, "value", None) for example in examples], bad


SPELLINGS: dict[str, list[Any]] = {
    "1": [1, 1.0, "1", "1.00", " 1 "],
    "true": [True, "True", "TRUE", "true"],
    "café": ["café", "cafe\u0301", "\ufeffcaf\u200bé", " café"],
    "so so": ["so so", "so\u00a0so", "so  so\n"],
}


@pytest.mark.parametrize("label", SPELLINGS)
def test_one_thing_in_several_spellings_is_one_class(tmp_path: Path, label: str) -> None:
    spellings = SPELLINGS[label]
    found, bad = labels_of(tmp_path, spellings)
    assert found == [label] * len(spellings)
    assert sum(bad.remarks.values()) == sum(isinstance(s, float) or s not in (label, 1, True) for s in spellings)
    assert labels_of(tmp_path, spellings, known(label, "other"))[0] == found


def test_a_name_that_the_task_lists_is_a_class_as_it_stands(tmp_path: Path) -> None:
    listed = known("1.0", "True", "nan", "-1")
    found, _ = labels_of(tmp_path, ["1.0", 1, "True", True, "nan", -1], listed)
    assert found == ["1.0", "1.0", "True", "True", "nan", "-1"]
    words = ["None", "null", "NA"]  # of other tools for nothing
    for table in (CLASSES, known(*words)):
        found, bad = labels_of(tmp_path, [*words, None], table)
        assert (found, bad.num_unlabeled) == (words, 1)


@pytest.mark.parametrize(
    "table", [CLASSES, SCORES, MultiLabelTable(("text",), "label")], ids=["class", "score", "list"]
)
@pytest.mark.parametrize("value", [None, math.nan, math.inf, "NaN", "\\N", "inf", "-Infinity"])
def test_a_row_without_a_label_is_left_out_and_counted(tmp_path: Path, table: Any, value: object) -> None:
    rows = [{"text": "x", "label": 2}, {"text": "y", "label": value}, {"text": "z"}, {"text": "x", "label": 3}]
    examples, bad = read(table, write_records(tmp_path / "a.jsonl", *rows))
    assert [example.id for example in examples] == ["0", "3"]
    assert (bad.num_unlabeled, bad.count, sum(bad.remarks.values())) == (2, 0, 2)


def test_a_key_that_no_row_has_is_a_column_that_is_not_there(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.jsonl", {"text": "x", "labels": 1})
    with pytest.raises(TaskDataError, match="'label', it has 'text', 'labels'"):
        read(CLASSES, path)


MARKS: list[tuple[Any, list[Any], int]] = [
    # table, labels, how many of them are none
    *((CLASSES, [0, 1, 2, mark], 1) for mark in (-1, "-1.0")),
    *((CLASSES, labels, 0) for labels in ([0, 1, -1], [1, 2, 3, -1], ["+", "0", "-"], [0, 100, -100])),
    (CLASSES, [0, 1, -100], 1),
    *((known("0", "1"), [0, 1, -1], 1), (known("0", "1", "-1"), [0, 1, -1], 0), (CLASSES, ["yes", "no", "-"], 1)),
    *((SCORES, [0.5, -1], 0), (SCORES, [0.5, "inf"], 1), (SCORES, [-1.0, "-1"], 2)),
]


@pytest.mark.parametrize(("table", "labels", "num_unlabeled"), MARKS)
def test_the_mark_of_no_label_is_told_from_a_class_by_the_others(
    tmp_path: Path, table: Any, labels: list[Any], num_unlabeled: int
) -> None:
    found, bad = labels_of(tmp_path, labels, table)
    assert (len(found), bad.num_unlabeled) == (len(labels) - num_unlabeled, num_unlabeled)
    may_mean_none = table is CLASSES and labels == [0, 1, -1]
    assert any("task.labels" in remark for remark in bad.remarks) == may_mean_none


@pytest.mark.parametrize(("value", "named"), [({"name": "a"}, "object.*name"), ([4], "list.*multi_label")])
def test_what_is_no_class_is_named(tmp_path: Path, value: object, named: str) -> None:
    with pytest.raises(TaskDataError, match=f"line 1: label .*{named}"):
        labels_of(tmp_path, [value])


def test_numbers_are_the_names_that_a_parquet_file_has_for_them(tmp_path: Path) -> None:
    names = {"names": ["bad", "good"], "_type": "ClassLabel"}
    path = write_records(tmp_path / "a.parquet", *rows_of(1, 0, -1), features={"label": names})
    for table in (CLASSES, known("good", "bad")):
        examples, bad = read(table, path)
        assert ([example.label for example in examples], bad.num_unlabeled) == (["good", "bad"], 1)
    assert [example.label for example in read(known("0", "1"), path)[0]] == ["1", "0"]
    path = write_records(tmp_path / "a.parquet", *rows_of(0, 1, 2, -1), features={"label": {"names": ["-1", "0", "1"]}})
    for table in (CLASSES, known("-1", "0", "1")):
        examples, bad = read(table, path)
        assert ([example.label for example in examples], bad.num_unlabeled) == (["-1", "0", "1"], 1)
    lists = {"label": {"feature": names, "_type": "List"}}
    path = write_records(tmp_path / "a.parquet", *rows_of([1, 0], []), features=lists)
    assert [e.label for e in read(MultiLabelTable(("text",), "label"), path)[0]] == [("good", "bad"), ()]


def test_decimal_commas_are_read_where_the_whole_column_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text;label\nx;3,5\ny;1,250\nz;4\n")
    examples, bad = read(SCORES, path)
    assert [example.label for example in examples] == [3.5, 1.25, 4.0]
    assert list(bad.remarks.values()) == [2]
    path.write_text("text;label\nx;3,5\ny;1.250\n")
    with pytest.raises(TaskDataError, match=r"line 2: label '3,5' .*decimal comma"):
        read(SCORES, path)


def test_a_list_as_numpy_prints_it_is_named(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.jsonl", {"text": "x", "label": "['x' 'y']"})
    with pytest.raises(TaskDataError, match="line 1: label begins as a list"):
        read(MultiLabelTable(("text",), "label"), path)


COLUMNS = MultiLabelTable(("text",), "label", label_columns=("rude", "loud"))


def test_a_column_for_each_label_says_whether_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,rude,loud\na,1,0\nb,0.0,1.0\nc,True,TRUE\nd,0,false\ne,-1,-1\nf,1,\n")
    examples, bad = read(COLUMNS, path)
    assert [example.label for example in examples] == [("rude",), ("loud",), ("rude", "loud"), ()]
    assert bad.num_unlabeled == 2
    path.write_text("text,rude,loud\na,yes,no\nb,N,Y\n")
    assert [example.label for example in read(COLUMNS, path)[0]] == [("rude",), ("loud",)]
    path.write_text("text,rude,loud\na,1,0\nb,0,0.17\n")
    with pytest.raises(TaskDataError, match=r"line 3: rude or loud '0\.17'"):
        read(COLUMNS, path)


def test_numbers_among_texts_are_texts(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.jsonl", {"text": 12345, "label": "a"}, {"text": "x", "label": "b"})
    examples, bad = read(CLASSES, path)
    assert [example.text for example in examples] == ["12345", "x"]
    assert list(bad.remarks.values()) == [1]


LISTS = MultiLabelTable(("text",), "label")


@pytest.mark.parametrize("cell", ["{'name': 'x'}", '{"POS": 1}'])
def test_an_object_in_a_cell_is_no_class_and_an_interval_is_one(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"text|label\nx|{cell}\n")
    with pytest.raises(TaskDataError, match=r"line 2: label .*object"):
        read(CLASSES, path)
    path.write_text("text|label\nx|(25, 32)\n")
    assert [example.label for example in read(CLASSES, path)[0]] == ["(25, 32)"]


@pytest.mark.parametrize(("one", "zero"), [(1, 0), (1.0, 0.0), (True, False)])
def test_lists_of_0_and_1_have_a_label_for_each_place(tmp_path: Path, one: object, zero: object) -> None:
    flags = [[zero, zero, one], [one, one, zero], [zero, zero, zero]]
    examples, bad = read(LISTS, write_records(tmp_path / "a.jsonl", *rows_of(*flags)))
    assert [example.label for example in examples] == [("2",), ("0", "1"), ()]
    assert list(bad.remarks.values()) == [3]
    named = MultiLabelTable(("text",), "label", labels=("x", "y", "z"))
    examples, _ = read(named, write_records(tmp_path / "a.jsonl", *rows_of(*flags)))
    assert [example.label for example in examples] == [("z",), ("x", "y"), ()]
    numbers = write_records(tmp_path / "a.jsonl", *rows_of([0, 1], [1], [0, 2]))
    assert [example.label for example in read(LISTS, numbers)[0]] == [("0", "1"), ("1",), ("0", "2")]


@pytest.mark.parametrize(
    ("table", "labels"),
    [(LISTS, [[0], [1, 2], [-1], [-1, 2]]), (MultiLabelTable(("text",), "label", labels=("0", "1")), [[1], [-1]])],
)
def test_minus_one_in_lists_is_no_label(tmp_path: Path, table: Any, labels: list[Any]) -> None:
    examples, bad = read(table, write_records(tmp_path / "a.jsonl", *rows_of(*labels)))
    assert (len(examples), bad.num_unlabeled) == (len(labels) - 1, 1)
    assert all("-1" not in example.label for example in examples)


NUMBERS = dict.fromkeys(("1'250.0", "2 500", "12,50 €", "%20", "1.250.000"), "write it as")
UNITS = {"8/10": "'/10' behind the number", "45k": "'k' behind the number"}


@pytest.mark.parametrize(("value", "named"), [*NUMBERS.items(), *UNITS.items()])
def test_signs_around_numbers_are_named_and_digits_of_any_script_read(tmp_path: Path, value: str, named: str) -> None:
    with pytest.raises(TaskDataError, match=f"line 1: .*{named}"):
        labels_of(tmp_path, [value], SCORES)
    assert labels_of(tmp_path, ["\uff11\uff0e\uff15", "\u0661\u066b\u0665", "\u22121"], SCORES)[0] == [1.5, 1.5, -1.0]


def test_points_between_thousands_are_named(tmp_path: Path) -> None:
    with pytest.raises(TaskDataError, match=r"line 1: .*'1.250' .*thousands"):
        labels_of(tmp_path, ["1.250", "900"], SCORES)
    for labels, num_told in ((["1.250", "13.000"], 2), (["1.250", "2.5"], 0), (["0.125", "1.250"], 0), ([1.25], 0)):
        found, bad = labels_of(tmp_path, labels, SCORES)
        assert (found, bad.remarks.total()) == ([float(label) for label in labels], num_told)


def test_commas_of_classes_are_points_and_those_of_lists_are_not(tmp_path: Path) -> None:
    assert labels_of(tmp_path, ["0,0", "1,0", "1"])[0] == ["0", "1", "1"]
    assert labels_of(tmp_path, ["3", "1,4", "5,12"])[0] == ["3", "1,4", "5,12"]


@pytest.mark.parametrize(("label", "like"), [("Spam", "spam"), ("1", "true"), ("саt", "cat"), ("cat\u200d", "cat")])
def test_an_unknown_label_is_named_beside_the_one_that_it_looks_like(tmp_path: Path, label: str, like: str) -> None:
    for table in (known(like, "other"), MultiLabelTable(("text",), "label", labels=(like, "other"))):
        with pytest.raises(TaskDataError, match=f"none of the labels.*'{like}' is another spelling"):
            labels_of(tmp_path, [label], table)
