"""Windows of sentences: every word tagged once, and what surrounds a sentence's words.

Alone: pytest tests/orchestrator/tasks/types/test_ner_windows.py
"""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.text.tokenization import Tokenizer
from orchestrator.specs.recipe import Context
from orchestrator.tasks import TASK_TYPES, Task, prepare_features
from orchestrator.tasks.features import Windows
from orchestrator.tasks.types.conll import ConllReader, NerExample
from orchestrator.tasks.types.ner_windows import build_ner_windows
from tests.orchestrator.tasks.definitions import options_of

LABELS = ("O", "B-PER", "I-PER")
DOCUMENTS = st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=6), min_size=1, max_size=3)


def sentence(text: str, document: int | None = 0) -> NerExample:
    words = tuple(text.split())
    return NerExample("0", words, ("B-PER",) * len(words), document)


def windows_of(windows: Windows) -> list[np.ndarray]:
    return np.split(windows.input_ids, windows.cu_seqlens[1:-1])


def texts_of(windows: Windows, tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.decode(ids[1:-1].tolist()) for ids in windows_of(windows)]


def test_a_window_shows_its_own_document_on_both_sides(tokenizer: Tokenizer) -> None:
    examples = [sentence("the house"), sentence("a river"), sentence("the engine"), sentence("nobody", 1)]
    narrow = build_ner_windows(examples, LABELS, tokenizer, 6, "document")
    assert texts_of(narrow, tokenizer) == ["the house a river", "house a river the", "a river the engine", "nobody"]
    wide = build_ner_windows(examples, LABELS, tokenizer, 32, "document")
    assert texts_of(wide, tokenizer) == ["the house a river the engine"] * 3 + ["nobody"]
    alone = build_ner_windows(examples, LABELS, tokenizer, 32)
    assert texts_of(alone, tokenizer) == ["the house", "a river", "the engine", "nobody"]


def test_only_the_sentences_own_words_are_tagged(tokenizer: Tokenizer) -> None:
    examples = [sentence("the house"), sentence("a river")]
    windows = build_ner_windows(examples, LABELS, tokenizer, 32, "document")
    labels = np.split(windows.head_arrays.token_labels, windows.cu_seqlens[1:-1])
    assert [row.tolist() for row in labels] == [[-100, 1, 1, -100, -100, -100], [-100, -100, -100, 1, 1, -100]]


def test_sentences_of_no_document_stand_alone(tokenizer: Tokenizer) -> None:
    examples = [sentence("the house", None), sentence("a river", None)]
    assert texts_of(build_ner_windows(examples, LABELS, tokenizer, 32, "document"), tokenizer) == [
        "the house",
        "a river",
    ]


def test_a_sentence_of_words_that_the_tokenizer_drops_is_tagged(tokenizer: Tokenizer) -> None:
    windows = build_ner_windows([sentence("\x07 \x08")], LABELS, tokenizer, 8)
    assert windows.input_ids[windows.head_arrays.word_starts].tolist() == [tokenizer.unk_id] * 2


def test_windows_of_a_long_sentence_show_one_another(tokenizer: Tokenizer) -> None:
    windows = build_ner_windows([sentence("the house a river the engine")], LABELS, tokenizer, 6, "document")
    assert texts_of(windows, tokenizer) == ["the house a river", "a river the engine"]
    assert windows.head_arrays.word_starts.tolist() == [1, 2, 3, 4, 9, 10]
    assert windows.counts["num_split"] == 1


def test_features_of_another_context_are_kept_elsewhere(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("-DOCSTART- O\n\nthe O\n\nriver O\n", encoding="utf-8")
    files = {"train": str(tmp_path / "a")}
    task = Task(id="mine", type=TASK_TYPES["ner"], labels=LABELS, metric="f1", files=files, reader=ConllReader())
    sentence, document = (options_of("ner", max_seq_length=8, context=context) for context in ("sentence", "document"))
    alone = prepare_features(task, "train", tokenizer, sentence, str(tmp_path / "cache"))
    shown = prepare_features(task, "train", tokenizer, document, str(tmp_path / "cache"))
    assert (shown.reused, shown.path == alone.path) == (False, False)
    assert prepare_features(task, "train", tokenizer, document, str(tmp_path / "cache")).reused
    assert [features.lengths.tolist() for features in (alone, shown)] == [[3, 3], [4, 4]]


@pytest.mark.parametrize("context", ["sentence", "document"])
@settings(deadline=None, max_examples=25)
@given(lengths=DOCUMENTS, seed=st.integers(0, 1000), max_seq_length=st.integers(8, 24))
def test_every_word_is_tagged_once_and_seen_within_its_document(
    tokenizer: Tokenizer, context: Context, lengths: list[list[int]], seed: int, max_seq_length: int
) -> None:
    rng = random.Random(seed)
    vocabulary = ["house", "Lovelace", "engines", "\x07", "river"]
    examples = [
        NerExample("0", tuple(rng.choices(vocabulary, k=length)), tuple(rng.choices(LABELS, k=length)), document)
        for document, sentences in enumerate(lengths)
        for length in sentences
    ]
    windows = build_ner_windows(examples, LABELS, tokenizer, max_seq_length, context)
    starts, labels = windows.head_arrays.word_starts, windows.head_arrays.token_labels
    assert [LABELS[label] for label in labels[starts]] == [tag for example in examples for tag in example.tags]
    assert np.count_nonzero(labels != -100) == len(starts)
    assert [windows.input_ids[start] for start in starts] == [
        first_piece(tokenizer, word) for example in examples for word in example.words
    ]
    assert (np.diff(starts) > 0).all()
    pieces = [[ids for e in examples if e.document == d for ids in tokens(tokenizer, e)] for d in range(len(lengths))]
    for ids, index in zip(windows_of(windows), windows.example_index, strict=True):
        document = pieces[examples[index].document or 0]
        inner = ids[1:-1].tolist()
        assert any(document[place : place + len(inner)] == inner for place in range(len(document)))
        assert len(ids) == min(max_seq_length, len(document) + 2) if context == "document" else len(ids) >= 3


def tokens(tokenizer: Tokenizer, example: NerExample) -> list[int]:
    return [piece for word in example.words for piece in tokenizer.encode_words([word])[0] or [tokenizer.unk_id]]


def first_piece(tokenizer: Tokenizer, word: str) -> int:
    return tokens(tokenizer, NerExample("0", (word,)))[0]
