"""The question-answering head: targets, cross entropy within a window, and the tokens that it reads.

Alone: pytest tests/orchestrator/finetuning/heads/test_qa.py
"""

import pytest
import torch

from bert_core.text.tokenization import Tokenizer
from orchestrator.tasks.types.squad import Answer, QaExample
from tests.orchestrator.finetuning.heads.prepared import (
    CONFIG,
    Prepared,
    assert_logits_give_the_loss,
    assert_soft_loss_is_a_distance,
    prepare,
)


@pytest.fixture
def prepared(tokenizer: Tokenizer) -> Prepared:
    """Windows of `[CLS] what [SEP] the anna [SEP]`, and of the same with one token more."""
    examples = [
        QaExample("0", "what", "the anna", (Answer("anna", 4),)),
        QaExample("1", "what", "the old road", ()),
    ]
    return prepare("qa", (), examples, tokenizer)


def test_targets_are_the_answers_tokens_or_the_first_token_of_all(prepared: Prepared) -> None:
    assert prepared.features.lengths.tolist() == [6, 7]
    assert prepared.batch.targets.tolist() == [[4, 4], [0, 0]]


def test_loss_is_the_cross_entropy_of_both_ends_within_a_window(prepared: Prepared) -> None:
    logits = prepared.logits(13, 2)
    first, second = (window.log_softmax(dim=0) for window in logits.split([6, 7]))
    expected = -(first[4].sum() + second[0].sum()) / 4
    torch.testing.assert_close(prepared.head.loss(prepared.model(), logits, prepared.batch), expected)
    assert_logits_give_the_loss(prepared, (13, 2))


def test_soft_loss_is_a_distance(prepared: Prepared) -> None:
    assert_soft_loss_is_a_distance(prepared, 13, 2)


def test_every_token_is_read(prepared: Prepared) -> None:
    assert prepared.head.tokens_read(CONFIG, prepared.features) is None
