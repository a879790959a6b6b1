"""The head for sentence selection: targets, binary cross entropy over sentences, and the tokens that it reads.

Alone: pytest tests/orchestrator/finetuning/heads/test_sentence_selection.py
"""

import pytest
import torch

from bert_core.text.tokenization import Tokenizer
from orchestrator.tasks.types.sentence_selection import SentencesExample
from tests.orchestrator.finetuning.heads.prepared import (
    CONFIG,
    Prepared,
    assert_logits_give_the_loss,
    assert_soft_loss_is_a_distance,
    prepare,
)

STARTS = [0, 3, 10]
"""First tokens of the scored sentences: of `[CLS] anna [SEP] [CLS] a tree [SEP]`, and of `[CLS] what [SEP] [CLS] road
[SEP]`, where `what` is a query."""


@pytest.fixture
def prepared(tokenizer: Tokenizer) -> Prepared:
    examples = [
        SentencesExample("0", ("anna", "a tree"), selected=(1,)),
        SentencesExample("1", ("road",), query="what", selected=(0,)),
    ]
    return prepare("sentence_selection", (), examples, tokenizer)


def test_targets_stand_on_the_first_tokens_of_sentences(prepared: Prepared) -> None:
    targets = prepared.batch.targets
    assert targets[STARTS].tolist() == [0, 1, 1]
    assert (targets >= 0).nonzero().flatten().tolist() == STARTS


def test_loss_is_the_binary_cross_entropy_of_sentences(prepared: Prepared) -> None:
    logits = prepared.logits(13)
    shares = logits[STARTS].sigmoid()
    expected = -((1 - shares[0]).log() + shares[1].log() + shares[2].log()) / 3
    torch.testing.assert_close(prepared.head.loss(prepared.model(), logits, prepared.batch), expected)
    assert_logits_give_the_loss(prepared, (13,))


def test_soft_loss_is_a_distance(prepared: Prepared) -> None:
    assert_soft_loss_is_a_distance(prepared, 13)


def test_soft_loss_passes_over_tokens_that_begin_no_sentence(prepared: Prepared) -> None:
    teacher, student = prepared.logits(13), prepared.logits(13, seed=1)
    student[STARTS] = teacher[STARTS]
    assert abs(prepared.head.soft_loss(student, teacher, prepared.features, prepared.batch, 1.0)) < 1e-6


def test_first_tokens_of_sentences_and_windows_are_read(prepared: Prepared) -> None:
    found = prepared.head.tokens_read(CONFIG, prepared.features)
    assert found is not None
    assert found.tolist() == sorted({*STARTS, *prepared.features.cu_seqlens[:-1].tolist()})
