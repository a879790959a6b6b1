"""Scores of a model on a split: what is counted, and the worst mistakes first.

Alone: pytest tests/orchestrator/inference/test_task_scores.py
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.finetuning.model_folder import load_task_definition
from orchestrator.inference.task_scores import Scoring, analyze_errors, evaluate, own_task_values
from orchestrator.tasks.loading import load_task
from orchestrator.tasks.task import Task
from orchestrator.tasks.types.classification import ClassPrediction
from tests.orchestrator.finetuning import tiny_tasks


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return load_task(tiny_tasks.classification(tmp_path))


def test_the_surest_mistakes_come_first_with_their_text(task: Task) -> None:
    examples = task.examples("validation")
    predictions = [ClassPrediction(example.label, (0.1, 0.9)) for example in examples]
    wrong = {"yes": "no", "no": "yes"}
    for number, sure in ((1, 0.6), (3, 0.8)):
        predictions[number] = ClassPrediction(wrong[examples[number].label], (1 - sure, sure))
    found = analyze_errors(task, "validation", predictions, 5)
    assert [row["id"] for row in found.mistakes] == [examples[3].id, examples[1].id]
    assert found.mistakes[0]["text"] == examples[3].text
    assert found.mistakes[0]["gold"] == examples[3].label
    few = analyze_errors(task, "validation", predictions, 1)
    assert (len(few.mistakes), few.num_mistakes, found.num_mistakes) == (1, 2, 2)


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
