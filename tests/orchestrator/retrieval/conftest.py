"""A tiny encoder with random weights, a model of pairs on it, a few documents, and queries with judgments."""

import json
from pathlib import Path

import pytest

from bert_core import BertConfig, BertForSentenceEmbedding, BertForSequenceClassification
from bert_core.checkpoints.sentence_transformers import SentenceEmbeddingConfig
from bert_core.text.tokenizer_training import train_wordpiece
from orchestrator.specs import TaskSpec

WORDS = "cats rest on the mat and wings lift planes while rain falls into a cold river near old stones"
DOCUMENTS = [
    {"_id": "a", "title": "cats", "text": "rest on the mat"},
    {"_id": "b", "title": "", "text": "wings lift planes"},
    {"_id": "c", "title": "", "text": ""},
    {"_id": "d", "text": "rain falls into a cold river"},
]
QUERIES = [{"_id": "q1", "text": "a cold mat"}, {"_id": "q2", "text": "planes"}]
JUDGMENTS = ["query-id\tcorpus-id\tscore", "q1\ta\t1", "q1\tb\t0", "q1\tc\t1", "q2\tb\t4"]
CONFIG = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 24,
}


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return _encoder(tmp_path_factory.mktemp("models") / "encoder", seed=0)


@pytest.fixture(scope="session")
def other_encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return _encoder(tmp_path_factory.mktemp("models") / "other", seed=1)


@pytest.fixture(scope="session")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that gives a pair a score."""
    return _pair_model(tmp_path_factory.mktemp("models") / "scorer", ["score"])


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that gives a pair a class."""
    return _pair_model(tmp_path_factory.mktemp("models") / "classifier", ["no", "yes"])


@pytest.fixture
def documents(tmp_path: Path) -> str:
    """A file of four documents, of which one has no text, with a blank line between them."""
    path = tmp_path / "documents.jsonl"
    path.write_text("\n\n".join(json.dumps(document) for document in DOCUMENTS))
    return str(path)


@pytest.fixture
def collection(documents: str, tmp_path: Path) -> TaskSpec:
    """A task of two queries over these documents, one of whose relevant documents has no text."""
    folder = tmp_path / "collection"
    folder.mkdir()
    Path(documents).rename(folder / "corpus.jsonl")
    (folder / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in QUERIES))
    (folder / "qrels.tsv").write_text("\n".join(JUDGMENTS) + "\n")
    return TaskSpec(id="own", head="retrieval", folder=str(folder))


def _encoder(folder: Path, seed: int) -> str:
    tokenizer = train_wordpiece([WORDS] * 3, vocab_size=200, min_frequency=1)
    config = BertConfig(vocab_size=tokenizer.vocab_size, **CONFIG)
    embedding = SentenceEmbeddingConfig(pooling="max", max_seq_length=12)
    BertForSentenceEmbedding(config, seed, embedding).save_pretrained(folder)
    tokenizer.save(folder)
    return str(folder)


def _pair_model(folder: Path, labels: list[str]) -> str:
    tokenizer = train_wordpiece([WORDS] * 3, vocab_size=200, min_frequency=1)
    config = BertConfig(vocab_size=tokenizer.vocab_size, **CONFIG).with_labels(labels)
    BertForSequenceClassification.from_config(config, seed=2).save_pretrained(folder)
    tokenizer.save(folder)
    return str(folder)
