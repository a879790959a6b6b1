"""Files of tagged sentences: CoNLL columns, or tables with lists of words and of tags.

CoNLL columns have a word a line, its tag in the last column, an empty line between sentences. A `-DOCSTART-` line
begins a document. A file without any does not tell where its documents begin.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Self

from orchestrator.errors import TaskDataError
from orchestrator.tasks.bio_tags import find_bad_tag, is_bio, to_bio
from orchestrator.tasks.readers import Reader
from orchestrator.tasks.table_files import read_rows, table_name
from orchestrator.tasks.text_examples import are_texts
from orchestrator.tasks.text_files import BadRecords, plain_name, read_lines

_READS = (
    "a ner task reads CoNLL columns: a word and its BIO tag a line, an empty line between sentences; or JSONL or "
    "Parquet with a list of words and a list of tags in each row. Convert it, or set task.head to classification if "
    "each row has one label"
)

CONLL_ENDINGS = (".conll", ".bio", ".iob")
"""Endings of the names of files with CoNLL columns; other names may have such columns, too."""
_DOCUMENT_MARK = "-DOCSTART-"
_TAGGED_SHARE = 0.95
"""Share of the first lines with a tag from which on a file is one of CoNLL columns: a broken line is to be named."""


@dataclass(frozen=True, slots=True)
class NerExample:
    """A sentence as words, and a BIO tag for each."""

    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...] = ()
    document: int | None = None
    """Number of the document in its file that the sentence belongs to; None where the file does not say."""


@dataclass(frozen=True)
class ConllReader(Reader[NerExample]):
    """Reads any number of columns, apart by tabs where a line has one, else by spaces.

    A sentence with a broken line is left out whole.
    """

    tags: tuple[str, ...] | None = None
    """The tag set; None takes every BIO tag."""
    labeled: bool = True
    """Whether tags are read; if not, only the first column is."""

    def read(self, path: str, bad: BadRecords) -> Iterator[NerExample]:
        """The file's sentences in order, tags as BIO."""
        number = 0
        for document, lines in _sentences(path, bad):
            sentence = self._parse(lines, str(number), document, bad)
            if sentence is not None:
                yield sentence
                number += 1

    def without_labels(self) -> Self:
        """A reader of the words alone."""
        return replace(self, labeled=False)

    def _parse(
        self, lines: list[tuple[int, str]], sentence_id: str, document: int | None, bad: BadRecords
    ) -> NerExample | None:
        words, tags = [], []
        for number, line in lines:
            fields = _fields(line)
            has_tag = len(fields) > 1 and not find_bad_tag(fields[-1:], None)
            if not fields[0] or (self.labeled and not has_tag):
                if number == 1 and table_name(bad.path) == "CSV":
                    raise TaskDataError(f"{bad.path} is a CSV table, and {_READS}")
                bad.found(f"line {number}", f"{line!r} is not a word and, in the last column, a BIO tag")
                return None
            words.append(fields[0])
            tags.append(fields[-1])
        if not self.labeled:
            return NerExample(sentence_id, tuple(words), document=document)
        bio = to_bio(tags)
        for (number, _), tag in zip(lines, bio, strict=True):
            problem = find_bad_tag((tag,), self.tags)
            if problem:
                bad.found(f"line {number}", problem)
                return None
        return NerExample(sentence_id, tuple(words), bio, document)


def is_named_conll(path: str) -> bool:
    """Whether a file has CoNLL columns by its name, with tags or without.

    >>> is_named_conll("eng.conll.gz"), is_named_conll("words.txt")
    (True, False)
    """
    return plain_name(path).endswith(CONLL_ENDINGS)


def has_tag_columns(lines: Iterable[str]) -> bool:
    """Whether a file's first lines are CoNLL columns: the mark of a document, or a BIO tag in nearly every last column.

    >>> has_tag_columns(["Ada B-PER", "wrote O"]), has_tag_columns(["Ada wrote", "a program"])
    (True, False)
    """
    filled = [line.rstrip("\r\n") for line in lines if line.strip()]
    if filled and filled[0].startswith(_DOCUMENT_MARK):
        return True
    rows = [_fields(line) for line in filled if not line.startswith(_DOCUMENT_MARK)]
    tagged = [row for row in rows if len(row) > 1 and is_bio(row[-1])]
    return bool(rows) and len(tagged) >= _TAGGED_SHARE * len(rows)


def _fields(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else line.split()


def _sentences(path: str, bad: BadRecords) -> Iterator[tuple[int | None, list[tuple[int, str]]]]:
    """Each sentence's document, if the file has said, and its lines with their numbers."""
    document = None
    lines: list[tuple[int, str]] = []
    for number, line in read_lines(path, bad):
        is_document_start = line.startswith(_DOCUMENT_MARK)
        if not is_document_start and line.strip():
            lines.append((number, line.rstrip(" ")))
            continue
        if lines:
            yield document, lines
        lines = []
        if is_document_start:
            document = 0 if document is None else document + 1
    if lines:
        yield document, lines


@dataclass(frozen=True)
class NerTable(Reader[NerExample]):
    """Reads sentences whose words and tags are lists (JSONL, Parquet)."""

    tokens_column: str
    tags_column: str
    tags: tuple[str, ...] | None = None
    """The tag set; None takes every BIO tag."""
    labeled: bool = True

    def read(self, path: str, bad: BadRecords) -> Iterator[NerExample]:
        """The file's sentences in order, tags as BIO."""
        columns = (self.tokens_column, *([self.tags_column] if self.labeled else ()))
        for number, (place, values) in enumerate(read_rows(path, columns, bad)):
            lists = [value for value in values if are_texts(value)]
            if len(lists) < len(columns):
                bad.found(place, f"{' and '.join(columns)} must be lists of text")
                continue
            words, tags = lists[0], lists[1] if self.labeled else None
            if tags is not None and len(words) != len(tags):
                bad.found(place, f"{len(words)} {self.tokens_column} but {len(tags)} {self.tags_column}")
                continue
            bio = () if tags is None else to_bio(tags)
            problem = find_bad_tag(bio, self.tags)
            if problem:
                bad.found(place, problem)
            elif words:
                yield NerExample(str(number), tuple(words), bio)

    def without_labels(self) -> Self:
        """A reader of the words alone."""
        return replace(self, labeled=False)
