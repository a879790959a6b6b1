"""Requests: forms of their files, columns of tables, what each kind of task reads of a line and what it answers.

Alone: pytest tests/orchestrator/inference/test_requests.py
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from orchestrator.base.errors import InputError
from orchestrator.inference.requests import RequestFile, inspect_requests, make_request, refuse_table
from orchestrator.storage.text_lines import parse_line
from orchestrator.tasks.text_examples import NO_COLUMNS, CategoricalColumn, NumericalColumn, TabularColumns, TextExample
from orchestrator.tasks.types.base import TaskDefinition
from orchestrator.tasks.types.multi_label import LabelsPrediction
from orchestrator.tasks.types.multiple_choice import ChoicePrediction, MultipleChoiceExample
from tests.orchestrator.tasks.definitions import define, write_records


def _read(path: Path, head: Any = "classification", **known: Any) -> list[dict[str, Any]]:
    task = replace(define(head, ("a", "b")), **known)
    return [json.loads(line) for line in inspect_requests(str(path), task).read(str(path)) if line.strip()]


def test_the_columns_that_a_model_was_trained_on_are_read_first(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("title,text\nx,y\n")
    task = replace(define("classification", ("a", "b")), text_columns=("title",))
    table = inspect_requests(str(tmp_path / "a.csv"), task).table
    assert table is not None
    assert (table.names, table.text) == (("title", "text"), ("title",))


def test_parquet_rows_are_requests(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"text": ["x", "y"], "n": [1, 2]}), tmp_path / "a.parquet")
    assert _read(tmp_path / "a.parquet") == [{"text": "x", "n": 1}, {"text": "y", "n": 2}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.conll", "Ann B-PER\nruns O\n\nBob B-PER\n"),
        ("a.conll", "Ann\nruns\n\nBob\n"),
        ("a.IOB", "Ann\nruns\n\nBob\n"),
    ],
)
def test_conll_columns_are_sentences_with_or_without_tags(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert [row["words"] for row in _read(tmp_path / name, "ner")] == [["Ann", "runs"], ["Bob"]]


@pytest.mark.parametrize(
    ("head", "name", "text"),
    [
        ("classification", "a.conll", "Ann B-PER\nruns O\n"),
        ("qa", "a.conll", "Ann B-PER\nruns O\n"),
        ("ner", "a.csv", "text\nx\n"),
    ],
)
def test_a_layout_that_a_head_does_not_read_is_refused(head: str, name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=rf"{name}.* {head} reads "):
        _read(tmp_path / name, head)


def test_sentences_of_a_document_stay_together(tmp_path: Path) -> None:
    text, task = "-DOCSTART-\n\nAnn\n\nruns\n-DOCSTART-\nBob\n", define("ner", ("O", "B-PER"))
    (tmp_path / "a.conll").write_text(text)
    asked = [make_request(line, 1, task) for line in _read(tmp_path / "a.conll", "ner")]
    assert [task.type.example_of(task, request).document for request in asked] == [0, 0, 1]


def test_a_line_without_a_tag_leaves_the_others_their_columns(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("Ann B-PER\n" * 19 + "runs\n")
    assert [row["words"] for row in _read(tmp_path / "a.conll", "ner")] == [["Ann"] * 19 + ["runs"]]


def test_plain_sentences_stay_lines_for_a_tagger(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Ann runs\n")
    task = define("ner", ("O", "B-PER", "I-PER"))
    assert list(inspect_requests(str(tmp_path / "a.txt"), task).read(str(tmp_path / "a.txt"))) == ["Ann runs\n"]


def test_squad_questions_are_requests(tmp_path: Path) -> None:
    qas = [{"id": "q", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}]
    (tmp_path / "a.json").write_text(json.dumps({"data": [{"paragraphs": [{"context": "Ann runs.", "qas": qas}]}]}))
    assert _read(tmp_path / "a.json", "qa") == [{"id": "q", "question": "Who?", "context": "Ann runs."}]


def test_lines_of_a_table_keep_the_numbers_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text\n"x\ny"\n\nz\n')
    lines = list(
        inspect_requests(str(tmp_path / "a.csv"), define("classification", ("a", "b"))).read(str(tmp_path / "a.csv"))
    )
    assert [number for number, line in enumerate(lines, start=1) if line.strip()] == [2, 5]


@pytest.mark.parametrize(("name", "columns"), [("spoken", ("spoken",)), ("tokens", ()), ("words", ())])
def test_a_table_with_lists_of_words_is_read_by_a_tagger(name: str, columns: tuple[str, ...], tmp_path: Path) -> None:
    """The column that a task reads, the one that tables have unless a task says more, and the request's own key."""
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({name: [["Ann", "runs"]], "n": [1]}), path)
    found = inspect_requests(str(path), replace(define("ner", ("O", "B-PER")), text_columns=columns))
    assert found.table is not None
    assert found.table.text == (name,)
    assert _read(path, "ner", text_columns=columns) == [{name: ["Ann", "runs"], "n": 1}]


def test_questions_and_passages_are_columns_of_a_table(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,question,context\nq,Who?,Ann runs.\n")
    assert _read(path, "qa") == [{"id": "q", "question": "Who?", "context": "Ann runs."}]
    with pytest.raises(InputError, match="question and context"):
        inspect_requests(str(path), define("qa"), ("question",))
    path.write_text("question\nWho?\n")
    with pytest.raises(InputError, match="'context'"):
        _read(path, "qa")


def test_lines_with_the_column_of_tables_are_read_by_a_tagger() -> None:
    task = define("ner", ("O", "B-PER"))
    request = make_request({"tokens": ["Ann"]}, 1, task, RequestFile(iter).text_columns(task))
    assert request.values["words"] == ["Ann"]


@pytest.mark.parametrize(
    ("head", "columns", "line"),
    [
        ("ner", ("sentence", "word"), {"sentence": "1", "word": "Ann", "words": ["Ann", "runs"]}),
        ("multiple_choice", ("text", "start"), {"text": "It rains.", "start": "She", "choices": ["runs", "swims"]}),
    ],
)
def test_columns_that_hold_parts_of_keys_replace_none(head: Any, columns: Any, line: Any, tmp_path: Path) -> None:
    """A sentence's number beside each word, and a beginning of all choices."""
    task = replace(define(head, ("O", "B-PER")), text_columns=columns)
    assert make_request(line, 1, task, RequestFile(iter).text_columns(task)).values == line
    path = write_records(tmp_path / "a.parquet", line)
    table = inspect_requests(str(path), task).table
    assert table is not None
    assert table.text == task.type.request.keys


def test_a_second_text_alone_is_not_the_first(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text_pair\nx\n")
    with pytest.raises(InputError, match="'text'"):
        _read(tmp_path / "a.csv")


def test_a_long_line_of_stdin_is_no_table() -> None:
    line = "a b " * 100_000
    assert list(refuse_table([line], ())) == [line]


@pytest.mark.parametrize(
    "table", ["text,label\nx,a\n", "text\tlabel\nx\ta\n", "\ufefftext;label\r\n", "\n\nsep=;\ntext;a\n"]
)
def test_a_table_without_a_tables_name_is_refused(table: str, tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    path.write_text(table, encoding="utf-8", newline="")
    with pytest.raises(InputError, match=r"data\.txt .*\.csv"):
        _read(path)
    with pytest.raises(InputError, match="stdin"):
        list(refuse_table(table.splitlines(keepends=True), ()))


COLUMNS = TabularColumns((NumericalColumn("size", 0.0, 1.0),), (CategoricalColumn("color", ("red",)),))


def make_task(head: Any, columns: TabularColumns = NO_COLUMNS) -> TaskDefinition:
    return define(head, ("a", "b"), columns=columns)


def read(line: str | dict[str, Any], task: TaskDefinition) -> object:
    text = line if isinstance(line, str) else json.dumps(line)
    return task.type.example_of(task, make_request(parse_line(text, 3), 3, task))


def answer(task: TaskDefinition, prediction: object) -> dict[str, Any]:
    return task.target.answer(task, prediction)


def test_each_head_reads_its_keys() -> None:
    assert read("one\ttwo", make_task("multi_label")) == TextExample("3", "one", "two")
    assert read({"text": 2024.0}, make_task("regression")) == TextExample("3", "2024.0")
    choices = {"id": 7, "text": "It rains.", "choices": ["She runs.", "She swims."]}
    expected = MultipleChoiceExample("7", "It rains.", ("She runs.", "She swims."))
    assert read(choices, make_task("multiple_choice")) == expected


@pytest.mark.parametrize("head", ["classification", "multi_label", "regression"])
def test_a_model_reads_as_many_texts_as_it_was_trained_on(head: Any) -> None:
    one, two = (replace(make_task(head), text_columns=columns) for columns in (("claim",), ("claim", "proof")))
    for task, other in ((one, "x\ty"), (two, "x"), (two, {"text": "x", "text_pair": None}), (two, {"text": "x"})):
        assert read(task.request_example, task)
        with pytest.raises(InputError, match=r"line 3: .*claim"):
            read(other, task)
    for line in ("x", "x\ty"):
        assert read(line, make_task(head)), "nobody knows what a model made elsewhere was trained on"


def test_own_columns_are_read_by_their_names_and_null_is_missing() -> None:
    line = {"text": "x", "size": 2, "color": None}
    beside: dict[str, Any] = {"numbers": (2.0,), "categories": (None,)}
    assert read(line, make_task("classification", COLUMNS)) == TextExample("3", "x", **beside)
    assert read(line, make_task("multi_label", COLUMNS)) == TextExample("3", "x", **beside)
    assert read(line, make_task("regression", COLUMNS)) == TextExample("3", "x", **beside)


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
