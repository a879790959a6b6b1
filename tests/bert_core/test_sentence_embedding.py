"""Sentence embeddings: pooling against a loop over texts, folders against sentence-transformers, real weights.

Alone: pytest tests/bert_core/test_sentence_embedding.py
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from bert_core.checkpoints.sentence_transformers import POOLINGS, SentenceEmbeddingConfig
from bert_core.config import BertConfig
from bert_core.errors import CheckpointError
from bert_core.heads import BertForSentenceEmbedding
from bert_core.heads.sentence_embedding import pool_tokens
from bert_core.model import BertModel
from bert_core.text.tokenization import Tokenizer
from bert_core.text_embedding import TextEmbedder
from tests.bert_core.reference import ragged_batch, scattered, small_config

CONFIG = small_config()
EMBEDDINGS = [SentenceEmbeddingConfig(pooling, normalize=pooling != "max") for pooling in POOLINGS]
TEXTS = ["a man is eating", "hello", "a b c d e f g h i j k l m n o p q r s t u v w x y z"]


def reference_pooling(rows: list[Tensor], pooling: str) -> Tensor:
    """Text by text: (B, H)."""
    of_one = {"mean": lambda row: row.mean(0), "cls": lambda row: row[0], "max": lambda row: row.max(0).values}
    return torch.stack([of_one[pooling](row) for row in rows])


@pytest.mark.parametrize("pooling", ["mean", "max"])
@settings(max_examples=15)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_pooling_agrees_with_a_loop_over_texts(pooling: str, lengths: list[int], seed: int) -> None:
    hidden = torch.randn(sum(lengths), 5, generator=torch.Generator().manual_seed(seed), requires_grad=True)
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).int()
    pooled = pool_tokens(hidden, cu_seqlens, pooling)
    expected = reference_pooling(list(hidden.split(lengths)), pooling)
    torch.testing.assert_close(pooled, expected)
    weights = torch.randn(pooled.shape, generator=torch.Generator().manual_seed(seed + 1))
    ours, theirs = (torch.autograd.grad((value * weights).sum(), hidden)[0] for value in (pooled, expected))
    torch.testing.assert_close(ours, theirs)


def test_pooling_of_half_precision_adds_in_float32() -> None:
    hidden = torch.full((3000, 1), 1.0, dtype=torch.bfloat16)  # a sum in bfloat16 would stop at 256
    assert pool_tokens(hidden, torch.tensor([0, 3000]), "mean").tolist() == [[1.0]]


@pytest.mark.parametrize("embedding", EMBEDDINGS, ids=POOLINGS)
def test_padding_changes_nothing(embedding: SentenceEmbeddingConfig) -> None:
    model = BertForSentenceEmbedding(CONFIG, 0, embedding).eval()
    batch = ragged_batch(CONFIG, [4, 9, 1], 12)
    together = model(**batch).sentence_embedding
    alone = [model(**{k: v[i : i + 1, :n] for k, v in batch.items()}) for i, n in enumerate([4, 9, 1])]
    torch.testing.assert_close(together, torch.cat([output.sentence_embedding for output in alone]))
    if embedding.normalize:
        torch.testing.assert_close(together.norm(dim=1), torch.ones(3))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_padded_interface_agrees_with_the_encoder_of_the_same_weights(pooling: str) -> None:
    model = scattered(BertForSentenceEmbedding(CONFIG, embedding=SentenceEmbeddingConfig(pooling))).eval()
    encoder = BertModel(CONFIG, with_pooler=False).eval()
    encoder.load_state_dict(model.bert.state_dict())
    batch = ragged_batch(CONFIG, [4, 7], 7)
    seqs = encoder.pack(**batch)
    expected = reference_pooling(list(encoder.encode(seqs).split([4, 7])), pooling)
    torch.testing.assert_close(model(**batch).sentence_embedding, expected)


@pytest.mark.parametrize("embedding", EMBEDDINGS, ids=POOLINGS)
def test_a_folder_comes_back_whole(embedding: SentenceEmbeddingConfig, tmp_path: Path) -> None:
    model = scattered(BertForSentenceEmbedding(CONFIG, 0, embedding)).eval()
    model.save_pretrained(tmp_path)
    again = BertForSentenceEmbedding.from_pretrained(tmp_path)
    assert again.embedding == embedding
    assert again.load_report is not None
    assert again.load_report.dropped == again.load_report.initialized == ()
    batch = ragged_batch(CONFIG, [4, 7], 7)
    assert torch.equal(again(**batch).sentence_embedding, model(**batch).sentence_embedding)


def test_the_folder_is_an_encoders(tmp_path: Path) -> None:
    BertForSentenceEmbedding(CONFIG).save_pretrained(tmp_path)
    assert "embeddings.word_embeddings.weight" in load_file(tmp_path / "model.safetensors")
    assert BertModel.from_pretrained(tmp_path).config == CONFIG


def test_an_encoders_folder_gives_the_mean(tmp_path: Path) -> None:
    BertModel(CONFIG).save_pretrained(tmp_path)
    assert BertForSentenceEmbedding.from_pretrained(tmp_path).embedding == SentenceEmbeddingConfig()


def test_a_pooling_that_was_altered_is_found(tmp_path: Path) -> None:
    BertForSentenceEmbedding(CONFIG).save_pretrained(tmp_path)
    file = tmp_path / "1_Pooling/config.json"
    file.write_text(file.read_text().replace("true", "null"))
    with pytest.raises(CheckpointError, match=r"1_Pooling/config\.json"):
        BertForSentenceEmbedding.from_pretrained(tmp_path)


@pytest.mark.parametrize("family", ["roberta", "distilbert", "albert", "flaubert"])
def test_the_folder_of_another_family_is_that_familys_encoder(family: str, tmp_path: Path) -> None:
    from transformers import AutoModel  # seconds long

    model = BertForSentenceEmbedding(BertConfig.from_size("2x128", family=family, vocab_size=53)).eval()
    model.save_pretrained(tmp_path)
    batch = ragged_batch(model.config, [4, 7], 7)
    embeddings = BertForSentenceEmbedding.from_pretrained(tmp_path)(**batch).sentence_embedding
    assert torch.equal(embeddings, model(**batch).sentence_embedding)
    hidden = AutoModel.from_pretrained(tmp_path).eval()(**batch)[0]  # (B, S, H)
    expected = reference_pooling([row[:length] for row, length in zip(hidden, [4, 7], strict=True)], "mean")
    torch.testing.assert_close(embeddings, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("embedding", EMBEDDINGS, ids=POOLINGS)
def test_sentence_transformers_loads_the_folder_and_says_the_same(
    embedding: SentenceEmbeddingConfig, tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer  # seconds long

    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in "aegilmnost")]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    prompts = {"query_prompt": "find ", "document_prompt": "a "}
    short = SentenceEmbeddingConfig(embedding.pooling, embedding.normalize, max_seq_length=12, **prompts)
    model = scattered(BertForSentenceEmbedding(CONFIG, 0, short))
    ours = TextEmbedder(model, Tokenizer.load(tmp_path))
    ours.save(tmp_path)
    theirs = SentenceTransformer(str(tmp_path), device="cpu", local_files_only=True)
    assert theirs.max_seq_length == 12
    torch.testing.assert_close(torch.from_numpy(ours.embed(TEXTS)), torch.from_numpy(theirs.encode(TEXTS)))
    assert ours.num_truncated == 2
    for prompt, encode in (("find ", theirs.encode_query), ("a ", theirs.encode_document)):
        np.testing.assert_allclose(ours.embed(TEXTS, prompt), encode(TEXTS), atol=1e-5)
    ours.model.embedding = replace(short, truncate_dim=8)
    kept = theirs.encode(TEXTS, truncate_dim=8, normalize_embeddings=embedding.normalize)
    np.testing.assert_allclose(ours.embed(TEXTS), kept, atol=1e-5)
