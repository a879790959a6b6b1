"""The classification head: targets, cross entropy, and the tokens that it reads.

Alone: pytest tests/orchestrator/finetuning/heads/test_classification.py
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bert_core.text.tokenization import Tokenizer
from orchestrator.tasks.tabular_columns import NumericalColumn, TabularColumns
from orchestrator.tasks.types.classification import ClassificationExample
from tests.orchestrator.finetuning.heads.prepared import (
    Prepared,
    assert_logits_give_the_loss,
    assert_reads_the_first_token_of_each_window,
    assert_soft_loss_is_a_distance,
    prepare,
)

EXAMPLES = [
    ClassificationExample("0", "the good road", label="yes"),
    ClassificationExample("1", "a tree"),
    ClassificationExample("2", "bad", "the river", label="no"),
]


@pytest.fixture
def prepared(tokenizer: Tokenizer) -> Prepared:
    return prepare("classification", ("no", "yes"), EXAMPLES, tokenizer)


def test_targets_are_numbers_of_classes_and_unknown_ones_are_ignored(prepared: Prepared) -> None:
    assert prepared.batch.targets.tolist() == [1, -100, 0]


def test_loss_is_the_cross_entropy_of_the_known_classes(prepared: Prepared) -> None:
    logits = prepared.logits(3, 2)
    log_shares = logits - logits.exp().sum(dim=1, keepdim=True).log()
    expected = -(log_shares[0, 1] + log_shares[2, 0]) / 2
    torch.testing.assert_close(prepared.head.loss(prepared.model(), logits, prepared.batch), expected)
    assert_logits_give_the_loss(prepared, (3, 2))


def test_soft_loss_is_a_distance(prepared: Prepared) -> None:
    assert_soft_loss_is_a_distance(prepared, 3, 2)


def test_the_first_token_is_read(prepared: Prepared) -> None:
    assert_reads_the_first_token_of_each_window(prepared)


def test_own_columns_stand_beside_each_window(tokenizer: Tokenizer) -> None:
    columns = TabularColumns((NumericalColumn("size", mean=2.0, standard_deviation=4.0),))
    examples = [replace(example, numbers=(size,)) for example, size in zip(EXAMPLES, (6.0, None, 0.0), strict=True)]
    beside = prepare("classification", ("no", "yes"), examples, tokenizer, columns=columns)
    found = beside.head.tabular_features(beside.features, np.array([2, 0, 1]))
    np.testing.assert_array_equal(found, np.array([[-0.5, 0.0], [1.0, 0.0], [0.0, 1.0]], np.float32))
