"""Scores of a model folder on a split: what is counted, where predictions go, what a reranker is for.

Alone: pytest tests/orchestrator/inference/test_task_scores.py
"""

import json
from pathlib import Path

import pytest
import torch

from orchestrator.finetuning.building import build_model
from orchestrator.finetuning.model_folder import load_task_definition, save_model_folder
from orchestrator.finetuning.model_record import record_of
from orchestrator.inference.task_scores import Scoring, evaluate
from orchestrator.tasks import Task, load_task
from tests.orchestrator.finetuning import tiny_tasks
from tests.orchestrator.tasks.definitions import options_of


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return load_task(tiny_tasks.classification(tmp_path))


@pytest.fixture
def folder(tmp_path: Path, task: Task) -> str:
    """A model that always says no."""
    tokenizer = tiny_tasks.load_tokenizer(tmp_path)
    model = build_model(task, tiny_tasks.RECIPE, None, tokenizer)
    with torch.no_grad():
        model.classifier.bias[0] = 100.0  # type: ignore[union-attr, index]
    save_model_folder(model, tokenizer, record_of(task, options_of("classification")), str(tmp_path / "model"))
    return str(tmp_path / "model")


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
