"""A tokenizer of a few hundred pieces, trained on a handful of sentences."""

import pytest

from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_training import train_wordpiece
from tests.orchestrator.tasks.definitions import SENTENCES


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return train_wordpiece(SENTENCES * 4, vocab_size=250)
