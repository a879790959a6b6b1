"""Files of tagged sentences: CoNLL columns, or tables with lists of words and of tags, or with texts and spans.

CoNLL columns have a word a line, its tag in the last column, an empty line between sentences. A `-DOCSTART-` line
begins a document. A file without any does not tell where its documents begin. Before a sentence, lines that begin with
`#` are comments, unless they have the columns of a word. CoNLL-U has the number of each word in the first column and
the word in the second.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Self

from orchestrator.base.errors import TaskDataError
from orchestrator.tasks import bio_tags
from orchestrator.tasks.cell_values import unpack_cell
from orchestrator.tasks.table_files import TableRow, class_names, read_rows, table_name
from orchestrator.tasks.text_examples import are_texts
from orchestrator.tasks.text_files import BadRecords, LabeledReader, plain_name, read_lines

TAG_LAYOUTS = (
    "CoNLL columns (.conll: a word and its tag a line, an empty line between sentences), lists of words and of tags, "
    "or a word and its tag in each row beside a column 'sentence'"
)
SPAN_LAYOUT = f"character spans ({bio_tags.SPAN_EXAMPLE}, the end past the last character)"
_READS = (
    f"tagged words are read from {TAG_LAYOUTS} (text_columns: [SENTENCE, WORD]), or {SPAN_LAYOUT}. Convert it, or set "
    "task.head to classification if each row has one label"
)

CONLL_ENDINGS = (".conll", ".conllu", ".bio", ".iob", ".iob2")
"""Endings of the names of files with CoNLL columns; other names may have such columns, too."""
_LAST_COLUMN = "its last column"
_CHUNKS = ("NP", "VP", "PP", "NC", "VC", "PC")
"""Types of the chunks that CoNLL-2000 and 2003, English and German, have in a column before the names."""
_DOCUMENT_MARK = "-DOCSTART-"
_COMMENT_MARK = "#"
_NUM_CONLLU_COLUMNS = 10
_NO_VALUE = "_"
"""Value of a column that says nothing, in CoNLL-U."""
FEW_LINES = 4
"""Lines that are too few to tell columns from chance."""
_TAGGED_SHARE = 0.95
"""Share of the first lines with a tag from which on a file is one of CoNLL columns: a broken line is to be named."""


@dataclass(frozen=True, slots=True)
class NerExample:
    """A sentence as words, and a tag for each."""

    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...] = ()
    document: int | None = None
    """Number of the document in its file that the sentence belongs to; None where the file does not say."""


@dataclass(frozen=True)
class _ConllLayout:
    """Columns of a file, as all of its lines show them."""

    shape: tuple[bool, int] | None
    """Whether most lines have tabs, and their number of columns; None without a line that may not be a comment."""
    is_numbered: bool
    """Whether the first column numbers the words of each sentence."""
    tag_place: int
    """Place of the tags among the columns, from the end: of nested names, the outer ones."""
    tags: Counter[str]
    """Number of lines by what stands there."""

    @classmethod
    def of(cls, lines: Iterable[str]) -> Self:
        """The layout of a file's lines."""
        shapes: Counter[tuple[bool, int]] = Counter()
        rows: list[list[str]] = []
        place, num_in_place = 0, 0
        for line in lines:
            fields = _fields(line)
            if not line.strip() or line.startswith(_DOCUMENT_MARK):
                place = 0
                continue
            is_comment = line.startswith(_COMMENT_MARK)
            if len(fields) > 1 and (not is_comment or bio_tags.fit_one_form(fields[-1:])):
                rows.append(fields)
            if not is_comment:
                shapes["\t" in line, len(fields)] += 1
                is_part = _PART_NUMBER.fullmatch(fields[0]) is not None
                place += not is_part
                num_in_place += is_part or fields[0] == str(place)
        shape = shapes.most_common(1)[0][0] if shapes else None
        is_numbered = shape is not None and shape[1] > 2 and num_in_place >= _TAGGED_SHARE * shapes.total()
        tag_place, tags = -1, Counter(row[-1] for row in rows)
        while shape is not None and shape[1] > 1 + is_numbered - tag_place:
            outer = Counter(row[tag_place - 1] for row in rows if len(row) > 1 - tag_place)
            if not _are_nested(outer, tags):
                break
            tag_place, tags = tag_place - 1, outer
        return cls(shape, is_numbered, tag_place, tags)

    def is_comment(self, line: str) -> bool:
        """Whether a line before a sentence is a comment, not the sentence's first word."""
        if not line.startswith(_COMMENT_MARK):
            return False
        fields = _fields(line)
        has_tag = len(fields) > 1 and (bio_tags.fit_one_form(fields[-1:]) or fields[-1] in self.tags)
        if self.shape is None:
            return len(fields) > 1 and not has_tag
        if self.shape != ("\t" in line, len(fields)):
            return not (has_tag and len(fields) == 2)
        return len(fields) > 1 and fields[0] == _COMMENT_MARK and not has_tag and fields[-1] != _NO_VALUE


_PART_NUMBER = re.compile(r"\d+[-.]\d+")
"""Number, in CoNLL-U, of a line that is no word: of several words as they are written, or of one that is not there."""


@dataclass(frozen=True)
class ConllReader(LabeledReader[NerExample]):
    """Reads any number of columns, apart by tabs where a line has one, else by spaces.

    A sentence with a broken line is left out whole.
    """

    tags: tuple[str, ...] | None = None
    """The tag set; None takes every tag of the kind that is read."""
    are_entities: ClassVar[bool] = True
    """Whether tags mark entities, in BIO or another scheme that becomes BIO; if not, they are taken as they are."""

    def read(self, path: str, bad: BadRecords) -> Iterator[NerExample]:
        """The file's sentences in order, tags as BIO. Raises: TaskDataError where no tag of the file marks entities."""
        numbered = list(read_lines(path, bad))
        layout = _ConllLayout.of(line for _, line in numbered)
        form = _known_form(path, _LAST_COLUMN, layout.tags, self.are_entities) if self.labeled else None
        number = 0
        for document, lines in _sentences(numbered, layout):
            sentence = self._parse(lines, str(number), document, layout, form, bad)
            if sentence is not None:
                yield sentence
                number += 1

    def _parse(
        self,
        lines: list[tuple[int, str]],
        sentence_id: str,
        document: int | None,
        layout: _ConllLayout,
        form: re.Pattern[str] | None,
        bad: BadRecords,
    ) -> NerExample | None:
        numbers, words, tags, is_upos = [], [], [], False
        for number, line in lines:
            fields = _fields(line)
            if not self.labeled and layout.shape and len(fields) not in (1, layout.shape[1]):
                bad.found(f"line {number}", f"{line!r} has {len(fields)} columns, and most lines {layout.shape[1]}")
                return None
            if layout.is_numbered:
                if _PART_NUMBER.fullmatch(fields[0]):
                    continue
                fields = fields[1:]
            if not fields or not fields[0] or (self.labeled and len(fields) < 1 - layout.tag_place):
                bad.found(f"line {number}", f"{line!r} is not a word and, in the last column, its tag")
                return None
            numbers.append(number)
            words.append(fields[0])
            is_upos = not self.are_entities and layout.is_numbered and len(fields) == _NUM_CONLLU_COLUMNS - 1
            tags.append(fields[2] if is_upos else fields[layout.tag_place if self.labeled else -1])
        if not words:
            return None
        if layout.is_numbered:
            tagged = ", and their tags in the fourth (UPOS)" if is_upos else ""
            bad.remarks[f"sentences whose words stand in the second column, behind their numbers{tagged}"] += 1
        if not self.labeled:
            return NerExample(sentence_id, tuple(words), document=document)
        if layout.tag_place < -1:
            bad.remarks["sentences with names within names, of which the outer ones are read"] += 1
        bio = _as_bio(tags, form, bad)
        for number, tag in zip(numbers, bio, strict=True):
            if problem := bio_tags.find_bad_tag((tag,), self.tags, self.are_entities):
                bad.found(f"line {number}", problem)
                return None
        return NerExample(sentence_id, tuple(words), bio, document)


def _are_nested(outer: Counter[str], inner: Counter[str]) -> bool:
    """Whether two columns of tags mark names, and names within these, unlike chunks of a sentence and its names."""
    shares = [
        sum(n for tag, n in tags.items() if bio_tags.fit_one_form([tag])) / max(1, tags.total())
        for tags in (outer, inner)
    ]
    form = bio_tags.find_form(outer)
    kinds = {found["kind"] for found in map(form.fullmatch, outer) if found} if form else set()
    return min(shares) > _TAGGED_SHARE and bool(kinds) and kinds.isdisjoint(_CHUNKS)


def _known_form(path: str, column: str, tags: Counter[str], are_entities: bool) -> re.Pattern[str] | None:
    """The form of a file's tags; None of those that mark no entities.

    Raises: TaskDataError for a file without tags, and where no tag of entities is of any form.
    """
    form = bio_tags.find_form(tags) if are_entities else None
    if table_name(path) == "CSV" and column == _LAST_COLUMN and form is None:
        raise TaskDataError(f"{path} is a CSV table, and {_READS}")
    if not tags:
        raise TaskDataError(f"{path} has no tags behind its words, and {_READS}")
    if are_entities and form is None:
        shown = [tag for tag, _ in tags.most_common(3)]
        raise TaskDataError(f"{path}: {column} has the {bio_tags.other_tags_problem(shown)}")
    return form


def _as_bio(tags: Sequence[str], form: re.Pattern[str] | None, bad: BadRecords) -> tuple[str, ...]:
    """A sentence's tags as BIO, counted where they were written in another scheme; without a form as they are."""
    if form is None:
        return tuple(tags)
    bio = bio_tags.to_bio(tags, form)
    if all(map(bio_tags.is_bio, bio)) and not all(map(bio_tags.is_bio, tags)):
        bad.remarks["sentences whose tags are of another scheme (BIOES, say), read as BIO"] += 1
    return bio


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
    filled = [line for line in (line.rstrip("\r\n") for line in lines) if line.strip()]
    if filled and filled[0].startswith(_DOCUMENT_MARK):
        return True
    layout = _ConllLayout.of(filled)
    rows = [line for line in filled if not line.startswith(_DOCUMENT_MARK) and not layout.is_comment(line)]
    tagged = sum(number for tag, number in layout.tags.items() if bio_tags.fit_one_form([tag]))
    return bool(rows) and tagged >= _TAGGED_SHARE * len(rows)


def has_other_tags(lines: Iterable[str]) -> bool:
    """Whether lines have the same number of words each, the last a tag that begins with a capital (parts of speech)."""
    rows = [words for words in map(split_words, lines) if words]
    tags = {words[-1] for words in rows}
    return (
        len(rows) > FEW_LINES
        and len({len(words) for words in rows}) == 1 < len(rows[0])
        and len(tags) <= len(rows) / 3
        and all(tag[0] == tag[0].upper() for tag in tags)
        and any(tag.isascii() and tag.isalpha() for tag in tags)
    )


def split_words(line: str) -> list[str]:
    """The words of a line, apart by spaces and tabs: other blanks, as the no-break space, stay within a word."""
    return re.findall(r"[^ \t\r\n]+", line)


def _fields(line: str) -> list[str]:
    return line.rstrip(" ").split("\t") if "\t" in line else split_words(line) or [""]


def _sentences(
    numbered: Iterable[tuple[int, str]], layout: _ConllLayout
) -> Iterator[tuple[int | None, list[tuple[int, str]]]]:
    """Each sentence's document, if the file has said, and its lines with their numbers."""
    document = None
    lines: list[tuple[int, str]] = []
    for number, line in chain(numbered, [(0, "")]):
        if not lines and layout.is_comment(line):
            continue
        is_document_start = line.startswith(_DOCUMENT_MARK)
        if not is_document_start and line.strip():
            lines.append((number, line))
            continue
        if lines:
            yield document, lines
        lines = []
        if is_document_start:
            document = 0 if document is None else document + 1


@dataclass(frozen=True)
class NerTable(LabeledReader[NerExample]):
    """Reads sentences whose words and tags are lists, or texts with character spans, or of a word and a tag a row."""

    tokens_column: str
    tags_column: str
    tags: tuple[str, ...] | None = None
    """The tag set; None takes every tag of the kind that is read."""
    are_entities: ClassVar[bool] = True
    """Whether tags mark entities, as of `ConllReader`."""
    sentence_column: str | None = None
    """Column that tells the sentences of rows of words apart: one goes on while it says the same, or nothing."""

    def read(self, path: str, bad: BadRecords) -> Iterator[NerExample]:
        """The file's sentences in order, tags as BIO. Raises: TaskDataError where no tag of the file marks entities."""
        columns = (self.tokens_column, *([self.tags_column] if self.labeled else ()))
        names = class_names(path, self.tags_column) or self.tags or ()
        if self.sentence_column is None:
            read: Iterator[TableRow] = (
                (place, tuple(map(unpack_cell, values))) for place, values in read_rows(path, columns, bad)
            )
        else:
            read = self._grouped(read_rows(path, (self.sentence_column, *columns), bad), bad)
        rows = [(place, self._named(values, names, bad)) for place, values in read]
        counts = Counter(tag for _, values in rows if are_texts(values[-1]) for tag in values[-1])
        are_entities = self.are_entities
        form = _known_form(path, repr(self.tags_column), counts, are_entities) if self.labeled and counts else None
        for number, (place, values) in enumerate(rows):
            try:
                words, tags = self._sentence(values, bad)
                bio = _as_bio(tags, form, bad)
                if problem := bio_tags.find_bad_tag(bio, self.tags, self.are_entities):
                    raise ValueError(problem)
                if words:
                    yield NerExample(str(number), tuple(words), bio)
            except ValueError as error:
                bad.found(place, str(error))

    def _grouped(self, rows: Iterable[TableRow], bad: BadRecords) -> Iterator[TableRow]:
        """The rows of each sentence as one, with lists of its words and tags."""
        sentences: list[tuple[str, tuple[list[str], list[str]]]] = []
        last = ""
        for place, values in rows:
            sentence, word, *tag = ("" if value is None or value != value else str(value) for value in values)
            if not sentences or sentence not in ("", last):
                last = sentence
                sentences.append((place, ([], [])))
            if not word.strip():
                bad.found(place, f"no word in {self.tokens_column!r}")
                continue
            words, tags = sentences[-1][1]
            words.append(word)
            tags += tag
        return (sentence for sentence in sentences if sentence[1][0])

    def _named(self, values: tuple[object, ...], names: Sequence[str], bad: BadRecords) -> tuple[object, ...]:
        """A row whose tags are numbers with the tags that they stand for."""
        tags = values[-1]
        if not self.labeled or not isinstance(tags, list) or not tags or not {*map(type, tags)} <= {int}:
            return values
        if not 0 <= min(tags) <= max(tags) < len(names):
            return values
        bad.remarks["sentences whose tags are numbers, read as the names in this order"] += 1
        return values[0], [names[tag] for tag in tags]

    def _sentence(self, values: tuple[object, ...], bad: BadRecords) -> tuple[list[str], list[str]]:
        """A row's words and their tags, none where they are not read. Raises: ValueError, saying what is wrong."""
        words, tags = values[0], values[1] if self.labeled else []
        if isinstance(tags, list) and "-100" in map(str, tags):  # which PyTorch's losses ignore
            raise ValueError(f"{self.tags_column} has -100, of pieces of words; list whole words and a tag for each")
        if isinstance(words, str) and self.are_entities:
            spans = bio_tags.read_spans(tags)
            if spans is None:
                raise ValueError(f"{self.tags_column} must be a list of character spans, {bio_tags.SPAN_EXAMPLE}")
            beyond = next((span for span in spans if span.end > len(words)), None)
            if beyond is not None:
                raise ValueError(f"the span {list(beyond)} ends behind the {len(words)} characters of the text")
            words, bio = bio_tags.tag_words(words, spans, bad.remarks)
            return words, bio if self.labeled else []
        if are_texts(words) and isinstance(tags, list) and {*map(type, tags)} == {int}:
            raise ValueError(
                f"{self.tags_column} has numbers; list the tags that they stand for, in order, as task.labels"
            )
        if not are_texts(words) or not are_texts(tags):
            raise ValueError(f"{' and '.join((self.tokens_column, self.tags_column))} must be lists of text")
        if self.labeled and len(words) != len(tags):
            raise ValueError(f"{len(words)} {self.tokens_column} but {len(tags)} {self.tags_column}")
        return words, tags


class PlainConllReader(ConllReader):
    """Reads tags that mark no entities."""

    are_entities = False


class PlainTagTable(NerTable):
    """Reads tags that mark no entities."""

    are_entities = False
