"""SQuAD's JSON: answers are verified and mended, broken records named by their place.

Alone: pytest tests/orchestrator/tasks/types/test_squad.py
"""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import TaskDataError
from orchestrator.tasks.text_files import BadRecords
from orchestrator.tasks.types.squad import Answer, QaExample, SquadReader, find_answer

CONTEXT = "the cat saw the cat and the ünruly cat"


def question(question_id: str = "q", **more: Any) -> dict[str, Any]:
    return {"id": question_id, "question": "Who?", "answers": [{"text": "cat", "answer_start": 16}], **more}


def read(path: Path, data: Any, policy: str = "error") -> tuple[list[QaExample], BadRecords]:
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    bad = BadRecords(str(path), policy)
    return list(SquadReader().read(str(path), bad)), bad


def layout(*questions: Any) -> dict[str, Any]:
    return {"version": "1.1", "data": [{"title": "T", "paragraphs": [{"context": CONTEXT, "qas": list(questions)}]}]}


def test_questions_are_read_in_order(tmp_path: Path) -> None:
    unanswerable = question("b", is_impossible=True, answers=[], plausible_answers=[{"text": "x", "answer_start": 0}])
    examples, bad = read(tmp_path / "a.json", layout(question("a"), unanswerable, question("c", answers=[])))
    assert examples == [
        QaExample("a", "Who?", CONTEXT, (Answer("cat", 16),)),
        QaExample("b", "Who?", CONTEXT),
        QaExample("c", "Who?", CONTEXT),
    ]
    assert (bad.count, bad.num_repaired) == (0, 0)


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        ("cat", 4, 4),
        ("cat", 5, 4),
        ("cat", 15, 16),
        ("cat", 0, 4),
        ("cat", -7, 4),
        ("cat", 999, 35),
        ("ünruly", 27, 28),
        ("dog", 4, None),
        ("", 4, None),
    ],
)
def test_an_answer_is_found_nearest_to_where_it_should_be(text: str, start: int, expected: int | None) -> None:
    assert find_answer(CONTEXT, text, start) == (None if expected is None else Answer(text, expected))


def test_a_mended_answer_is_counted(tmp_path: Path) -> None:
    examples, bad = read(tmp_path / "a.json", layout(question(answers=[{"text": "cat", "answer_start": 17}])))
    assert examples[0].answers == (Answer("cat", 16),)
    assert bad.num_repaired == 1


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (question(answers=[{"text": "dog", "answer_start": 1}]), "the answer 'dog' of question 'q' is not in"),
        (question("a"), "id 'a' stands there twice"),
        (question(question="Wh\ud83d?"), "has half a surrogate pair"),
        (question(question=None), "the question of 'q' is not text"),
        ({"id": "q", "question": "Who?"}, "not a question .*KeyError: 'answers'"),
        (question(answers=[{"text": "cat"}]), "not a question .*KeyError: 'answer_start'"),
        (question(answers=["cat"]), "not a question .*TypeError"),
        ("cat", "not a question"),
    ],
)
def test_a_broken_question_is_named_by_its_place_or_counted(tmp_path: Path, broken: Any, message: str) -> None:
    data = layout(question("a"), broken, question("c"))
    with pytest.raises(TaskDataError, match=rf"a\.json, data\[0\]\.paragraphs\[0\]\.qas\[1\]: {message}"):
        read(tmp_path / "a.json", data)
    examples, bad = read(tmp_path / "a.json", data, "skip")
    assert [example.id for example in examples] == ["a", "c"]
    assert bad.count == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('{"data": [\n{"', "line 2: not JSON"),
        ("[]", 'object with a list "data"'),
        ({"version": "1.1"}, 'object with a list "data"'),
        ({"data": "x"}, 'object with a list "data"'),
        ({"data": [{"title": "T"}]}, r"data\[0\]: no list 'paragraphs'"),
        ({"data": [{"paragraphs": [{"qas": []}]}]}, r"data\[0\]\.paragraphs\[0\]: no context"),
        ({"data": [{"paragraphs": [{"context": "\ud83d", "qas": []}]}]}, r"paragraphs\[0\]: its context has half"),
        ({"data": [{"paragraphs": [{"context": "x"}]}]}, r"data\[0\]\.paragraphs\[0\]: no list 'qas'"),
    ],
)
def test_another_layout_is_named(tmp_path: Path, data: Any, message: str) -> None:
    with pytest.raises(TaskDataError, match=message):
        read(tmp_path / "a.json", data)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"data": "\xff"}')
    with pytest.raises(TaskDataError, match="byte 11 is not UTF-8"):
        list(SquadReader().read(str(tmp_path / "a.json"), BadRecords("a.json", "skip")))


def test_a_file_that_is_no_json_by_its_name_is_told_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Who wrote it?\n")
    with pytest.raises(TaskDataError, match=r"line 1: not JSON .*a qa task reads SQuAD's JSON"):
        list(SquadReader().read(str(tmp_path / "a.txt"), BadRecords(str(tmp_path / "a.txt"), "error")))
