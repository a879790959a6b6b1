"""Outputs that do not fit are named, whatever the task type.

Alone: pytest tests/orchestrator/tasks/test_decoding.py
"""

from typing import Any

import numpy as np
import pytest

from bert_core.errors import DataError
from bert_core.text.tokenization import Tokenizer
from orchestrator.tasks import (
    TaskDefinition,
    decode,
)
from orchestrator.tasks.types.classification import ClassificationExample
from tests.orchestrator.tasks.definitions import define, features_of

CONTEXT = "Ada Lovelace wrote to Charles Babbage in London about the engine."


def make_task(head: Any, *labels: str) -> TaskDefinition:
    return define(head, labels)


def test_outputs_that_do_not_fit_are_named(tokenizer: Tokenizer) -> None:
    classes = make_task("classification", "no", "yes")
    examples = [ClassificationExample("0", "a")]
    features = features_of("classification", classes.labels, examples, tokenizer, max_seq_length=8)
    with pytest.raises(DataError, match="2 outputs for 1 examples"):
        decode(classes, features, examples, np.zeros((2, 2)))
    with pytest.raises(DataError, match=r"shape \(1, 3\); task mine has 2 classes"):
        decode(classes, features, examples, np.zeros((1, 3)))
    with pytest.raises(DataError, match="not finite; the model has diverged"):
        decode(classes, features, examples, np.full((1, 2), np.nan))
