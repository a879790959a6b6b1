"""The head for several labels: targets, binary cross entropy, and the tokens that it reads.

Alone: pytest tests/orchestrator/finetuning/heads/test_multi_label.py
"""

import pytest
import torch

from bert_core.text.tokenization import Tokenizer
from orchestrator.tasks.types.multi_label import MultiLabelExample
from tests.orchestrator.finetuning.heads.prepared import (
    Prepared,
    assert_logits_give_the_loss,
    assert_reads_the_first_token_of_each_window,
    assert_soft_loss_is_a_distance,
    prepare,
)


@pytest.fixture
def prepared(tokenizer: Tokenizer) -> Prepared:
    examples = [
        MultiLabelExample("0", "the good plus road", labels=("plus", "good")),
        MultiLabelExample("1", "a tree", labels=()),
    ]
    return prepare("multi_label", ("bad", "good", "plus"), examples, tokenizer)


def test_targets_say_of_each_label_whether_it_is_there(prepared: Prepared) -> None:
    targets = prepared.batch.targets
    assert targets.tolist() == [[0.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    assert targets.dtype == torch.float32


def test_loss_is_the_binary_cross_entropy_over_texts_and_labels(prepared: Prepared) -> None:
    logits, is_there = prepared.logits(2, 3), prepared.batch.targets.bool()
    expected = -torch.where(is_there, logits.sigmoid(), 1 - logits.sigmoid()).log().mean()
    torch.testing.assert_close(prepared.head.loss(prepared.model(), logits, prepared.batch), expected)
    assert_logits_give_the_loss(prepared, (2, 3))


def test_soft_loss_is_a_distance(prepared: Prepared) -> None:
    assert_soft_loss_is_a_distance(prepared, 2, 3)


def test_soft_loss_is_the_divergence_of_each_label_from_its_absence(prepared: Prepared) -> None:
    student, teacher = prepared.logits(2, 3), prepared.logits(2, 3, seed=1)
    ours, theirs = student.sigmoid(), teacher.sigmoid()
    expected = (theirs * (theirs / ours).log() + (1 - theirs) * ((1 - theirs) / (1 - ours)).log()).mean()
    found = prepared.head.soft_loss(student, teacher, prepared.features, prepared.batch, 1.0)
    torch.testing.assert_close(found, expected)


def test_the_first_token_is_read(prepared: Prepared) -> None:
    assert_reads_the_first_token_of_each_window(prepared)
