"""Rows of predictions with the texts of their examples: how much of them is kept, and that digests know none of it.

Alone: .venv/bin/pytest tests/orchestrator/tasks/test_row_texts.py
"""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.registry.groups.prediction_files import read_predictions
from orchestrator.specs import TaskSpec
from orchestrator.specs.task import Head
from orchestrator.tasks import Task, kept_rows, load_task, rows_with_texts, write_prediction_rows
from orchestrator.tasks.row_texts import KEPT_CHARACTERS
from orchestrator.tasks.types.classification import ClassPrediction
from orchestrator.tasks.types.multiple_choice import ChoicePrediction
from orchestrator.tasks.types.qa import AnswerPrediction
from orchestrator.tasks.types.regression import ValuePrediction

LONG = "word " * 200
BREAKS = "a\u2028b\u2029c\x85d"
"""Characters that end a line for `str.splitlines`, and for no reader of JSON lines."""


def _task(folder: Path, head: Head, rows: list[dict[str, Any]], **fields: Any) -> Task:
    file = folder / f"{head}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return load_task(TaskSpec(id="mine", head=head, files={"train": str(file), "validation": str(file)}, **fields))


@pytest.fixture
def pairs(tmp_path: Path) -> Task:
    rows = [
        {"a": "It rains.", "b": LONG, "label": "no"},
        {"a": BREAKS, "b": "The same.", "label": "yes"},
    ]
    return _task(tmp_path, "classification", rows, text_columns=("a", "b"))


GIVEN = [ClassPrediction("yes", (0.25, 0.75)), ClassPrediction("yes", (0.25, 0.75))]
"""Predictions for both pairs, the first of them wrong."""


def test_a_kept_row_says_both_texts_of_a_pair_the_long_one_cut(pairs: Task) -> None:
    first = kept_rows(pairs, "validation", GIVEN)[0]
    assert list(first)[:3] == ["id", "text", "text_pair"]
    assert (first["text"], first["prediction"], first["gold"]) == ("It rains.", "yes", "no")
    assert len(first["text_pair"]) == KEPT_CHARACTERS
    assert first["text_pair"] == LONG[: KEPT_CHARACTERS - 1] + "…"


def test_a_persons_own_file_has_the_whole_texts(pairs: Task) -> None:
    assert rows_with_texts(pairs, "validation", GIVEN)[0]["text_pair"] == LONG


def test_a_row_of_a_value_says_its_texts(tmp_path: Path) -> None:
    rows = [{"a": "one", "b": "two", "label": 2.5}, {"a": "three", "b": "four", "label": 5.0}]
    task = _task(tmp_path, "regression", rows, text_columns=("a", "b"))
    first = kept_rows(task, "validation", [ValuePrediction(1.0), ValuePrediction(1.0)])[0]
    assert first == {"id": "0", "text": "one", "text_pair": "two", "prediction": 1.0, "gold": 2.5, "error": -1.5}


def test_choices_are_kept_up_to_a_length_that_they_have_together(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"text": "a", "x": "b", "y": "c", "label": 1}]
    rows.append({"text": "a", "x": LONG, "y": "never", "label": 0})
    task = _task(tmp_path, "multiple_choice", rows, text_columns=("text",), choice_columns=("x", "y"))
    few, many = kept_rows(task, "validation", [ChoicePrediction(0, (0.5, 0.5))] * 2)
    assert few["choices"] == ["b", "c"]
    assert many["choices"] == [LONG[: KEPT_CHARACTERS - 1] + "…", "…"]


def test_a_row_that_says_its_question_by_itself_gets_no_whole_passage(tmp_path: Path) -> None:
    question = {"id": "q", "question": "What?", "answers": [{"text": "word", "answer_start": 0}]}
    file = tmp_path / "squad.json"
    file.write_text(json.dumps({"data": [{"paragraphs": [{"context": LONG, "qas": [question]}]}]}))
    task = load_task(TaskSpec(id="mine", head="qa", files={"train": str(file), "validation": str(file)}))
    (kept,) = kept_rows(task, "validation", [AnswerPrediction("word")])
    assert "context" not in kept
    assert kept["question"] == "What?"
    assert len(kept["passage"]) < len(LONG)


def test_texts_with_any_line_separator_are_read_as_they_were_written(pairs: Task, tmp_path: Path) -> None:
    rows = kept_rows(pairs, "validation", GIVEN)
    path = str(tmp_path / "predictions.jsonl")
    write_prediction_rows(path, rows)
    assert rows[1]["text"] == BREAKS
    assert read_predictions(path) == rows
