"""Layout of a file of data, by its ending and its first lines; files that nothing here reads are refused."""

import os
import re
import shlex
from itertools import islice
from typing import Literal

from orchestrator.errors import InputError
from orchestrator.storage import open_read
from orchestrator.storage.compression import COMPRESSIONS
from orchestrator.storage.text_lines import stream_lines
from orchestrator.storage.uris import is_local, local_path
from orchestrator.tasks.table_files import table_name
from orchestrator.tasks.text_files import plain_name
from orchestrator.tasks.types.conll import has_tag_columns, is_named_conll, split_words

Layout = Literal["table", "tagged", "questions", "text"]
"""Rows with columns; CoNLL columns; SQuAD's JSON; plain text."""

_HEAD_BYTES = 4096
_HEAD_LINES = 200
_HEAD_CHARACTERS = 1 << 16
_FEW_LINES = 4
"""Lines that are too few to tell columns from chance."""
_FOREIGN = {
    b"PK\x03\x04": "is a zip archive or an Excel sheet; save the sheet as CSV, or unpack the archive",
    b"%PDF": "is a PDF; save its text as a .txt file",
    b"\xff\xfe": "is UTF-16; save it as UTF-8",
    b"\xfe\xff": "is UTF-16; save it as UTF-8",
}
"""Problem of a file, and the remedy, by the bytes that it begins with."""


def detect_layout(path: str) -> Layout:
    """Find the layout of a file. Raises: InputError for a file that is missing, empty, binary or of no known layout."""
    head = _read_head(path)
    if plain_name(path).endswith(".parquet"):
        return "table"
    _check_text(path, head)
    if table_name(path) is not None:
        return "table"
    lines = list(islice(stream_lines(path), _HEAD_LINES))
    beginning = "".join(lines)[:_HEAD_CHARACTERS]
    if beginning.lstrip("\ufeff \r\n\t").startswith(("{", "[")) and plain_name(path).endswith(".json"):
        if re.search(r'"data"\s*:\s*\[', beginning):
            return "questions"
        raise InputError(
            f'{path} is JSON, but not laid out as SQuAD (an object with a list "data"); write other records as one '
            "JSON object a line, in a file whose name ends in .jsonl"
        )
    if is_named_conll(path) or has_tag_columns(lines) or _has_other_tags(lines):
        return "tagged"
    if _is_tabular(lines):
        raise InputError(
            f"{path}: its lines have columns with tabs between them; let its name end in .tsv, and its first line name "
            "the columns"
        )
    return "text"


def _read_head(path: str) -> bytes:
    if is_local(path):
        file = local_path(path)
        if file.is_dir():
            raise InputError(
                f"{path} is a folder; name its files, as in: orchestrator init {shlex.quote(path.rstrip('/'))}/*.txt"
            )
        if not file.exists():
            raise InputError(f"there is no file {path}; check the path")
        if not os.access(file, os.R_OK):
            raise InputError(f"{path} cannot be read: permission denied; change its permissions or copy it")
    try:
        with open_read(path) as raw:
            head = raw.read(_HEAD_BYTES)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}); check the path") from None
    if not head:
        raise InputError(f"{path} is empty; name a file that holds data")
    return head


def _check_text(path: str, head: bytes) -> None:
    """Check that a file's first bytes fit its name, and are text. Raises: InputError."""
    for magic, problem in _FOREIGN.items():
        if head.startswith(magic):
            raise InputError(f"{path} {problem}")
    packed = next((ending for ending, magic in COMPRESSIONS.items() if head.startswith(magic)), None)
    named = next((ending for ending in COMPRESSIONS if path.lower().endswith(ending)), None)
    if packed != named:
        holds = f"holds {packed[1:]} data" if packed else "is not compressed"
        right = (path[: -len(named)] if named else path) + (packed or "")
        raise InputError(f"{path} {holds}; rename it to {right}")
    if packed is None and b"\0" in head:
        raise InputError(f"{path} is a binary file, byte {head.index(0) + 1} is 0; init reads text, tables and Parquet")


def _is_tabular(lines: list[str]) -> bool:
    """Whether all lines have the same number of tabs."""
    counts = {line.count("\t") for line in lines if line.strip()}
    return len(lines) > _FEW_LINES and len(counts) == 1 and counts != {0}


def _has_other_tags(lines: list[str]) -> bool:
    """Whether all lines have the same number of words, the last one a tag in capitals, as of a part of speech.

    A ner task refuses such a file by its tags, which are no text to pretrain on.
    """
    rows = [words for words in map(split_words, lines) if words]
    tags = {words[-1] for words in rows}
    return (
        len(rows) > _FEW_LINES
        and len({len(words) for words in rows}) == 1 < len(rows[0])
        and len(tags) <= len(rows) / 3
        and all(tag == tag.upper() for tag in tags)
        and any(tag.isascii() and tag.isalpha() for tag in tags)
    )
