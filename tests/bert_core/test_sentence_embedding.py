"""Sentence embeddings: pooling against a loop over texts, folders against sentence-transformers, texts as a stream.

Alone: pytest tests/bert_core/test_sentence_embedding.py
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from bert_core import text_embedding
from bert_core.checkpoints.sentence_transformers import POOLINGS, DenseConfig, SentenceEmbeddingConfig
from bert_core.config import BertConfig
from bert_core.errors import CheckpointError, DataError, TokenizerError
from bert_core.heads import BertForSentenceEmbedding
from bert_core.heads.sentence_embedding import pool_tokens
from bert_core.model import BertModel
from bert_core.packed_sequences import PackedSequences
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


def test_a_causal_encoders_vector_is_the_last_tokens_which_alone_has_seen_the_text() -> None:
    config = replace(CONFIG, causal_attention=True)
    model = BertForSentenceEmbedding(config, 0, SentenceEmbeddingConfig("cls", normalize=False)).eval()
    ids = torch.tensor([[2, 5, 6, 3], [2, 9, 8, 3]])
    vectors = model(ids).sentence_embedding
    torch.testing.assert_close(vectors, model.bert(ids).last_hidden_state[:, -1])


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
    prompts = {"query": "find ", "document": "a "}
    short = SentenceEmbeddingConfig(embedding.pooling, embedding.normalize, max_seq_length=12, prompts=prompts)
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


def test_a_folder_with_dense_layers_goes_there_and_back(folder: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer  # seconds long
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    layers = [Dense(24, 16, bias=False), Dense(16, 12, activation_function=torch.nn.Identity())]
    theirs = SentenceTransformer(
        modules=[Transformer(str(folder)), Pooling(24), *layers],
        prompts={"query": "find ", "STS": "like "},
        default_prompt_name="STS",
        truncate_dim=7,
        device="cpu",
    )
    theirs.save(str(tmp_path / "theirs"))
    ours = TextEmbedder.load(tmp_path / "theirs")
    assert (ours.dimension, [layer.linear.bias is None for layer in ours.model.dense]) == (7, [True, False])
    ours.save(tmp_path / "ours")
    again = SentenceTransformer(str(tmp_path / "ours"), device="cpu", local_files_only=True)
    for model in (theirs, again):
        np.testing.assert_allclose(ours.embed(TEXTS, ours.model.embedding.prompt()), model.encode(TEXTS), atol=1e-5)
        np.testing.assert_allclose(ours.embed(TEXTS, "find "), model.encode_query(TEXTS), atol=1e-5)
    assert TextEmbedder.load(tmp_path / "ours").model.embedding == ours.model.embedding


def test_a_dense_layer_that_does_not_fit_is_named(tmp_path: Path) -> None:
    layers = (DenseConfig(24, 8), DenseConfig(8, 6))
    BertForSentenceEmbedding(CONFIG, 0, SentenceEmbeddingConfig(dense=layers)).save_pretrained(tmp_path)
    (tmp_path / "manifest.json").unlink()
    file = tmp_path / "3_Dense/config.json"
    content = file.read_text()
    for old, new, named in (("6", "5", r"3_Dense/model\.safetensors"), ("8", "9", "3_Dense: in_features")):
        file.write_text(content.replace(old, new))
        with pytest.raises(CheckpointError, match=named):
            BertForSentenceEmbedding.from_pretrained(tmp_path)


LETTERS = "abcdefghijklmnopqrstuvwxyz"
STREAMED = st.lists(st.text(LETTERS + " ", min_size=1).filter(str.strip), max_size=12)


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
@given(texts=STREAMED, max_tokens=st.integers(1, 40))
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
