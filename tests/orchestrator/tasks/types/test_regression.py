"""Regression: values as labels and as outputs, own columns beside the tokens.

Alone: pytest tests/orchestrator/tasks/types/test_regression.py
"""

from typing import Any

import numpy as np

from bert_core.text.tokenization import Tokenizer
from orchestrator.tasks import (
    TabularColumns,
    TaskDefinition,
    decode,
)
from orchestrator.tasks.types.regression import RegressionExample, ValuePrediction
from tests.orchestrator.tasks.definitions import define, features_of


def make_task(head: Any, *labels: str) -> TaskDefinition:
    return define(head, labels)


def test_values_are_kept(tokenizer: Tokenizer) -> None:
    features = features_of("regression", (), [RegressionExample("0", "x", "y", 2.5)], tokenizer, max_seq_length=8)
    assert features.head_arrays.labels.dtype == np.float32
    assert features.head_arrays.labels.tolist() == [2.5]


def test_own_columns_stand_beside_the_tokens(tokenizer: Tokenizer) -> None:
    examples = [RegressionExample("0", "x", numbers=(size,)) for size in (1.0, 3.0, None)]
    columns = TabularColumns.learn(("size",), (), examples)
    features = features_of("regression", (), examples, tokenizer, max_seq_length=8, columns=columns)
    assert features.head_arrays.tabular_features.tolist() == [[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]


def test_values_come_flat_or_in_a_column(tokenizer: Tokenizer) -> None:
    task = make_task("regression")
    examples = [RegressionExample("0", "a")] * 2
    features = features_of(task.head, (), examples, tokenizer, max_seq_length=8)
    expected = [ValuePrediction(1.5), ValuePrediction(-2.0)]
    assert decode(task, features, examples, np.array([1.5, -2.0])) == expected
    assert decode(task, features, examples, np.array([[1.5], [-2.0]])) == expected
