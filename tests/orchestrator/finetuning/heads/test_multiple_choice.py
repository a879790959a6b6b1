"""The multiple-choice head: targets, cross entropy over an example's choices, and the tokens that it reads.

Alone: pytest tests/orchestrator/finetuning/heads/test_multiple_choice.py
"""

import pytest
import torch

from bert_core.text.tokenization import Tokenizer
from orchestrator.tasks.types.multiple_choice import MultipleChoiceExample
from tests.orchestrator.finetuning.heads.prepared import (
    Prepared,
    assert_logits_give_the_loss,
    assert_reads_the_first_token_of_each_window,
    assert_soft_loss_is_a_distance,
    prepare,
)


@pytest.fixture
def prepared(tokenizer: Tokenizer) -> Prepared:
    choices = ("the road", "a tree", "one stone")
    examples = [MultipleChoiceExample(str(label), "it is", choices, label) for label in (2, None, 0)]
    return prepare("multiple_choice", (), examples, tokenizer)


def test_targets_are_places_of_the_right_choices(prepared: Prepared) -> None:
    assert prepared.batch.targets.tolist() == [2, -100, 0]


def test_loss_is_the_cross_entropy_over_the_choices_of_an_example(prepared: Prepared) -> None:
    logits = prepared.logits(9)
    shares = logits.view(3, 3).softmax(dim=1)
    expected = -(shares[0, 2].log() + shares[2, 0].log()) / 2
    torch.testing.assert_close(prepared.head.loss(prepared.model(), logits, prepared.batch), expected)
    assert_logits_give_the_loss(prepared, (9,))


def test_soft_loss_is_a_distance(prepared: Prepared) -> None:
    assert_soft_loss_is_a_distance(prepared, 9)


def test_soft_loss_passes_over_what_all_choices_have_in_common(prepared: Prepared) -> None:
    logits = prepared.logits(9)
    shifted = logits + torch.tensor([5.0, -3.0, 0.0]).repeat_interleave(3)
    assert abs(prepared.head.soft_loss(shifted, logits, prepared.features, prepared.batch, 2.0)) < 1e-6


def test_the_first_token_is_read(prepared: Prepared) -> None:
    assert_reads_the_first_token_of_each_window(prepared)
