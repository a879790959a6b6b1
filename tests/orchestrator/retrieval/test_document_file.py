"""Files of documents: lines of text and objects, compressed or not; what is broken is named.

Alone: .venv/bin/pytest tests/orchestrator/retrieval/test_document_file.py
"""

import gzip
from pathlib import Path

import pytest

from orchestrator.errors import InputError
from orchestrator.retrieval.document_file import CollectionDocument, DocumentFile


def test_documents_have_titles_before_texts_and_empty_ones_are_counted(documents: str) -> None:
    file = DocumentFile(documents)
    expected = [
        CollectionDocument("a", "cats rest on the mat"),
        CollectionDocument("b", "wings lift planes"),
        CollectionDocument("d", "rain falls into a cold river"),
    ]
    assert list(file) == expected
    assert list(file) == expected, "a file is read anew each time"
    assert file.num_empty == 1


def test_lines_of_text_go_by_their_number_also_from_a_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt.gz"
    path.write_bytes(gzip.compress("\ufeffone\u2028line\r\n\n  two \n".encode()))
    assert list(DocumentFile(str(path))) == [CollectionDocument("1", "one\u2028line"), CollectionDocument("3", "two")]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"id": 1, "text": "a"}\n{"id": "1", "text": "b"}', "line 2.*'1'"),
        (b'{"id": 1, "txt": "a"}', "line 1.*text"),
        (b'{"text": "a", "title": 3}', "line 1.*title"),
        (b'fine\n{"text": ', "line 2"),
        (b"caf\xe9", "line 1"),
    ],
)
def test_a_broken_line_is_named(content: bytes, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "documents.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"documents\.jsonl: {complaint}"):
        list(DocumentFile(str(path)))


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".zst"])
def test_a_file_that_is_missing_or_damaged_is_named(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"documents.jsonl{ending}"
    if ending:
        path.write_bytes(b"no such compression")
    with pytest.raises(InputError, match=r"documents\.jsonl"):
        list(DocumentFile(str(path)))
