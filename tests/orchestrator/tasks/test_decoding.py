"""Outputs that do not fit are named, whatever the task type.

Alone: pytest tests/orchestrator/tasks/test_decoding.py
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_core.errors import DataError
from bert_core.text.tokenization import Tokenizer
from orchestrator.specs import TaskSpec
from orchestrator.tasks import (
    Features,
    Task,
    TaskDefinition,
    decode,
    load_task,
    prepare_features,
)
from orchestrator.tasks.types.classification import ClassificationExample
from tests.orchestrator.tasks.definitions import define, features_of, options_of

CONTEXT = "Ada Lovelace wrote to Charles Babbage in London about the engine."


def make_task(head: Any, *labels: str) -> TaskDefinition:
    return define(head, labels)


@pytest.fixture
def questions(tmp_path: Path) -> Task:
    answer = {"text": "Charles Babbage", "answer_start": CONTEXT.index("Charles")}
    qas = [
        {"id": "a", "question": "Who?", "answers": [answer]},
        {"id": "b", "question": "Who?", "answers": []},
        {"id": "c", "question": "Who?", "answers": [answer]},
    ]
    path = tmp_path / "dev-v2.0.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": qas}]}]}), encoding="utf-8")
    return load_task(TaskSpec(id="squad_v2", folder=str(tmp_path)))


def prepare(task: Task, tokenizer: Tokenizer, tmp_path: Path) -> Features:
    lengths = {"max_seq_length": 20, "doc_stride": 6, "max_query_length": 8}
    return prepare_features(task, "validation", tokenizer, options_of("qa", **lengths), str(tmp_path / "cache"))


def test_outputs_that_do_not_fit_are_named(questions: Task, tokenizer: Tokenizer, tmp_path: Path) -> None:
    classes = make_task("classification", "no", "yes")
    examples = [ClassificationExample("0", "a")]
    features = features_of("classification", classes.labels, examples, tokenizer, max_seq_length=8)
    with pytest.raises(DataError, match="2 outputs for 1 examples"):
        decode(classes, features, examples, np.zeros((2, 2)))
    with pytest.raises(DataError, match=r"shape \(1, 3\); task mine has 2 classes"):
        decode(classes, features, examples, np.zeros((1, 3)))
    with pytest.raises(DataError, match="not finite; the model has diverged"):
        decode(classes, features, examples, np.full((1, 2), np.nan))
    with pytest.raises(DataError, match="start_logits, end_logits"):
        decode(questions, prepare(questions, tokenizer, tmp_path), questions.examples("validation"), np.zeros(3))
