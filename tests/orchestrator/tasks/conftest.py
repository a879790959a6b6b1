"""A tokenizer of a few hundred pieces, learnt from a handful of sentences."""

import pytest

from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_training import train_wordpiece

SENTENCES = [
    "The old house stands by the river near Oslo.",
    "Ada Lovelace wrote to Charles Babbage in London about the engine.",
    "A small engine drives the mill, and the miller sells flour in 1843.",
    "It rained for nine days; nobody left the house.",
]


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return train_wordpiece(SENTENCES * 4, vocab_size=250)
