"""Multiple choice: tables of choices, windows that stay together, a softmax over choices.

Alone: pytest tests/orchestrator/tasks/types/test_multiple_choice.py
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_core.errors import DataError
from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import TaskDataError
from orchestrator.tasks import (
    Features,
    TaskDefinition,
    decode,
)
from orchestrator.tasks.text_files import BadRecords
from orchestrator.tasks.types.multiple_choice import ChoicePrediction, MultipleChoiceExample, MultipleChoiceTable
from tests.orchestrator.tasks.definitions import define, features_of

ENDINGS = MultipleChoiceTable(("first", "begins"), ("left", "right"), "label")


def read(table: Any, path: Path, policy: Any = "error") -> list[Any]:
    return list(table.read(str(path), BadRecords(str(path), policy)))


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def window_texts(features: Features, tokenizer: Tokenizer) -> list[str]:
    bounds = zip(features.cu_seqlens[:-1], features.cu_seqlens[1:], strict=True)
    return [tokenizer.decode(features.input_ids[a:b].tolist(), skip_special_tokens=False) for a, b in bounds]


def make_task(head: Any, *labels: str) -> TaskDefinition:
    return define(head, labels)


@pytest.mark.parametrize("label", [1, "1", "right"])
def test_the_second_text_begins_every_choice_and_the_label_is_a_place_or_a_name(tmp_path: Path, label: object) -> None:
    record = {"first": "It rains.", "begins": "She", "left": "swims.", "right": "runs.", "label": label}
    (example,) = read(ENDINGS, write(tmp_path / "a.jsonl", record))
    assert example == MultipleChoiceExample("0", "It rains.", ("She swims.", "She runs."), 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": 2}, "label 2 is neither one of left, right nor a number from 0 to 1"),
        ({"label": None}, "label None is neither"),
        ({"right": None}, "right holds no text"),
        ({"begins": 5}, "begins holds no text"),
    ],
)
def test_a_broken_choice_is_named_or_left_out(tmp_path: Path, change: dict[str, object], message: str) -> None:
    record = {"first": "a", "begins": "b", "left": "c", "right": "d", "label": 0}
    path = write(tmp_path / "a.jsonl", record, {**record, **change})
    with pytest.raises(TaskDataError, match=f"line 2: {message}"):
        read(ENDINGS, path)
    assert len(read(ENDINGS, path, "skip")) == 1


def test_choices_are_windows_that_stay_together(tokenizer: Tokenizer) -> None:
    examples = [
        MultipleChoiceExample("0", "The house", ("a river", "the"), 1),
        MultipleChoiceExample("1", "a river " * 9, ("the", "the house")),
    ]
    features = features_of("multiple_choice", (), examples, tokenizer, max_seq_length=12)
    texts = window_texts(features, tokenizer)
    assert texts[:2] == ["[CLS] the house [SEP] a river [SEP]", "[CLS] the house [SEP] the [SEP]"]
    assert features.example_index.tolist() == [0, 0, 1, 1]
    assert features.head_arrays.labels.tolist() == [1, -100]
    assert features.counts["num_truncated"] == 1
    assert (features.group_size, len(features.group_lengths)) == (2, 2)
    assert features.group_lengths.sum() == len(features.input_ids)
    assert features.windows_of(np.array([1, 0])).tolist() == [2, 3, 0, 1]


def test_choices_share_their_probability_within_an_example(tokenizer: Tokenizer) -> None:
    task = make_task("multiple_choice")
    examples = [MultipleChoiceExample("0", "a", ("b", "c", "d")), MultipleChoiceExample("1", "a", ("b", "c"))]
    features = features_of(task.head, (), examples, tokenizer, max_seq_length=8)
    predictions = decode(task, features, examples, np.array([[0.0], [np.log(2.0)], [0.0], [5.0], [-900.0]], np.float32))
    assert predictions[0] == ChoicePrediction(1, (pytest.approx(0.25), pytest.approx(0.5), pytest.approx(0.25)))
    assert predictions[1] == ChoicePrediction(0, (1.0, 0.0))
    with pytest.raises(DataError, match="4 outputs for 5 choices"):
        decode(task, features, examples, np.zeros(4))
