"""Tables of examples: each kind of file gives the same examples, each broken record is named or counted.

Alone: pytest tests/orchestrator/tasks/test_table_files.py
"""

import json
from datetime import date
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from orchestrator.errors import TaskDataError
from orchestrator.tasks.table_files import column_names, has_columns, read_rows
from orchestrator.tasks.text_files import BadRecords
from orchestrator.tasks.types.classification import ClassificationExample, ClassificationTable
from orchestrator.tasks.types.conll import NerExample, NerTable
from orchestrator.tasks.types.regression import RegressionExample, RegressionTable

ROWS = [('He said "no"', "yes, or\nno", 1), ("ünder", "b", 0)]
PAIRS = ClassificationTable(("first", "second"), "label", classes={"0": "off", "1": "on"})
EXPECTED = [
    ClassificationExample("0", 'He said "no"', "yes, or\nno", "on"),
    ClassificationExample("1", "ünder", "b", "off"),
]


def read(table, path: Path, policy: str = "error") -> tuple[list, BadRecords]:
    bad = BadRecords(str(path), policy)
    return list(table.read(str(path), bad)), bad


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="")
    return path


def test_csv_is_quoted(tmp_path: Path) -> None:
    text = 'label,first,second\r\n1,"He said ""no""","yes, or\nno"\r\n\r\n0,ünder,b\r\n'
    assert read(PAIRS, write(tmp_path / "a.csv", text))[0] == EXPECTED


def test_jsonl_and_parquet_hold_typed_values(tmp_path: Path) -> None:
    records = [{"first": a, "second": b, "label": label, "more": None} for a, b, label in ROWS]
    jsonl = write(tmp_path / "a.jsonl", "".join(json.dumps(record) + "\n" for record in records) + "\n")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "a.parquet")
    assert read(PAIRS, jsonl)[0] == EXPECTED
    assert read(PAIRS, tmp_path / "a.parquet")[0] == EXPECTED


def test_tsv_has_no_quoting(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", 'text\tlabel\n"half\tyes\n\nwhole"\tno\n')
    examples, _ = read(ClassificationTable(("text",), "label"), path)
    assert [(e.text, e.text_pair, e.label) for e in examples] == [('"half', None, "yes"), ('whole"', None, "no")]


def test_columns_of_a_headerless_file_go_by_number(tmp_path: Path) -> None:
    table = ClassificationTable(("3",), "1", {"0": "bad", "1": "good"}, header=False)
    path = write(tmp_path / "a.tsv", "gj04\t1\t\tWe go.\ngj04\t0\t*\tGo we.\n")
    assert [(e.text, e.label) for e in read(table, path)[0]] == [("We go.", "good"), ("Go we.", "bad")]


def test_regression_reads_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "a\tb\tscore\nx\ty\t2.5\n")
    assert read(RegressionTable(("a", "b"), "score"), path)[0] == [RegressionExample("0", "x", "y", 2.5)]


BROKEN = {
    "a.tsv": ("first\tsecond\tlabel\nx\ty\t0\nx\t1\nx\ty\t1\n", "line 3: 2 fields where the first line has 3"),
    "label.tsv": ("first\tsecond\tlabel\nx\ty\t0\nx\ty\tmaybe\nx\ty\t1\n", "line 3: label 'maybe' is none of .* 0, 1"),
    "empty.tsv": ("first\tsecond\tlabel\nx\ty\t0\nx\ty\t\nx\ty\t1\n", "line 3: label is empty"),
    "a.csv": ('first,second,label\nx,y,0\n"x"y,y,1\nx,y,1\n', "line 3: not CSV"),
    "a.jsonl": (
        '{"first": "x", "second": "y", "label": 0}\n{"first": \n{"first": "x", "second": "y", "label": 1}\n',
        "line 2: not JSON",
    ),
    "key.jsonl": (
        '{"first": "x", "second": "y", "label": 0}\n{"first": "x"}\n{"first": "x", "second": "y", "label": 1}\n',
        "line 2: no key 'second'",
    ),
    "type.jsonl": (
        '{"first": "x", "second": "y", "label": 0}\n{"first": 3, "second": "y", "label": 0}\n'
        '{"first": "x", "second": "y", "label": 1}\n',
        "line 2: first holds no text",
    ),
    "half.jsonl": (
        '{"first": "x", "second": "y", "label": 0}\n{"first": "\\ud83d", "second": "y", "label": 0}\n'
        '{"first": "\\ud83d\\ude00", "second": "y", "label": 1}\n',
        "line 2: has half a surrogate pair",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_record_is_named_with_its_line_or_counted(tmp_path: Path, name: str) -> None:
    text, message = BROKEN[name]
    path = write(tmp_path / name, text)
    with pytest.raises(TaskDataError, match=f"{name}, {message}.*on_bad_record: skip"):
        read(PAIRS, path)
    examples, bad = read(PAIRS, path, "skip")
    assert [example.label for example in examples] == ["off", "on"]
    assert bad.count == 1


@pytest.mark.parametrize("policy", ["error", "skip"])
def test_a_quotation_mark_that_nothing_closes_is_always_an_error(tmp_path: Path, policy: str) -> None:
    text = 'first,second,label\nx,y,0\n"x,y,1\n' + "x,y,1\n" * 1000
    with pytest.raises(TaskDataError, match=r"a\.csv, line 3: a quotation mark opens here and none closes it"):
        read(PAIRS, write(tmp_path / "a.csv", text), policy)


def test_lines_that_a_stray_quotation_mark_swallows_are_counted(tmp_path: Path) -> None:
    text = 'first,second,label\nx,y,0\n"x,y,1\nx,y,1\nx,y,1\n"x,y,1\nx,y,1\n'
    examples, bad = read(PAIRS, write(tmp_path / "a.csv", text), "skip")
    assert [example.label for example in examples] == ["off", "on"]
    assert bad.count == 4


def test_a_label_that_is_a_date_reads_as_text(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": ["x"], "label": [date(2026, 11, 20)]}), path)
    (example,), _ = read(ClassificationTable(("text",), "label"), path)
    assert example.label == "2026-11-20"


@pytest.mark.parametrize("value", ["high", "nan", "inf"])
def test_a_score_that_is_no_number_is_named(tmp_path: Path, value: str) -> None:
    path = write(tmp_path / "a.tsv", f"a\tscore\nx\t{value}\n")
    with pytest.raises(TaskDataError, match=f"line 2: score '{value}' is not a number"):
        read(RegressionTable(("a",), "score"), path)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet"])
def test_a_missing_column_is_named_with_those_there_are(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "a.parquet":
        pyarrow.parquet.write_table(pyarrow.table({"first": ["x"], "label": ["0"]}), path)
    else:
        write(path, "first,label\nx,0\n".replace(",", "," if name == "a.csv" else "\t"))
    with pytest.raises(TaskDataError, match=r"has no column 'second', it has 'first', 'label'.*text_columns"):
        read(PAIRS, path)


def test_a_damaged_parquet_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskDataError, match=r"a\.parquet is not a whole Parquet file"):
        read(PAIRS, write(tmp_path / "a.parquet", "PAR1 no"))


def test_an_unknown_kind_of_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskDataError, match=r"a\.xls: a table's name ends in"):
        read(PAIRS, write(tmp_path / "a.xls", "x"))


def test_a_file_without_a_readable_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"\n\n")
    with pytest.raises(TaskDataError, match="holds no line that can be read"):
        read(PAIRS, tmp_path / "a.tsv", "skip")


NER = NerTable("tokens", "tags", ("O", "B-PER", "I-PER"))


def test_ner_tables_hold_lists(tmp_path: Path) -> None:
    records = [{"tokens": ["Ada", "L", "ran"], "tags": ["I-PER", "I-PER", "O"]}, {"tokens": [], "tags": []}]
    jsonl = write(tmp_path / "a.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "a.parquet")
    expected = [NerExample("0", ("Ada", "L", "ran"), ("B-PER", "I-PER", "O"))]
    assert read(NER, jsonl)[0] == expected
    assert read(NER, tmp_path / "a.parquet")[0] == expected


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"tokens": ["a", "b"], "tags": ["O"]}, "2 tokens but 1 tags"),
        ({"tokens": "a b", "tags": ["O"]}, "tokens and tags must be lists of text"),
        ({"tokens": ["a"], "tags": [3]}, "tokens and tags must be lists of text"),
        ({"tokens": ["a"], "tags": ["B-LOC"]}, "tag 'B-LOC' is none of the labels O, B-PER, I-PER"),
    ],
)
def test_a_broken_ner_record_is_named_or_counted(tmp_path: Path, record: dict, message: str) -> None:
    path = write(tmp_path / "a.jsonl", json.dumps(record) + "\n")
    with pytest.raises(TaskDataError, match=f"line 1: {message}"):
        read(NER, path)
    assert read(NER, path, "skip")[1].count == 1


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_the_delimiter_of_a_csv_file_is_found_by_its_columns(tmp_path: Path, delimiter: str) -> None:
    text = f'text{delimiter}label\n"so, so{delimiter} or not"{delimiter}yes\n'
    examples, _ = read(ClassificationTable(("text",), "label"), write(tmp_path / "a.csv", text))
    assert [(e.text, e.label) for e in examples] == [(f"so, so{delimiter} or not", "yes")]


def test_a_comma_goes_before_other_delimiters(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label;sure\ngood,yes\n")
    assert read(ClassificationTable(("text",), "label;sure"), path)[0][0].label == "yes"


def test_columns_of_a_semicolon_file_are_listed_one_by_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "review;class\ngood;yes\n")
    with pytest.raises(TaskDataError, match="no column 'text', it has 'review', 'class'"):
        read(ClassificationTable(("text",), "label"), path)


def test_a_tsv_file_with_semicolons_is_to_be_named_csv(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "text;label\ngood;yes\n")
    with pytest.raises(TaskDataError, match=r"no tab in its first line.*end in \.csv"):
        read(ClassificationTable(("text",), "label"), path)


def test_the_first_broken_record_is_remembered(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\ngood,yes\nbad\nworse\n")
    _, bad = read(ClassificationTable(("text",), "label"), path, "skip")
    assert (bad.count, bad.first_problem) == (2, "line 3: 1 fields where the first line has 2")


def test_a_spreadsheets_line_that_says_the_delimiter_is_no_row(tmp_path: Path) -> None:
    path = tmp_path / "excel.csv"
    path.write_bytes(b'\xef\xbb\xbfsep=;\r\ntext;label\r\na,b;x\r\n"c\nd";y\r\nonly one\r\n')
    bad = BadRecords(str(path), "skip")
    assert column_names(str(path), bad) == ("text", "label")
    assert has_columns(str(path), ("text", "label"), header=True)
    rows = list(read_rows(str(path), ("label", "text"), bad))
    assert rows == [("line 3", ("x", "a,b")), ("line 4", ("y", "c\nd"))]
    assert bad.first_problem == "line 6: 1 fields where the first line has 2"


def test_a_text_of_any_length_is_read(tmp_path: Path) -> None:
    long = "a b " * 100_000
    path = write(tmp_path / "a.csv", f'text,label\n"{long}",yes\n')
    assert read(ClassificationTable(("text",), "label"), path)[0][0].text == long


@pytest.mark.parametrize(("name", "mark"), [("a.csv", ","), ("a.tsv", "\t")])
def test_blank_lines_above_the_names_of_the_columns_are_passed_over(tmp_path: Path, name: str, mark: str) -> None:
    path = write(tmp_path / name, f"\n\ntext{mark}label\ngood{mark}yes\n")
    bad = BadRecords(str(path), "error")
    assert column_names(str(path), bad) == ("text", "label")
    assert has_columns(str(path), ("text", "label"), header=True)
    assert list(read_rows(str(path), ("text", "label"), bad)) == [("line 4", ("good", "yes"))]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "sep.csv"])
@pytest.mark.parametrize("policy", ["error", "skip"])
def test_names_of_columns_that_are_not_utf_8_are_always_an_error(tmp_path: Path, name: str, policy: str) -> None:
    above = b"sep=\t\n" if name == "sep.csv" else b""
    (tmp_path / name).write_bytes(above + "text\tGefühl\n".encode("latin-1") + b"good\tyes\nbad\tno\n")
    path, problem = str(tmp_path / name), r"line \d: byte 9 is not UTF-8 \(0xfc\), save the file as UTF-8"
    with pytest.raises(TaskDataError, match=problem):
        column_names(path, BadRecords(path, policy))
    with pytest.raises(TaskDataError, match=problem):
        list(read_rows(path, ("good", "yes"), BadRecords(path, policy)))


def test_a_spreadsheet_of_a_macintosh_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'label,first,second\r1,"He said ""no""","yes, or\rno"\r0,ünder,b\r')
    assert read(PAIRS, path)[0] == EXPECTED


def test_line_ends_of_two_kinds_are_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'text,label\r"good,\nso good",yes\rbad,no\r')
    with pytest.raises(
        TaskDataError, match=r"line 1: not CSV: some lines end at a carriage return.*save the file with"
    ):
        column_names(str(path), BadRecords(str(path), "skip"))


def test_a_line_of_json_that_is_cut_short_is_told_with_its_column(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a fil\n')
    with pytest.raises(TaskDataError, match=r"line 1: not JSON: Unterminated string at column 10;"):
        column_names(str(path), BadRecords(str(path), "error"))
