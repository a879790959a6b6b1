"""Scores of a model on a split: what is counted, tables of each task type, and the worst mistakes first.

Alone: pytest tests/orchestrator/inference/test_task_scores.py
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.finetuning.model_folder import load_task_definition
from orchestrator.inference.task_scores import Scoring, analyze_errors, evaluate, own_task_values
from orchestrator.results import EvaluationResult
from orchestrator.tasks import Task, load_task
from orchestrator.tasks.types.classification import ClassificationExample, ClassPrediction
from orchestrator.tasks.types.conll import NerExample
from orchestrator.tasks.types.multi_label import LabelsPrediction, MultiLabelExample
from orchestrator.tasks.types.ner import TagsPrediction
from orchestrator.tasks.types.qa import AnswerPrediction
from orchestrator.tasks.types.regression import RegressionExample, ValuePrediction
from orchestrator.tasks.types.squad import Answer, QaExample
from tests.orchestrator.finetuning import tiny_tasks
from tests.orchestrator.tasks.definitions import define


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return load_task(tiny_tasks.classification(tmp_path))


def test_the_surest_mistakes_come_first_with_their_text(task: Task) -> None:
    examples = task.examples("validation")
    predictions = [ClassPrediction(example.label, (0.1, 0.9)) for example in examples]
    wrong = {"yes": "no", "no": "yes"}
    for number, sure in ((1, 0.6), (3, 0.8)):
        predictions[number] = ClassPrediction(wrong[examples[number].label], (1 - sure, sure))
    found = analyze_errors(EvaluationResult("words", "validation", {}, 4), task, "validation", predictions, 5)
    assert [row["id"] for row in found.mistakes] == [examples[3].id, examples[1].id]
    assert found.mistakes[0]["text"] == examples[3].text
    assert found.mistakes[0]["gold"] == examples[3].label
    few = analyze_errors(found.result, task, "validation", predictions, 1)
    assert (len(few.mistakes), few.num_mistakes, found.num_mistakes) == (1, 2, 2)


def test_classes_have_scores_and_confusions() -> None:
    task = define("classification", ("a", "b"))
    examples = [ClassificationExample(str(n), "x", label=label) for n, label in enumerate("aab")]
    tables = task.type.breakdown(task, examples, [ClassPrediction(label) for label in "abb"])
    assert tables["classes"][0] == {"label": "a", "precision": 1.0, "recall": 0.5, "f1": 2 / 3, "support": 2}
    assert tables["confusions"] == [{"gold": "a", "a": 1, "b": 1}, {"gold": "b", "a": 0, "b": 1}]


def test_labels_of_which_several_hold_have_scores_of_their_own() -> None:
    task = define("multi_label", ("a", "b"))
    examples = [MultiLabelExample("0", "x", labels=("a", "b")), MultiLabelExample("1", "x", labels=())]
    predictions = [LabelsPrediction(("a",), (0.9, 0.1)), LabelsPrediction(("a",), (0.9, 0.1))]
    rows = task.type.breakdown(task, examples, predictions)["classes"]
    assert [(row["label"], row["precision"], row["recall"], row["support"]) for row in rows] == [
        ("a", 0.5, 1.0, 1),
        ("b", 0.0, 0.0, 1),
    ]


def test_entities_have_scores_and_sentences_are_ranked_by_wrong_words() -> None:
    task = define("ner", ("O", "B-PER", "I-PER"))
    example = NerExample("0", ("Ann", "Lee", "runs"), ("B-PER", "I-PER", "O"))
    right, wrong = TagsPrediction(example.tags), TagsPrediction(("B-PER", "O", "B-PER"))
    (row,) = task.type.breakdown(task, [example], [right])["entities"]
    assert row == {"entity": "PER", "precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 1}
    assert (task.type.wrongness(task, example, right), task.type.wrongness(task, example, wrong)) == (0, 2)


def test_questions_without_an_answer_are_counted_apart() -> None:
    task = define("qa", ())
    examples = [QaExample("0", "Who?", "Ann runs.", (Answer("Ann", 0),)), QaExample("1", "When?", "Ann runs.")]
    rows = task.type.breakdown(task, examples, [AnswerPrediction("Ann"), AnswerPrediction("runs")])["questions"]
    assert [(row["questions"], row["number"], row["answered"], row["f1"]) for row in rows] == [
        ("with an answer", 1, 1, 1.0),
        ("without an answer", 1, 1, 0.0),
    ]


def test_a_value_is_as_wrong_as_it_is_far_off() -> None:
    task = define("regression", ())
    assert task.type.wrongness(task, RegressionExample("0", "x", value=2.0), ValuePrediction(0.5)) == 1.5


@pytest.fixture
def folder(tmp_path: Path, task: Task) -> str:
    """A model that always says no."""
    return tiny_tasks.save_fine_tuned(tmp_path, task, labels=("no", "yes"))


def test_a_split_is_scored_and_its_predictions_are_kept(folder: str, task: Task, tmp_path: Path) -> None:
    path = str(tmp_path / "predictions.jsonl")
    result = evaluate(Scoring(folder, task, "validation", str(tmp_path / "storage"), predictions=path))
    gold = [example.label for example in task.examples("validation")]
    assert result.metrics["accuracy"] == gold.count("no") / len(gold)
    assert (result.task, result.split, result.num_examples) == ("words", "validation", len(gold))
    rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    assert [row["gold"] for row in rows] == gold
    assert {row["prediction"] for row in rows} == {"no"}


def test_predictions_are_written_only_where_asked(folder: str, task: Task, tmp_path: Path) -> None:
    before = set(tmp_path.rglob("*.jsonl"))
    evaluate(Scoring(folder, task, "validation", str(tmp_path / "storage")))
    assert set(tmp_path.rglob("*.jsonl")) == before


def test_a_models_folder_tells_which_columns_it_was_trained_on(folder: str, task: Task) -> None:
    assert task.text_columns
    assert load_task_definition(Path(folder)).text_columns == task.text_columns


OWN = {"id": "mine", "head": "ner", "files": {"validation": "dev.conll"}, "max_validation_examples": 5}
KNOWN = {"id": "sst2", "folder": "data/sst2"}


@pytest.mark.parametrize(
    ("recorded", "task", "overrides", "found"),
    [
        (OWN, "mine", (), OWN),
        (OWN, "mine", ("max_validation_examples=9",), OWN),
        (OWN, "mine", ("files.validation=new.conll",), {name: OWN[name] for name in ("id", "head", "files")}),
        (OWN, "other", (), None),
        (KNOWN, "sst2", ("folder=elsewhere",), None),
        (None, "mine", (), None),
    ],
)
def test_other_files_are_scored_as_the_recorded_task(
    recorded: dict[str, Any] | None, task: str, overrides: Sequence[str], found: dict[str, Any] | None
) -> None:
    assert own_task_values(recorded, task, overrides) == found
