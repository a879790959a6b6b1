"""Embedding of texts: order, batches and bounds on a small model; real weights against what they are known for.

Alone: pytest tests/bert_core/test_text_embedding.py
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core import text_embedding
from bert_core.checkpoints.sentence_transformers import SentenceEmbeddingConfig
from bert_core.errors import DataError, TokenizerError
from bert_core.heads import BertForSentenceEmbedding
from bert_core.packed_sequences import PackedSequences
from bert_core.text.tokenization import Tokenizer
from bert_core.text_embedding import TextEmbedder
from tests.bert_core.reference import scattered, small_config

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TEXTS = st.lists(st.text(LETTERS + " ", min_size=1).filter(str.strip), max_size=12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model that reads single letters, and no more than 12 tokens."""
    folder = tmp_path_factory.mktemp("letters")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS]
    (folder / "vocab.txt").write_text("\n".join([*pieces, *(f"##{letter}" for letter in LETTERS[:20])]))
    embedding = SentenceEmbeddingConfig(normalize=True, max_seq_length=12)
    TextEmbedder(scattered(BertForSentenceEmbedding(small_config(), 0, embedding)), Tokenizer.load(folder)).save(folder)
    return folder


@settings(max_examples=25)
@given(texts=TEXTS, max_tokens=st.integers(1, 40))
@pytest.mark.heavy
def test_each_text_gets_in_its_place_what_it_gets_alone(folder: Path, texts: list[str], max_tokens: int) -> None:
    embedder = TextEmbedder.load(folder, max_tokens=max_tokens)
    together = embedder.embed(texts)
    assert together.shape == (len(texts), 24)
    assert together.dtype == np.float32
    for text, embedding in zip(texts, together, strict=True):
        np.testing.assert_allclose(embedder.embed([text])[0], embedding, atol=1e-5)


def test_the_padded_interface_says_the_same(folder: Path) -> None:
    embedder = TextEmbedder.load(folder)
    ids = [embedder.tokenizer.cls_id, *embedder.tokenizer.encode_ids(["a b c"])[0], embedder.tokenizer.sep_id]
    output = embedder.model(torch.tensor([ids])).sentence_embedding
    np.testing.assert_allclose(embedder.embed(["a b c"]), output.detach().numpy(), atol=1e-6)


def test_a_stream_is_read_a_window_ahead_and_no_further(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_embedding, "_WINDOW_TEXTS", 3)
    monkeypatch.setattr(text_embedding, "_WINDOW_CHARACTERS", 9)
    read: list[str] = []

    def texts() -> Iterator[str]:
        for text in ["a", "b c", "d", "e f g h i j", "k", "l"]:
            read.append(text)
            yield text

    embedder = TextEmbedder.load(folder)
    ahead = []
    streamed = []
    for embedding in embedder.stream(texts()):
        streamed.append(embedding)
        ahead.append(len(read))
    assert ahead == [3, 3, 3, 4, 6, 6]
    np.testing.assert_allclose(np.stack(streamed), embedder.embed(read), atol=1e-6)


@contextmanager
def room_for(num_tokens: int) -> Iterator[None]:
    """Let the device hold so many tokens; a fake stands for it."""
    compute = BertForSentenceEmbedding.packed_embeddings

    def on_small_device(model: BertForSentenceEmbedding, seqs: PackedSequences) -> torch.Tensor:
        if seqs.num_tokens > num_tokens:
            raise torch.OutOfMemoryError("CUDA out of memory.\nGPU 0 has 79 GiB.")
        return compute(model, seqs)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(BertForSentenceEmbedding, "packed_embeddings", on_small_device)
        yield


def test_where_memory_runs_out_fewer_tokens_are_computed_at_a_time(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = ["a b c d e f g", *(["a", "b c"] * 10)]
    whole, embedder = TextEmbedder.load(folder).embed(texts), TextEmbedder.load(folder)
    with room_for(20):
        np.testing.assert_allclose(embedder.embed(texts), whole, atol=1e-6)
        np.testing.assert_allclose(embedder.embed(texts), whole, atol=1e-6)
    assert len(caplog.messages) == 2, "not a second time"
    assert caplog.messages[0] == (
        "memory ran out with texts of 79 tokens at a time (CUDA out of memory.); from here on 39 at a time"
    )
    with room_for(8), pytest.raises(torch.OutOfMemoryError, match="memory ran out with one text of 9 tokens at a time"):
        embedder.embed(texts)


def test_texts_that_are_cut_are_counted(folder: Path) -> None:
    embedder = TextEmbedder.load(folder)
    embeddings = embedder.embed(["a b c d e f g h i j", "a b c d e f g h i j k l m"])
    assert embedder.num_truncated == 1
    np.testing.assert_allclose(embeddings[0], embeddings[1], atol=1e-6)


@pytest.mark.parametrize("text", ["", "  ", "\x00"])
def test_a_text_without_tokens_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(text_embedding, "_WINDOW_TEXTS", 2)
    embedder = TextEmbedder.load(folder)
    with pytest.raises(DataError, match="text 3 has no token"):
        list(embedder.stream(["a", "b", text]))


def test_a_tokenizer_of_another_model_is_refused(folder: Path) -> None:
    model = BertForSentenceEmbedding(small_config(vocab_size=30))
    with pytest.raises(TokenizerError, match="51 entries"):
        TextEmbedder(model, Tokenizer.load(folder))


@pytest.mark.published
def test_real_weights_agree_with_sentence_transformers(minilm_folder: Path) -> None:
    from sentence_transformers import SentenceTransformer  # seconds long

    texts = ["A man is eating food.", "Ünïcödé – 日本語!", "word " * 400, "x"]
    theirs = SentenceTransformer(str(minilm_folder), device="cpu", local_files_only=True).encode(texts)
    np.testing.assert_allclose(TextEmbedder.load(minilm_folder).embed(texts), theirs, atol=1e-5)
