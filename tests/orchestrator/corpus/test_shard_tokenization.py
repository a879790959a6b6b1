"""Documents to shards: sentences, tokens, sentence lengths, validation documents; no Ray.

Run alone: pytest tests/orchestrator/corpus/test_shard_tokenization.py
"""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_training import train_wordpiece
from orchestrator.corpus.document_batches import (
    MAX_SENTENCE_CHARACTERS,
    is_validation,
    read_corpus,
    split_sentences,
    tokenize,
    write_documents,
)
from orchestrator.corpus.document_readers import Document
from orchestrator.corpus.token_store import Manifest, TokenStore
from orchestrator.specs.corpus import TextSource
from tests.orchestrator.corpus.shards import document_ids

TEXTS = [f"Mr. {name} has {n} boats. They float!\nThe end." for n, name in enumerate(["Ash", "Birch", "Cedar"] * 40)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_wordpiece(TEXTS, vocab_size=200)


def test_tokens_are_those_of_the_sentences_in_order(tokenizer: Tokenizer) -> None:
    tokens, lengths = tokenize([Document("a", text, "en") for text in TEXTS[:2]], tokenizer)
    sentences = ["Mr. Ash has 0 boats.", "They float!", "The end.", "Mr. Birch has 1 boats.", "They float!", "The end."]
    expected = tokenizer.encode_ids(sentences)
    assert tokens.dtype == np.uint16
    assert tokens.tolist() == [token for sentence in expected for token in sentence]
    assert lengths == [[len(ids) for ids in expected[:3]], [len(ids) for ids in expected[3:]]]


def test_what_leaves_no_token_is_left_out(tokenizer: Tokenizer, tmp_path: Path) -> None:
    documents = [
        Document("a", "\u200b", "en"),
        Document("b", "boats\n\u200b\nboats", "en"),
        Document("c", "\x01", "en"),
    ]
    shards = write_documents(documents, str(tmp_path), "0", tokenizer, 0.0)
    (shard,) = shards
    store = TokenStore(str(tmp_path), Manifest("f", 200, {}, tuple(shards)))
    assert document_ids(store, shard) == ["b"]
    assert store.read_shard(shard).num_documents == 1
    assert (shard.num_documents, shard.num_sentences) == (1, 2)


def test_special_tokens_in_a_document_are_text(tokenizer: Tokenizer) -> None:
    tokens, _ = tokenize([Document("a", "[MASK] [SEP] boats [CLS]", "en")], tokenizer)
    assert not {tokenizer.mask_id, tokenizer.sep_id, tokenizer.cls_id} & set(tokens.tolist())


def test_the_validation_share_is_kept_whatever_the_order() -> None:
    texts = [f"Document {i}." for i in range(20_000)]
    chosen = {text for text in texts if is_validation(text, 0.05)}
    assert 0.045 < len(chosen) / len(texts) < 0.055
    assert {text for text in texts if is_validation(text, 0.02)} < chosen
    assert not any(is_validation(text, 0.0) for text in texts)


def test_splits_are_apart_and_the_bytes_are_the_same_every_time(tokenizer: Tokenizer, tmp_path: Path) -> None:
    documents = [Document(str(i), text, "en") for i, text in enumerate(TEXTS)]
    first = write_documents(documents, str(tmp_path / "1"), "0", tokenizer, 0.3)
    second = write_documents(documents, str(tmp_path / "2"), "0", tokenizer, 0.3)
    assert first == second
    assert [shard.split for shard in first] == ["train", "validation"]
    store = TokenStore(str(tmp_path / "1"), Manifest("f", 200, {}, tuple(first)))
    train, validation = (set(document_ids(store, shard)) for shard in first)
    assert len(train) + len(validation) == len(TEXTS)
    assert validation == {str(i) for i, text in enumerate(TEXTS) if is_validation(text, 0.3)}


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Dr. Smith met J. R. Brown in Washington, D.C. on Jan. 5. He left.",
         ["Dr. Smith met J. R. Brown in Washington, D.C. on Jan. 5.", "He left."]),
        ('He said "Stop." Then he paid $3.50.', ['He said "Stop."', "Then he paid $3.50."]),
        ('"Really?" she asked. No.', ['"Really?" she asked.', "No."]),
        ("No full stop\nnext paragraph\n\n \nlast", ["No full stop", "next paragraph", "last"]),
        ("T\u00a0. J.\u2028Smith came.", ["T . J. Smith came."]),
        (" \n\t\n", []),
    ],
)  # fmt: skip
def test_sentences_end_where_a_reader_would_say(text: str, sentences: list[str]) -> None:
    assert split_sentences(text, "en") == sentences


def test_sentences_end_as_the_language_of_the_entry_has_it(tmp_path: Path) -> None:
    text = "Am 3. Mai kam er. Gut."
    for language in ("en", "de"):
        (tmp_path / f"{language}.txt").write_text(text)
    source = TextSource(files=tuple(str(tmp_path / f"{name}.txt") for name in ("en", "de")), languages=("en", "de"))
    english, german = read_corpus(source)
    assert split_sentences(text, english.language) == ["Am 3.", "Mai kam er.", "Gut."]
    assert split_sentences(text, german.language) == ["Am 3. Mai kam er.", "Gut."]
    one_for_all = source.model_copy(update={"languages": ("de",)})
    assert [document.language for document in read_corpus(one_for_all)] == ["de", "de"]


@given(
    st.text(st.sampled_from("abTM.!?\"'() \n\r\t\0\u00a0\u2028\u3000\u0085éÉß0…“”’。😀\u0301"), max_size=60) | st.text()
)
def test_no_character_is_lost_and_no_sentence_is_empty(text: str) -> None:
    sentences = split_sentences(text, "en")
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() != "" for sentence in sentences)


def test_an_endless_sentence_is_cut_at_spaces() -> None:
    words = " ".join(f"word{i}" for i in range(10_000))
    sentences = split_sentences(words, "en")
    assert " ".join(sentences) == words
    assert max(map(len, sentences)) <= MAX_SENTENCE_CHARACTERS
    assert "".join(split_sentences("x" * 100_000, "en")) == "x" * 100_000
