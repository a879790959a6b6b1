"""Tiny models with random weights, documents and queries of the same few words."""

from pathlib import Path

import torch

from bert_core import BertConfig, BertForPreTraining, BertForSentenceEmbedding, BertForSequenceClassification
from bert_core.checkpoints.sentence_transformers import SentenceEmbeddingConfig
from bert_core.text.tokenizer_training import train_wordpiece

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


def save_pretrained(folder: Path) -> str:
    """A folder of a model that fills masks and follows sentences."""
    tokenizer = train_wordpiece([WORDS] * 3, vocab_size=200, min_frequency=1)
    model = BertForPreTraining.from_config(BertConfig(vocab_size=tokenizer.vocab_size, **CONFIG), seed=0)
    assert model.next_sentence is not None
    with torch.no_grad():
        model.next_sentence.bias += torch.tensor([0.1, -0.1])  # as training moves it
    model.save_pretrained(folder)
    tokenizer.save(folder)
    return str(folder)


def save_encoder(folder: Path, seed: int, num_positions: int = 24, max_seq_length: int = 12) -> str:
    """A folder of an encoder that embeds texts."""
    tokenizer = train_wordpiece([WORDS] * 3, vocab_size=200, min_frequency=1)
    config = BertConfig(vocab_size=tokenizer.vocab_size, **CONFIG | {"max_position_embeddings": num_positions})
    embedding = SentenceEmbeddingConfig(pooling="max", max_seq_length=max_seq_length)
    BertForSentenceEmbedding(config, seed, embedding).save_pretrained(folder)
    tokenizer.save(folder)
    return str(folder)


def save_pair_model(folder: Path, labels: list[str], num_positions: int = 24) -> str:
    """A folder of a model that classifies pairs of texts; with one label it gives a score."""
    tokenizer = train_wordpiece([WORDS] * 3, vocab_size=200, min_frequency=1)
    positions = {"max_position_embeddings": num_positions}
    config = BertConfig(vocab_size=tokenizer.vocab_size, **CONFIG | positions).with_labels(labels)
    BertForSequenceClassification.from_config(config, seed=2).save_pretrained(folder)
    tokenizer.save(folder)
    return str(folder)
