"""Classification: windows of texts, classes from logits, scores of two classes and of more.

Alone: pytest tests/orchestrator/tasks/types/test_classification.py
"""

from typing import Any

import numpy as np
import pytest

from bert_core.text.tokenization import Tokenizer
from orchestrator.tasks import (
    Features,
    TaskDefinition,
    decode,
)
from orchestrator.tasks.types.classification import ClassificationExample, ClassPrediction
from tests.orchestrator.tasks.definitions import define, features_of


def window_texts(features: Features, tokenizer: Tokenizer) -> list[str]:
    bounds = zip(features.cu_seqlens[:-1], features.cu_seqlens[1:], strict=True)
    return [tokenizer.decode(features.input_ids[a:b].tolist(), skip_special_tokens=False) for a, b in bounds]


def make_task(head: Any, *labels: str) -> TaskDefinition:
    return define(head, labels)


def test_sentences_and_pairs_become_windows(tokenizer: Tokenizer) -> None:
    examples = [ClassificationExample("0", "The house", None, "b"), ClassificationExample("1", "a river", "the", "a")]
    features = features_of("classification", ("a", "b"), examples, tokenizer, max_seq_length=32)
    assert window_texts(features, tokenizer) == ["[CLS] the house [SEP]", "[CLS] a river [SEP] the [SEP]"]
    assert features.token_type_ids[features.cu_seqlens[1] :].tolist()[-2:] == [1, 1]
    assert features.token_type_ids.sum() == 2
    assert features.head_arrays.labels.tolist() == [1, 0]
    assert features.example_index.tolist() == [0, 1]


def test_special_tokens_written_in_a_text_are_text(tokenizer: Tokenizer) -> None:
    features = features_of(
        "classification", ("a", "b"), [ClassificationExample("0", "[SEP]")], tokenizer, max_seq_length=32
    )
    assert np.count_nonzero(features.input_ids == tokenizer.sep_id) == 1


def test_long_texts_fill_their_window_and_are_counted(tokenizer: Tokenizer) -> None:
    examples = [
        ClassificationExample("0", "the house " * 30, "a river " * 30, "a"),
        ClassificationExample("1", "the house " * 30, None, "a"),
        ClassificationExample("2", "the house", None, "a"),
    ]
    features = features_of("classification", ("a", "b"), examples, tokenizer, max_seq_length=16)
    assert features.lengths.tolist()[:2] == [16, 16]
    assert features.counts["num_truncated"] == 2


def test_classes_are_the_likeliest_with_probabilities(tokenizer: Tokenizer) -> None:
    task = make_task("classification", "no", "yes")
    examples = [ClassificationExample(str(i), "the house") for i in range(2)]
    features = features_of(task.head, task.labels, examples, tokenizer, max_seq_length=8)
    predictions = decode(task, features, examples, np.array([[0.0, np.log(3.0)], [900.0, -900.0]], np.float32))
    assert predictions[0] == ClassPrediction("yes", (pytest.approx(0.25), pytest.approx(0.75)))
    assert predictions[1] == ClassPrediction("no", (1.0, 0.0))
