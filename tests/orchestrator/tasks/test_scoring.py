"""Scores, majority baselines, and rows with their texts. Alone: pytest tests/orchestrator/tasks/test_scoring.py"""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import TaskDataError
from orchestrator.registry.group_comparison import read_predictions
from orchestrator.specs import TaskSpec
from orchestrator.tasks.loading import load_task
from orchestrator.tasks.scoring import (
    KEPT_CHARACTERS,
    kept_rows,
    majority_baseline,
    prediction_rows,
    score,
    write_prediction_rows,
)
from orchestrator.tasks.task import Task
from orchestrator.tasks.types.classification import ClassPrediction
from orchestrator.tasks.types.multi_label import LabelsPrediction
from orchestrator.tasks.types.multiple_choice import ChoicePrediction
from orchestrator.tasks.types.ner import TagsPrediction
from orchestrator.tasks.types.qa import AnswerPrediction
from orchestrator.tasks.types.regression import ValuePrediction
from tests.orchestrator.tasks.definitions import write
from tests.shared_data import shared_file


def own_task(tmp_path: Path, head: Any, text: str, name: str, **fields: Any) -> Task:
    path = str(write(tmp_path / name, text))
    return load_task(TaskSpec(id="mine", head=head, files={"train": path, "validation": path}, **fields))


QUESTIONS = [
    {"id": "a", "question": "Who?", "answers": [{"text": "Ada L", "answer_start": 0}]},
    {"id": "b", "question": "Where?", "answers": [{"text": "in Oslo", "answer_start": 6}]},
]
TEXT: dict[str, Any] = {"text_columns": ("text",)}
OWN: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "classes": ("classification", "text,label\na,yes\nb,no\nc,yes\nd,yes\n", "a.csv", TEXT),
    "topics": ("multi_label", "text,label\na,x|y\nb,\nc,x\nd,z|x\n", "topics.csv", TEXT),
    "choices": (
        "multiple_choice",
        "text,left,right,label\na,b,c,1\na,b,c,left\na,b,c,right\n",
        "choices.csv",
        {**TEXT, "choice_columns": ("left", "right")},
    ),
    "values": ("regression", "text\tlabel\na\t1\nb\t2\nc\t6\n", "a.tsv", TEXT),
    "names": ("ner", "Ada I-PER\nL I-PER\nin O\nOslo I-LOC\n\nit O\n", "a.conll", {}),
    "answers": ("qa", json.dumps({"data": [{"context": "Ada L in Oslo", "qas": QUESTIONS}]}), "a.json", {}),
}


@pytest.fixture
def tasks(tmp_path: Path) -> dict[str, Task]:
    return {name: own_task(tmp_path, *own, **fields) for name, (*own, fields) in OWN.items()}


def test_f1_of_a_two_class_task_is_that_of_the_second_label(tasks: dict[str, Task]) -> None:
    classes = tasks["classes"]
    assert classes.labels == ("no", "yes")
    with pytest.raises(TaskDataError, match="3 predictions"):
        score(classes, "validation", [ClassPrediction("yes")] * 3)
    predictions = [ClassPrediction(label) for label in ("yes", "yes", "no", "no")]
    scores = score(classes, "validation", predictions)
    assert scores["f1"] == pytest.approx(2 * 1 / (2 + 3))
    assert scores["macro_f1"] == pytest.approx((0.4 + 0.0) / 2)


def test_several_labels_are_scored_one_by_one_and_together(tasks: dict[str, Task]) -> None:
    topics = tasks["topics"]
    assert topics.labels == ("x", "y", "z")
    said = [LabelsPrediction.from_probabilities(topics.labels, (0.9, 0.2, 0.6))] * 4
    scores = score(topics, "validation", said)
    assert scores == {
        "micro_f1": pytest.approx(2 * 4 / (8 + 5)),
        "macro_f1": pytest.approx((6 / 7 + 0.0 + 2 / 5) / 3),
        "subset_accuracy": 0.25,
        "label_ranking_average_precision": pytest.approx((5 / 6 + 1 + 1 + 1) / 4),
    }


def test_types_of_entities_are_scored_beside_the_whole(tasks: dict[str, Task]) -> None:
    names = tasks["names"]
    predictions = [TagsPrediction(("B-PER", "I-PER", "O", "O")), TagsPrediction(("O",))]
    scores = score(names, "validation", predictions)
    assert (scores["precision"], scores["recall"]) == (1.0, 0.5)
    assert (scores["f1_PER"], scores["f1_LOC"]) == (1.0, 0.0)


BASELINES: dict[str, dict[str, float]] = {
    "classes": {"accuracy": 0.75},
    "topics": {"micro_f1": 2 * 3 / (4 + 5)},  # three of four have the label x, the others are rarer than one half
    "choices": {"accuracy": 2 / 3},
    "values": {"pearson": 0.0, "spearman": 0.0},
    "names": {"f1": 0.0},
    "answers": {"exact_match": 0.5, "f1": 0.5},  # half have two words at most, so the passage's first two are said
}


def test_majority_baselines_are_those_of_the_training_split(tasks: dict[str, Task]) -> None:
    for name, expected in BASELINES.items():
        scores = majority_baseline(tasks[name], "validation")
        assert {key: scores[key] for key in expected} == pytest.approx(expected), name


def test_no_answer_is_the_baseline_where_questions_may_be_unanswerable(tmp_path: Path) -> None:
    text = json.dumps({"data": [{"context": "Ada", "qas": [{"id": "a", "question": "Who?", "answers": []}]}]})
    assert majority_baseline(own_task(tmp_path, "qa", text, "a.json"), "validation")["NoAns_exact"] == 1.0


PUBLISHED = {
    "sst2": ("glue/SST-2", {"accuracy": 444 / 872}),
    "mrpc": ("glue/MRPC", {"accuracy": 279 / 408, "f1": 2 * 279 / (279 + 408)}),
}


@pytest.mark.parametrize("task_id", PUBLISHED)
@pytest.mark.heavy
def test_published_majority_baselines(task_id: str) -> None:
    folder, expected = PUBLISHED[task_id]
    task = load_task(TaskSpec(id=task_id, folder=str(shared_file(folder))))
    assert majority_baseline(task, "validation") == pytest.approx(expected)


def test_rows_say_what_was_right_and_how_likely_it_was(tasks: dict[str, Task]) -> None:
    classes, topics, values, names, answers = (tasks[name] for name in OWN if name != "choices")
    first, second, *_ = prediction_rows(classes, "validation", [ClassPrediction("yes", (0.25, 0.75))] * 4)
    assert (first["correct"], second["correct"]) == (True, False)
    assert first["probabilities"] == {"no": 0.25, "yes": 0.75}
    said = [LabelsPrediction.from_probabilities(topics.labels, (0.9, 0.1, 0.9))] * 4
    last = prediction_rows(topics, "validation", said)[3]
    assert (last["prediction"], last["gold"], last["correct"]) == (["x", "z"], ["z", "x"], True)
    assert prediction_rows(values, "validation", [ValuePrediction(6.0)] * 3)[2]["error"] == 0.0
    tagged = prediction_rows(names, "validation", [TagsPrediction(("O",) * 4), TagsPrediction(("O",))])[1]
    assert tagged == {"id": "1", "words": ["it"], "prediction": ["O"], "gold": ["O"], "correct": True}
    questions = prediction_rows(answers, "validation", [AnswerPrediction("Ada"), AnswerPrediction("")])
    assert [(row["exact_match"], row["f1"]) for row in questions] == [(0.0, pytest.approx(2 / 3)), (0.0, 0.0)]


LONG = "word " * 200
BREAKS = "a\u2028b\u2029c\x85d"
"""Characters that end a line for `str.splitlines`, and for no reader of JSON lines."""


@pytest.fixture
def pairs(tmp_path: Path) -> Task:
    rows = [{"a": "It rains.", "b": LONG, "label": "no"}, {"a": BREAKS, "b": "The same.", "label": "yes"}]
    text = "\n".join(map(json.dumps, rows))
    return own_task(tmp_path, "classification", text, "a.jsonl", text_columns=("a", "b"))


GIVEN = [ClassPrediction("yes", (0.25, 0.75)), ClassPrediction("yes", (0.25, 0.75))]
"""Predictions for both pairs, the first of them wrong."""


def test_a_kept_row_says_both_texts_of_a_pair_the_long_one_cut_and_an_own_file_all_of_it(pairs: Task) -> None:
    first = kept_rows(pairs, "validation", GIVEN)[0]
    assert list(first)[:3] == ["id", "text", "text_pair"]
    assert (first["text"], first["prediction"], first["gold"]) == ("It rains.", "yes", "no")
    assert len(first["text_pair"]) == KEPT_CHARACTERS
    assert first["text_pair"] == LONG[: KEPT_CHARACTERS - 1] + "…"
    assert prediction_rows(pairs, "validation", GIVEN)[0]["text_pair"] == LONG


def test_choices_are_kept_up_to_a_length_that_they_have_together(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"text": "a", "x": "b", "y": "c", "label": 1}]
    rows.append({"text": "a", "x": LONG, "y": "never", "label": 0})
    columns = {"text_columns": ("text",), "choice_columns": ("x", "y")}
    task = own_task(tmp_path, "multiple_choice", "\n".join(map(json.dumps, rows)), "a.jsonl", **columns)
    few, many = kept_rows(task, "validation", [ChoicePrediction(0, (0.5, 0.5))] * 2)
    assert few["choices"] == ["b", "c"]
    assert many["choices"] == [LONG[: KEPT_CHARACTERS - 1] + "…", "…"]


def test_a_row_that_says_its_question_by_itself_gets_no_whole_passage(tmp_path: Path) -> None:
    question = {"id": "q", "question": "What?", "answers": [{"text": "word", "answer_start": 0}]}
    text = json.dumps({"data": [{"paragraphs": [{"context": LONG, "qas": [question]}]}]})
    task = own_task(tmp_path, "qa", text, "squad.json")
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
