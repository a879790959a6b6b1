"""CoNLL columns and BIO tags.

Alone: pytest tests/orchestrator/tasks/types/test_conll.py
"""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.metrics.ner import entity_spans
from orchestrator.errors import TaskDataError
from orchestrator.specs import TaskSpec
from orchestrator.tasks import load_task
from orchestrator.tasks.bio_tags import complete_tag_set, to_bio
from orchestrator.tasks.text_files import BadRecords
from orchestrator.tasks.types.conll import ConllReader, has_tag_columns
from tests.shared_data import shared_file

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


def test_conll2003_has_its_published_numbers_of_documents() -> None:
    task = load_task(TaskSpec(id="conll2003", folder=str(shared_file("ner/conll2003"))))
    documents = {split: {example.document for example in task.examples(split)} for split in task.splits}
    expected = {"train": 946, "validation": 216, "test": 231}
    assert documents == {split: set(range(count)) for split, count in expected.items()}


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
    ("line", "message"),
    [
        ("alone", "line 4: 'alone' is not a word and, in the last column, a BIO tag"),
        ("word NN PER", "line 4: 'word NN PER' is not a word"),
        ("word B-LOC", "line 4: tag 'B-LOC' is none of the labels O, B-PER, I-PER"),
    ],
)
def test_a_broken_line_is_named_or_its_sentence_counted(tmp_path: Path, line: str, message: str) -> None:
    text, tags = f"a O\n\nb O\n{line}\n\nc O\n", ("O", "B-PER", "I-PER")
    with pytest.raises(TaskDataError, match=message):
        read(tmp_path / "a", text, tags=tags)
    examples, bad = read(tmp_path / "a", text, "skip", tags)
    assert [e.words for e in examples] == [("a",), ("c",)]
    assert bad.count == 1
