"""Entities: CoNLL columns, BIO tags, windows. Alone: pytest tests/orchestrator/tasks/types/test_ner.py"""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.metrics.ner import entity_spans
from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import TaskDataError
from orchestrator.specs.recipe import Context
from orchestrator.tasks import decode
from orchestrator.tasks.bio_tags import complete_tag_set, to_bio
from orchestrator.tasks.features import Windows
from orchestrator.tasks.text_files import BadRecords
from orchestrator.tasks.types.conll import ConllReader, NerExample, has_tag_columns
from orchestrator.tasks.types.ner import TagsPrediction
from orchestrator.tasks.types.ner_windows import build_ner_windows
from tests.orchestrator.tasks.definitions import define, features_of

TAGS = st.lists(st.sampled_from(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]))


def read(path: Path, text: str, policy: str = "error", tags: tuple[str, ...] | None = None) -> tuple[list, BadRecords]:
    path.write_text(text, encoding="utf-8", newline="")
    bad = BadRecords(str(path), policy)
    return list(ConllReader(tags).read(str(path), bad)), bad


@settings(deadline=None)
@given(TAGS)
def test_bio_keeps_the_entities_and_begins_each_with_b(tags: list[str]) -> None:
    bio = to_bio(tags)
    assert entity_spans(bio) == entity_spans(tags)
    assert [i for i, tag in enumerate(bio) if tag[0] == "B"] == [start for start, _, _ in entity_spans(tags)]
    assert to_bio(bio) == bio


def test_a_tag_set_is_completed_and_sorted() -> None:
    assert complete_tag_set({"I-PER", "B-LOC", "O"}) == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


def test_columns_document_starts_and_line_ends_are_understood(tmp_path: Path) -> None:
    text = "-DOCSTART- -X- O O\r\n\r\nEU NNP I-NP I-ORG\r\nrejects VBZ I-VP O\r\n\r\n\r\nPeter NNP I-NP I-PER\r\n"
    examples, _ = read(tmp_path / "a", text)
    assert [(e.id, e.words, e.tags) for e in examples] == [
        ("0", ("EU", "rejects"), ("B-ORG", "O")),
        ("1", ("Peter",), ("B-PER",)),
    ]


def test_a_document_start_begins_a_document_and_without_any_there_is_none(tmp_path: Path) -> None:
    text = "-DOCSTART- O\n\na O\n\nb O\n-DOCSTART- O\nc O\n"
    assert [e.document for e in read(tmp_path / "a", text)[0]] == [0, 0, 1]
    assert [e.document for e in read(tmp_path / "b", "a O\n\nb O\n")[0]] == [None, None]


@pytest.mark.parametrize(
    ("lines", "are_tagged"),
    [
        (["Ann B-PER\n", "\n", "runs O\n"], True),
        (["New York\tB-LOC\r\n"], True),
        (["-DOCSTART-\n", "\n", "Ann\n"], True),
        (["Ann B-PER\n"] * 19 + ["runs\n"], True),
        (["Ann B-PER\n"] * 9 + ["runs\n"], False),
        (["I am O\n", "and you are not\n"], False),
        (['{"words": ["Ann"]}\n'], False),
        (["\n"], False),
    ],
)
def test_tag_columns_are_told_from_prose(lines: list[str], are_tagged: bool) -> None:
    assert has_tag_columns(lines) == are_tagged


def test_tabs_part_columns_where_there_are_any(tmp_path: Path) -> None:
    examples, _ = read(tmp_path / "a", "two words\tB-PER\n\t\n#\tO\n")
    assert [e.words for e in examples] == [("two words",), ("#",)]


@pytest.mark.parametrize(
    ("line", "named"), [("alone", "'alone'"), ("word NN PER", "'word NN PER'"), ("word B-LOC", "tag 'B-LOC'")]
)
def test_a_broken_line_is_named_or_its_sentence_counted(tmp_path: Path, line: str, named: str) -> None:
    text, tags = f"a O\n\nb O\n{line}\n\nc O\n", ("O", "B-PER", "I-PER")
    with pytest.raises(TaskDataError, match=f"line 4: {named}"):
        read(tmp_path / "a", text, tags=tags)
    examples, bad = read(tmp_path / "a", text, "skip", tags)
    assert [e.words for e in examples] == [("a",), ("c",)]
    assert bad.count == 1


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


def test_sentences_of_no_document_stand_alone(tokenizer: Tokenizer) -> None:
    examples = [sentence("the house", None), sentence("a river", None)]
    assert texts_of(build_ner_windows(examples, LABELS, tokenizer, 32, "document"), tokenizer) == [
        "the house",
        "a river",
    ]


def test_windows_of_a_long_sentence_show_one_another(tokenizer: Tokenizer) -> None:
    windows = build_ner_windows([sentence("the house a river the engine")], LABELS, tokenizer, 6, "document")
    assert texts_of(windows, tokenizer) == ["the house a river", "a river the engine"]
    assert windows.head_arrays.word_starts.tolist() == [1, 2, 3, 4, 9, 10]
    assert windows.counts["num_split"] == 1


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
        assert len(ids) <= max_seq_length
        assert len(ids) == min(max_seq_length, len(document) + 2) if context == "document" else len(ids) >= 3


def tokens(tokenizer: Tokenizer, example: NerExample) -> list[int]:
    return [piece for word in example.words for piece in tokenizer.encode_words([word])[0] or [tokenizer.unk_id]]


def first_piece(tokenizer: Tokenizer, word: str) -> int:
    return tokens(tokenizer, NerExample("0", (word,)))[0]


def test_tags_are_those_of_first_sub_tokens_over_all_windows(tokenizer: Tokenizer) -> None:
    task = define("ner", ("O", "B-PER", "I-PER"))
    rng = np.random.default_rng(0)
    tags = [tuple(rng.choice(task.labels, size=size)) for size in (40, 1, 3)]
    examples = [NerExample(str(i), ("Lovelace",) * len(tags[i]), tags[i]) for i in range(3)]
    features = features_of(task.head, task.labels, examples, tokenizer, max_seq_length=16)
    numbers = np.where(features.head_arrays.token_labels < 0, 2, features.head_arrays.token_labels)
    assert features.num_windows > 3
    assert decode(task, features, examples, numbers) == [TagsPrediction(t) for t in tags]
    assert decode(task, features, examples, np.eye(3)[numbers]) == [TagsPrediction(t) for t in tags]
