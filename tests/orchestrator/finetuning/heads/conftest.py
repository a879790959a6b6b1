"""A tokenizer that has each word of the tiny tasks as one piece."""

import pytest

from bert_core.text.tokenization import Tokenizer
from tests.orchestrator.finetuning import tiny_tasks


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tiny_tasks.load_tokenizer(tmp_path_factory.mktemp("words"))
