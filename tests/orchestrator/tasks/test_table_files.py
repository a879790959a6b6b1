"""Files of labeled data, and what is broken in them. Alone: pytest tests/orchestrator/tasks/test_table_files.py"""

import gzip
import json
import lzma
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from pydantic import TypeAdapter
from sklearn.preprocessing import StandardScaler

from orchestrator.base.errors import TaskDataError
from orchestrator.tasks.table_files import column_names, is_json_table, read_rows
from orchestrator.tasks.text_examples import NO_COLUMNS, TabularColumns, TextExample
from orchestrator.tasks.text_files import BadRecords, find_file, plain_name, read_decompressed, read_lines
from orchestrator.tasks.types.classification import ClassificationTable
from orchestrator.tasks.types.conll import NerExample, NerTable, PlainTagTable
from orchestrator.tasks.types.regression import RegressionTable
from tests.orchestrator.tasks.definitions import examples_of, read, write, write_records

COMPRESS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.ZstdCompressor().compress}


@pytest.mark.parametrize("ending", COMPRESS)
def test_a_file_is_found_and_read_whatever_its_compression(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"dev.tsv{ending}").write_bytes(COMPRESS[ending]("ä\tb\n".encode()))
    path = find_file(str(tmp_path), ("valid.tsv", "dev.tsv"))
    assert path == str(tmp_path / f"dev.tsv{ending}")
    assert read_decompressed(path).decode() == "ä\tb\n"
    assert plain_name(path).endswith("dev.tsv")


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"no " + data])
def test_a_damaged_file_is_named(tmp_path: Path, ending: str, damage) -> None:
    path = tmp_path / f"dev.tsv{ending}"
    path.write_bytes(damage(COMPRESS[ending](bytes(range(256)) * 50)))
    with pytest.raises(TaskDataError, match=r"dev\.tsv\.\w+"):
        read_decompressed(str(path))


def test_lines_end_at_line_feeds_and_without_any_at_carriage_returns(tmp_path: Path) -> None:
    for text, lines in (
        ("\ufeffone\r\ntwo\u2028still\x0btwo\x85\n\nfour", ["one", "two\u2028still\x0btwo\x85", "", "four"]),
        ("one\r\rthree\r", ["one", "", "three"]),
    ):
        path = str(write(tmp_path / "a.txt", text))
        assert list(read_lines(path, BadRecords(path, "error"))) == list(enumerate(lines, 1))


def test_bytes_that_are_no_text_end_the_reading_or_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\nt\xffwo\nthree\n")
    with pytest.raises(TaskDataError, match=r"a\.txt, line 2: byte 2"):
        list(read_lines(str(path), BadRecords(str(path), "error")))
    bad = BadRecords(str(path), "skip")
    assert list(read_lines(str(path), bad)) == [(1, "one"), (3, "three")]
    assert bad.count == 1


ROWS = [('He said "no"', "yes, or\nno", 1), ("ünder", "b", 0)]
TEXT = ClassificationTable(("text",), "label")
PAIRS = ClassificationTable(("first", "second"), "label", classes={"0": "off", "1": "on"})
EXPECTED = [TextExample(str(n), a, b, ("off", "on")[label]) for n, (a, b, label) in enumerate(ROWS)]


WINDOWS = 'label,first,second\r\n1,"He said ""no""","yes, or\nno"\r\n\r\n0,ünder,b\r\n'
MACINTOSH = 'label,first,second\r1,"He said ""no""","yes, or\rno"\r0,ünder,b\r'


@pytest.mark.parametrize("text", [WINDOWS, MACINTOSH], ids=["windows", "macintosh"])
def test_csv_is_quoted_and_a_text_has_any_length(tmp_path: Path, text: str) -> None:
    assert examples_of(PAIRS, write(tmp_path / "a.csv", text)) == EXPECTED
    long = "a b " * 100_000
    assert examples_of(TEXT, write(tmp_path / "a.csv", f'text,label\n"{long}",yes\n'))[0].text == long


def test_jsonl_and_parquet_hold_typed_values(tmp_path: Path) -> None:
    records = [{"first": a, "second": b, "label": label, "more": None} for a, b, label in ROWS]
    for name in ("a.jsonl", "a.parquet"):
        assert examples_of(PAIRS, write_records(tmp_path / name, *records)) == EXPECTED
    path = write_records(tmp_path / "date.parquet", {"text": "x", "label": date(2026, 11, 20)})
    assert examples_of(TEXT, path)[0].label == "2026-11-20"


QUOTED = {
    '"a\tb"\tyes\nc\tno\n': ["a\tb", "c"],
    '"say ""a"""\tyes\r\n"c\r\nd"\tno\r\n': ['say "a"', "c\nd"],
    '"a" b\tyes\nsay ""c""\tno\n': ['"a" b', 'say ""c""'],
    '"a"\tyes\n"b\tno\n': ['"a"', '"b'],
    '"a"\tyes\nb\tno\n': ['"a"', "b"],
    '"half\tyes\n\nwhole"\tno\n': ['"half', 'whole"'],
}


@pytest.mark.parametrize("rows", QUOTED)
def test_tsv_is_quoted_where_all_of_its_marks_enclose_cells(tmp_path: Path, rows: str) -> None:
    path = write(tmp_path / "a.tsv", "text\tlabel\n" + rows)
    assert [example.text for example in examples_of(TEXT, path)] == QUOTED[rows]


def test_tsv_of_a_published_task_is_never_quoted_and_names_of_columns_may_be(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", 'text\tlabel\n"say ""a"""\tyes\n')
    (example,) = examples_of(replace(TEXT, may_quote=False), path)
    assert example.text == '"say ""a"""'
    other = str(write(tmp_path / "b.tsv", '"id"\t"text, or title"\n"1"\t"a, b"\n'))
    assert column_names(other, BadRecords(other, "error")) == ("id", "text, or title")


RECORDS = [{"data": {"text": "x, y"}, "label": "a"}, {"data": {"text": "z"}, "label": "b"}]
JSON_FORMS = {
    "array.json": json.dumps(RECORDS),
    "array.jsonl": json.dumps(RECORDS, indent=1),
    "rows.json": "[\n" + ",\n".join(map(json.dumps, RECORDS)) + "\n]\n",
    "commas.jsonl": ",\n".join(map(json.dumps, RECORDS)),
    "pretty.ndjson": "\n\n".join(json.dumps(record, indent=1) for record in RECORDS),
    "lines.json": "".join(json.dumps(record) + "\n" for record in RECORDS),
}


@pytest.mark.parametrize("name", [*JSON_FORMS, "structs.parquet"])
def test_records_of_json_have_many_forms_and_values_within_objects(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "structs.parquet":
        write_records(path, *RECORDS)
    else:
        write(path, JSON_FORMS[name])
    assert column_names(str(path), BadRecords(str(path), "error")) == ("data", "data.text", "label")
    assert column_names(str(path), BadRecords(str(path), "error"), within=False) == ("data", "label")
    examples, _ = read(ClassificationTable(("data.text",), "label"), path)
    assert [(example.text, example.label) for example in examples] == [("x, y", "a"), ("z", "b")]
    assert name == "structs.parquet" or is_json_table(str(path))
    squad = write(tmp_path / "squad.json", json.dumps({"data": [{"paragraphs": []}]}, indent=1))
    assert not is_json_table(str(squad))


@pytest.mark.parametrize("policy", ["error", "skip"])
@pytest.mark.parametrize("name", ["array.json", "pretty.ndjson"])
def test_json_that_breaks_off_is_named_with_its_line(tmp_path: Path, name: str, policy: str) -> None:
    path = write(tmp_path / name, json.dumps(RECORDS if name == "array.json" else RECORDS[0], indent=1)[:-4])
    with pytest.raises(TaskDataError, match=rf"{name}, line \d+: not JSON"):
        read(PAIRS, path, policy)


@pytest.mark.parametrize(("name", "encoding"), [("a.csv", "utf-16-le"), ("a.tsv", "utf-16-be")])
def test_utf_16_is_read_by_its_mark_and_named_where_it_is_cut(tmp_path: Path, name: str, encoding: str) -> None:
    path = tmp_path / name
    path.write_bytes('\ufefftext\tlabel\r\n"ümlaut\t😀"\tx\r\n'.encode(encoding))
    assert [example.text for example in examples_of(TEXT, path)] == ["ümlaut\t😀"]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(TaskDataError, match=rf"{name}.*UTF-16"):
        examples_of(TEXT, path)


def test_columns_of_a_headerless_file_go_by_number(tmp_path: Path) -> None:
    table = ClassificationTable(("3",), "1", {"0": "bad", "1": "good"}, header=False)
    path = write(tmp_path / "a.tsv", "gj04\t1\t\tWe go.\ngj04\t0\t*\tGo we.\n")
    assert [(e.text, e.label) for e in read(table, path)[0]] == [("We go.", "good"), ("Go we.", "bad")]


FIRST, LAST = '{"first": "x", "second": "y", "label": 0}\n', '{"first": "x", "second": "y", "label": 1}\n'
BROKEN = {
    "a.tsv": ("first\tsecond\tlabel\nx\ty\t0\nx\t1\nx\ty\t1\n", "line 3"),
    "label.tsv": ("first\tsecond\tlabel\nx\ty\t0\nx\ty\tmaybe\nx\ty\t1\n", "line 3: label 'maybe'"),
    "a.csv": ('first,second,label\nx,y,0\n"x"y,y,1\nx,y,1\n', "line 3"),
    "a.jsonl": (FIRST + '{"first": \n' + LAST, "line 2"),
    "key.jsonl": (FIRST + '{"first": "x"}\n' + LAST, "line 2: .*'second'"),
    "type.jsonl": (FIRST + '{"first": [3], "second": "y", "label": 0}\n' + LAST, "line 2: first"),
    "half.jsonl": (FIRST + '{"first": "\\ud83d", "second": "y", "label": 0}\n' + LAST, "line 2"),
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
    with pytest.raises(TaskDataError, match=r"a\.csv, line 3"):
        read(PAIRS, write(tmp_path / "a.csv", text), policy)


def test_lines_that_a_stray_quotation_mark_swallows_are_counted(tmp_path: Path) -> None:
    text = 'first,second,label\nx,y,0\n"x,y,1\nx,y,1\nx,y,1\n"x,y,1\nx,y,1\n'
    examples, bad = read(PAIRS, write(tmp_path / "a.csv", text), "skip")
    assert [example.label for example in examples] == ["off", "on"]
    assert bad.count == 4


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet"])
def test_a_missing_column_is_named_with_those_there_are(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "a.parquet":
        write_records(path, {"first": "x", "label": "0"})
    else:
        write(path, "first,label\nx,0\n".replace(",", "," if name == "a.csv" else "\t"))
    with pytest.raises(TaskDataError, match=r"'second'.*'first', 'label'"):
        read(PAIRS, path)


SCORE = RegressionTable(("text",), "label")
AMISS: list[tuple[Any, str, str, str]] = [
    # reader, file, its text, what is said; those of pairs cannot be skipped
    (TEXT, "a.csv", 'text,label\n"say \\"so, so\\" now",x\n', "line 2: .*backslash"),
    (TEXT, "a.csv", 'text,label\n"a "b" c",x\n', 'line 2: .*""'),
    (TEXT, "a.csv", "text,label\n'a, b',x\n", "line 2: .*single quotes"),
    (TEXT, "a.csv", 'text,label\nx, "a, b"\n', "line 2: .*blank"),
    *(
        (SCORE, "a.tsv", f"text\tlabel\nx\t1.5\nx\t{value}\n", f"line 3: label .*{named}")
        for value, named in {
            "high": "number",
            "1e300": "1e",
            "25%": "percent",
            "3,5": "decimal comma",
            "1,250.0": "thousands",
            "1,250": "thousands.*decimal comma",
        }.items()
    ),
    (PAIRS, "a.parquet", "PAR1 no", r"a\.parquet"),
    (PAIRS, "a.xls", "x", r"a\.xls"),
    (PAIRS, "a.tsv", "\n\n", r"a\.tsv"),
    (PAIRS, "a.tsv", "first;second;label\nx;y;1\n", r"\.csv"),
]


@pytest.mark.parametrize(("table", "name", "text", "named"), AMISS, ids=[case[3] for case in AMISS])
def test_what_is_wrong_with_a_file_is_named(tmp_path: Path, table: Any, name: str, text: str, named: str) -> None:
    with pytest.raises(TaskDataError, match=named):
        read(table, write(tmp_path / name, text), "skip" if table is PAIRS else "error")


NER = NerTable("tokens", "tags", ("O", "B-PER", "I-PER"))


def test_ner_tables_hold_lists(tmp_path: Path) -> None:
    records = [{"tokens": ["Ada", "L", "ran"], "tags": ["I-PER", "I-PER", "O"]}, {"tokens": [], "tags": []}]
    expected = [NerExample("0", ("Ada", "L", "ran"), ("B-PER", "I-PER", "O"))]
    for name in ("a.jsonl", "a.parquet"):
        assert examples_of(NER, write_records(tmp_path / name, *records)) == expected


@pytest.mark.parametrize(("tokens", "tags"), [(["a", "b"], ["O"]), ("a b", ["O"]), (["a"], [3]), (["a"], ["B-LOC"])])
def test_a_broken_ner_record_is_named_or_counted(tmp_path: Path, tokens: object, tags: object) -> None:
    path = write_records(tmp_path / "a.jsonl", {"tokens": tokens, "tags": tags})
    with pytest.raises(TaskDataError, match="line 1: "):
        read(NER, path)
    assert read(NER, path, "skip")[1].count == 1


@pytest.mark.parametrize("mark", [-100, "-100"])
def test_tags_of_pieces_of_words_are_named(tmp_path: Path, mark: object) -> None:
    path = write_records(tmp_path / "a.jsonl", {"tokens": ["Ada", "##bo"], "tags": ["O", mark]})
    for table in (NER, PlainTagTable("tokens", "tags")):
        with pytest.raises(TaskDataError, match=r"line 1: tags has -100, .*whole words"):
            read(table, path)


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_the_delimiter_of_a_csv_file_is_found_by_its_columns(tmp_path: Path, delimiter: str) -> None:
    text = f'text{delimiter}label\n"so, so{delimiter} or not"{delimiter}yes\n'
    examples = examples_of(TEXT, write(tmp_path / "a.csv", text))
    assert [(e.text, e.label) for e in examples] == [(f"so, so{delimiter} or not", "yes")]
    path = write(tmp_path / "comma.csv", f"text,label{delimiter}sure\ngood,yes\n")
    (first,) = examples_of(ClassificationTable(("text",), f"label{delimiter}sure"), path)
    assert first.label == "yes", "a comma goes first"


def test_a_spreadsheets_line_that_says_the_delimiter_is_no_row(tmp_path: Path) -> None:
    path = tmp_path / "excel.csv"
    path.write_bytes(b'\xef\xbb\xbfsep=;\r\ntext;label\r\na,b;x\r\n"c\nd";y\r\nonly one\r\n')
    bad = BadRecords(str(path), "skip")
    assert column_names(str(path), bad) == ("text", "label")
    rows = list(read_rows(str(path), ("label", "text"), bad))
    assert rows == [("line 3", ("x", "a,b")), ("line 4", ("y", "c\nd"))]
    assert bad.first_problem == "line 6: 1 fields where the first line has 2"


@pytest.mark.parametrize(("name", "mark"), [("a.csv", ","), ("a.tsv", "\t")])
def test_blank_lines_above_the_names_of_the_columns_are_passed_over(tmp_path: Path, name: str, mark: str) -> None:
    path = write(tmp_path / name, f"\n\ntext{mark}label\ngood{mark}yes\n")
    bad = BadRecords(str(path), "error")
    assert column_names(str(path), bad) == ("text", "label")
    assert list(read_rows(str(path), ("text", "label"), bad)) == [("line 4", ("good", "yes"))]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "sep.csv"])
@pytest.mark.parametrize("policy", ["error", "skip"])
def test_names_of_columns_that_are_not_utf_8_are_always_an_error(tmp_path: Path, name: str, policy: str) -> None:
    above = b"sep=\t\n" if name == "sep.csv" else b""
    (tmp_path / name).write_bytes(above + "text\tGefühl\n".encode("latin-1") + b"good\tyes\nbad\tno\n")
    path, problem = str(tmp_path / name), r"line \d: byte 9"
    with pytest.raises(TaskDataError, match=problem):
        column_names(path, BadRecords(path, policy))
    with pytest.raises(TaskDataError, match=problem):
        list(read_rows(path, ("good", "yes"), BadRecords(path, policy)))


UNNAMED = {"a.csv": ('text,label\r"good,\nso good",yes\rbad,no\r', "line 1: .*carriage return")}
UNNAMED |= {"a.jsonl": ('{"text": "a fil\n', "line 1: .*column 10")}


@pytest.mark.parametrize("name", UNNAMED)
def test_a_first_line_without_names_of_columns_is_told(tmp_path: Path, name: str) -> None:
    path = str(write(tmp_path / name, UNNAMED[name][0]))
    with pytest.raises(TaskDataError, match=UNNAMED[name][1]):
        column_names(path, BadRecords(path, "error"))


SIZES = ClassificationTable(("text",), "label", numerical_columns=("size",), categorical_columns=("color",))


def test_own_columns_are_read_beside_the_text_and_may_be_empty(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("color,size,text,label\nred,2.5,x,yes\n,,y,no\n")
    expected = [
        TextExample("0", "x", label="yes", numbers=(2.5,), categories=("red",)),
        TextExample("1", "y", label="no", numbers=(None,), categories=(None,)),
    ]
    assert examples_of(SIZES, tmp_path / "a.csv") == expected
    records = [{"text": "x", "label": "yes", "color": "red", "size": 2.5}, {"text": "y", "label": "no"}]
    assert examples_of(SIZES, write_records(tmp_path / "a.parquet", *records)) == expected


@pytest.mark.parametrize(
    ("column", "value"), [("size", "large"), ("size", 1e300), ("size", 10**400), ("size", [1]), ("color", ["red"])]
)
def test_a_broken_column_is_named_or_left_out(tmp_path: Path, column: str, value: object) -> None:
    record = {"text": "x", "size": 1, "color": "red", "label": 1.5}
    path = write_records(tmp_path / "a.jsonl", record, {**record, column: value})
    with pytest.raises(TaskDataError, match=f"line 2: {column}"):
        examples_of(SIZES, path)
    regression = RegressionTable(("text",), "label", numerical_columns=("size",), categorical_columns=("color",))
    assert [(example.numbers, example.label) for example in examples_of(regression, path, "skip")] == [((1.0,), 1.5)]


def make_examples(numbers: Sequence[float | None], categories: Sequence[str | None]) -> list[TextExample]:
    return [
        TextExample("0", "x", numbers=(number,), categories=(category,))
        for number, category in zip(numbers, categories, strict=True)
    ]


EXAMPLES = make_examples([1.0, 4.0, None, 10.0], ["red", None, "blue", "red"])
COLUMNS = TabularColumns.learn(("size",), ("color",), EXAMPLES)


def test_vectors_hold_distance_and_flag_of_a_number_and_one_place_of_a_category() -> None:
    assert COLUMNS.names == ("size", "color")
    scaled = StandardScaler().fit_transform(np.array([[1.0], [4.0], [10.0]])).ravel()
    expected = [[scaled[0], 0, 0, 0, 1], [scaled[1], 0, 1, 0, 0], [0, 1, 0, 1, 0], [scaled[2], 0, 0, 0, 1]]
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
        assert TypeAdapter(TabularColumns).validate_python(json.loads(json.dumps(asdict(columns)))) == columns


def test_texts_are_no_categories() -> None:
    examples = make_examples([None] * 1001, [f"note {number}" for number in range(1001)])
    with pytest.raises(TaskDataError, match=r"categorical_columns: color"):
        TabularColumns.learn((), ("color",), examples)


@pytest.mark.parametrize("number", ["[" * 100_000, "1" * 5000, '{"a": ' * 100_000])
def test_json_that_python_does_not_read_is_named_by_its_line(tmp_path: Path, number: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text": "x", "label": 0}}\n{{"text": "y", "label": {number}}}\n')
    with pytest.raises(TaskDataError, match="line 2: not JSON"):
        list(read_rows(str(path), ("text", "label"), BadRecords(str(path), "error")))


@pytest.mark.parametrize("indent", [None, 1])
def test_rows_under_data_are_a_table_and_articles_are_none(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "a.json"
    by_pandas = {"columns": ["n", "text"], "index": [0, 1], "data": [[1, "x"], [2, "y"]]}
    for table in (
        {"data": [{"text": "x"}, {"text": "y"}]},
        by_pandas,
        {"n": {"0": 1, "1": 2}, "text": {"0": "x", "1": "y"}},
    ):
        path.write_text(json.dumps(table, indent=indent))
        assert is_json_table(str(path))
        assert [row for _, row in read_rows(str(path), ("text",), BadRecords(str(path), "error"))] == [("x",), ("y",)]
    path.write_text(json.dumps({"data": [{"paragraphs": []}, {"paragraphs": []}]}, indent=indent))
    assert not is_json_table(str(path))


def test_bytes_of_parquet_are_text(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.parquet", {"text": b"x", "label": "é".encode()})
    assert [row for _, row in read_rows(str(path), ("text", "label"), BadRecords(str(path), "error"))] == [("x", "é")]
