"""The regression head: targets, squared distance, and the tokens that it reads.

Alone: pytest tests/orchestrator/finetuning/heads/test_regression.py
"""

import pytest
import torch

from bert_core.text.tokenization import Tokenizer
from orchestrator.tasks.types.regression import RegressionExample
from tests.orchestrator.finetuning.heads.prepared import (
    Prepared,
    assert_logits_give_the_loss,
    assert_reads_the_first_token_of_each_window,
    assert_soft_loss_is_a_distance,
    prepare,
)


@pytest.fixture
def prepared(tokenizer: Tokenizer) -> Prepared:
    examples = [RegressionExample("0", "plus", value=1.5), RegressionExample("1", "a tree", value=-2.0)]
    return prepare("regression", (), examples, tokenizer)


def test_targets_are_the_numbers(prepared: Prepared) -> None:
    assert prepared.batch.targets.tolist() == [1.5, -2.0]


def test_loss_is_the_squared_distance_of_one_output(prepared: Prepared) -> None:
    logits = prepared.logits(2, 1)
    expected = ((logits[0, 0] - 1.5) ** 2 + (logits[1, 0] + 2.0) ** 2) / 2
    torch.testing.assert_close(prepared.head.loss(prepared.model(), logits, prepared.batch), expected)
    assert_logits_give_the_loss(prepared, (2, 1))


def test_soft_loss_is_a_distance(prepared: Prepared) -> None:
    assert_soft_loss_is_a_distance(prepared, 2, 1)


def test_the_first_token_is_read(prepared: Prepared) -> None:
    assert_reads_the_first_token_of_each_window(prepared)
