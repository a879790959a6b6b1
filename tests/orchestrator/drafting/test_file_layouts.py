"""Layouts of files and their roles by their names, and what is said of files that nothing reads.

Alone: pytest tests/orchestrator/drafting/test_file_layouts.py
"""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.base.errors import InputError
from orchestrator.drafting.file_layouts import Layout, assign_roles, data_name, detect_layout, role_of
from tests.orchestrator.drafting.made_files import (
    write,
    write_questions,
    write_records,
    write_reviews,
    write_sentences,
    write_text,
)


@pytest.mark.parametrize(
    ("name", "make", "layout"),
    [
        ("a.csv", write_reviews, "table"),
        ("a.train", write_sentences, "entities"),
        ("a.json", write_questions, "questions"),
        ("b.json", write_records, "table"),
        ("a.txt", write_text, "text"),
        ("notes.md", write_text, "text"),
    ],
)
def test_a_layout_is_found_by_ending_and_content(
    tmp_path: Path, name: str, make: Callable[[Path], Path], layout: Layout
) -> None:
    path = make(tmp_path / name)
    assert detect_layout(str(path)) == layout
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert detect_layout(str(packed)) == layout


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.csv", b"", "empty"),
        ("a.csv", b"PK\x03\x04sheet", "Excel"),
        ("a.txt", b"abc\0def", "byte 4"),
        ("a.csv", gzip.compress(b"text,label\n", mtime=0), r"a\.csv\.gz"),
        ("a.csv.gz", b"text,label\n", "not compressed"),
        ("a.json", b'["a", "b"]', "SQuAD"),
        ("a.txt", b'\xef\xbb\xbf<?xml version="1.0"?>\n<docs/>\n', "XML"),
        ("a.txt", rb"{\rtf1\ansi words\par}", "RTF"),
        ("a.xml", b"<docs><doc>words</doc></docs>\n", "XML"),
        ("a.yml", b'version: "3.1"\n\nnlu:\n- intent: greet\n', "Rasa"),
        ("a.md", b"## intent:greet\n- hello\n", "Rasa"),
        ("a.yaml", b"kind: sweep\n", "YAML"),
        ("a.txt", b"__label__good so fine\n__label__bad so bad\n" * 9, "fastText"),
    ],
)
def test_a_file_that_is_not_read_is_told_why(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=problem):
        detect_layout(str(tmp_path / name))


def test_tagged_words_are_never_plain_text(tmp_path: Path) -> None:
    for ending in ("conll", "conllu", "bio", "iob", "iob2", "conll.gz"):
        path = tmp_path / f"a.{ending}"
        text = b"word\n\nanother\n"
        path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
        assert detect_layout(str(path)) == ("tags" if ending == "conllu" else "entities")
    assert detect_layout(str(write(tmp_path / "a.txt", "Ann NNP\nsaw VBD\nit PRP\n. .\n\n" * 9))) == "tags"
    assert detect_layout(str(write(tmp_path / "a.txt", "Ann ran\nBob saw\nRUN NOW\n\n" * 9))) == "text"


def test_a_folder_and_a_missing_file_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="folder"):
        detect_layout(str(tmp_path))
    with pytest.raises(InputError, match=r"a\.csv"):
        detect_layout(str(tmp_path / "a.csv"))


def test_prose_with_capitals_is_no_tagged_text(tmp_path: Path) -> None:
    assert detect_layout(str(write(tmp_path / "a.txt", "I am O\nand you are not\nhere\n"))) == "text"


def test_lines_with_tabs_in_a_text_file_are_a_table_by_another_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.tsv"):
        detect_layout(str(write(tmp_path / "a.txt", "text\tlabel\n" + "good\tpos\n" * 10)))


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("train_full.tsv", "train"),
        ("dev_matched.tsv.gz", "validation"),
        ("VALID.txt", "validation"),
        ("emerging.test.annotated", "test"),
        ("contest.csv", None),
        ("test/reviews.csv", None),
    ],
)
def test_a_name_speaks_of_its_split(name: str, role: str | None) -> None:
    assert role_of(name) == role


def test_one_file_is_for_training_whatever_its_name() -> None:
    assert assign_roles(["test.csv"]) == {"train": "test.csv"}


@pytest.mark.parametrize(
    ("names", "problem"),
    [(["a.train.csv", "b.csv"], r"b\.csv"), (["train.csv", "training.csv"], "both"), (["dev.csv", "test.csv"], "none")],
)
def test_names_that_leave_it_open_are_refused(names: list[str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        assign_roles(names)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("жалобы.train.csv", "жалобы"),
        ("cafe\u0301.csv", "café"),  # as macOS writes it
        ("हिन्दी समाचार.csv", "हिन्दी_समाचार"),
        ("ぬいぐるみ/train.csv", "ぬいぐるみ"),
        ("!!!.csv", "data"),
    ],
)
def test_names_keep_the_letters_of_every_script(path: str, name: str) -> None:
    assert data_name([path]) == name


@pytest.mark.parametrize("lines", [["John Smith", "Mary Jones", "Tom Brown"], ["Yes, well.", "No, never."]])
def test_lines_that_are_alike_are_plain_text(tmp_path: Path, lines: list[str]) -> None:
    assert detect_layout(str(write(tmp_path / "verse.txt", "\n".join(lines * 30)))) == "text"


@pytest.mark.parametrize(
    "line",
    ["[Verse 1] they sang", "[2021-03-01 10:00] it began", "for (;;) { go(); }", "(1) and/or", "<p>so_it is", "# a~b"],
)
def test_lines_that_begin_with_a_bracket_or_end_in_a_mark_are_text(tmp_path: Path, line: str) -> None:
    lines = "".join(f"{line}\nand more {n};\n" for n in range(20))
    assert detect_layout(str(write(tmp_path / "a.txt", lines))) == "text"
