"""Documents from files: plain text, JSON lines and Parquet, with one policy for bad records.

A record is a line of plain text (a paragraph), a line of JSON, or a row of Parquet. `on_bad_record` says what happens
with a record that cannot be used:

* `error`: the run ends, with the file and the place;
* `skip`: the record is left out;
* `replace`: a bad byte becomes U+FFFD, and a line over the limit keeps its beginning; a record without structure (no
  JSON, no such field) cannot be mended and is left out.

Bad records are counted for each file. A NUL byte is a bad byte: a file with such bytes is UTF-16 or no text at all.
"""

import json
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from io import BufferedIOBase
from pathlib import Path, PurePosixPath
from typing import NamedTuple, cast

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.base.errors import CorpusError
from orchestrator.base.results import FileCount
from orchestrator.corpus.input_files import InputFile, open_raw
from orchestrator.specs import TextSource
from orchestrator.storage import digest_file
from orchestrator.storage.text_lines import compression_problem, unpacked
from orchestrator.storage.uris import is_local

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
CHUNK_BYTES = 1 << 20
_ZSTD_PIECE_BYTES = 1 << 14
"""Size of a read from a .zst file. Arrow fills a piece or fails, so this much may be lost where a file is damaged."""
MAX_RECORD_BYTES = 16 << 20
"""Largest size of a line; a longer line is a bad record. A longer document of plain text is split into several."""
ID_FIELD = "id"
"""Key or column that holds a document's name, if the file has it."""
_ROWS_AT_ONCE = 64


class Line(NamedTuple):
    """A line without its line break."""

    number: int
    """Number of the line, counted from 1."""
    offset: int
    """Place of the line's first byte in the stream."""
    data: bytes
    """Bytes of the line, at most as many as the limit."""
    num_bytes: int
    """Length of the line, also where it is longer than the limit and `data` is only its beginning."""


def split_lines(chunks: Iterable[bytes], max_bytes: int) -> Iterator[Line]:
    """Lines of a stream that comes in chunks, wherever the chunks were cut.

    A carriage return before the line feed, and a byte order mark at the beginning of the stream, are removed. U+2028
    and similar characters end no line.
    """
    held = bytearray()
    number, offset, num_bytes = 1, 0, 0
    for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            held += part[: max_bytes - len(held)]
            num_bytes += len(part)
            yield _line(number, offset, bytes(held), num_bytes)
            held.clear()
            number, offset, num_bytes = number + 1, offset + num_bytes + 1, 0
        held += rest[: max_bytes - len(held)]
        num_bytes += len(rest)
    if num_bytes:
        yield _line(number, offset, bytes(held), num_bytes)


def _line(number: int, offset: int, data: bytes, num_bytes: int) -> Line:
    if offset == 0 and data.startswith(BYTE_ORDER_MARK):
        data, offset, num_bytes = data[3:], 3, num_bytes - 3
    if len(data) == num_bytes and data.endswith(b"\r"):
        data, num_bytes = data[:-1], num_bytes - 1
    return Line(number, offset, data, num_bytes)


class DamagedFileError(CorpusError):
    """A file ends early or cannot be decompressed; the bytes that were read before are good."""


def read_chunks(file: InputFile, on_read: Callable[[int], None] = lambda _: None) -> Iterator[bytes]:
    """Decompressed content of a file, in pieces; `on_read` gets the number of stored bytes read so far.

    Raises: CorpusError when the file cannot be opened or has a wrong ending, DamagedFileError when it ends early.
    """
    num_bytes = 0
    with open_raw(file) as raw:
        begin = raw.read(6)
        raw.seek(0)
        if not begin:
            return
        if problem := compression_problem(file.path, begin):
            raise CorpusError(f"{file.path} {problem}")
        try:
            read = partial(raw.read, CHUNK_BYTES)
            if file.compression:
                # Pieces may be small: bytes that were collected for a larger one are lost where a file is damaged.
                content = cast(BufferedIOBase, unpacked(raw, file.path))
                read = partial(content.read1, _ZSTD_PIECE_BYTES if file.compression == ".zst" else CHUNK_BYTES)
            while chunk := read():
                num_bytes += len(chunk)
                on_read(raw.tell())
                yield chunk
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            raise DamagedFileError(
                f"{file.path} is damaged after {num_bytes} bytes of its content: {error}; fetch it again"
            ) from None


class Document(NamedTuple):
    """A text and its name: the `id` that the file gives it, or the file's name and a number."""

    id: str
    text: str
    language: str


class DocumentReader:
    """Reader of one file, which is read once; it counts documents and bad records."""

    def __init__(self, file: InputFile, source: TextSource):
        self.file = file
        self.source = source
        self.num_documents = 0
        self.num_bad_records = 0
        self.first_problem = ""
        """Message about the first bad record that was left out or mended; empty without one."""
        self.num_bytes_read = 0

    def count(self) -> FileCount:
        """Counts of the file; with the SHA-256 of a file of this machine that was read to its end as it is now."""
        path, digest = self.file.path, None
        if is_local(path) and self.num_bytes_read == self.file.num_bytes:
            with suppress(OSError):
                digest = digest_file(path)
                if str(Path(path).stat().st_mtime_ns) != self.file.version:  # it was written meanwhile
                    digest = None
        return FileCount(path, self.file.num_bytes, self.num_documents, self.num_bad_records, digest)

    def read(self) -> Iterator[Document]:
        """Read the documents that hold text, in order. Raises: CorpusError."""
        records = {"text": self._read_text, "jsonl": self._read_json_lines, "parquet": self._read_parquet}
        language = self.source.language(self.file.entry)
        try:
            for name, text in records[self.file.format]():
                if text and not text.isspace():
                    self.num_documents += 1
                    own_name = name or f"{PurePosixPath(self.file.path).name}#{self.num_documents}"
                    # Half of a surrogate pair, which JSON and file names may have, becomes a question mark.
                    yield Document(own_name.encode(errors="replace").decode(), text, language)
        except DamagedFileError as damage:
            if self.source.on_bad_record == "error":
                raise DamagedFileError(
                    f"{damage}, or set corpus.on_bad_record (--on-bad-record) to skip "
                    "to use the whole records before that"
                ) from None
            self.num_bad_records += 1
            self.first_problem = self.first_problem or str(damage)
        self.num_bytes_read = self.file.num_bytes

    def _read_text(self) -> Iterator[tuple[str, str]]:
        paragraphs: list[str] = []
        num_bytes = 0
        try:
            for line in self._read_lines():
                text = self._decode_line(line)
                if text and not text.isspace():
                    paragraphs.append(text)
                    num_bytes += line.num_bytes
                if (text is not None and text.strip() == "") or num_bytes > MAX_RECORD_BYTES:
                    yield "", "\n".join(paragraphs)
                    paragraphs, num_bytes = [], 0
        except DamagedFileError:
            yield "", "\n".join(paragraphs)
            raise
        yield "", "\n".join(paragraphs)

    def _read_json_lines(self) -> Iterator[tuple[str, str]]:
        for line in self._read_lines():
            text = self._decode_line(line)
            if text and not text.isspace():
                yield from self._read_record(text, f"line {line.number} (byte {line.offset})")

    def _read_parquet(self) -> Iterator[tuple[str, str]]:
        with open_raw(self.file) as raw:
            try:
                file = pq.ParquetFile(raw, pre_buffer=False)
                self._check_column(file.schema_arrow)
                columns = [name for name in (self.source.text_field, ID_FIELD) if name in file.schema_arrow.names]
                number = 0
                for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=columns, use_threads=False):
                    # As bytes, since Parquet does not guarantee that a column of strings is UTF-8.
                    texts = batch.column(self.source.text_field).cast(pa.large_binary()).to_pylist()
                    names = batch.column(ID_FIELD).to_pylist() if ID_FIELD in columns else [None] * len(texts)
                    for name, data in zip(names, texts, strict=True):
                        number += 1
                        self.num_bytes_read = self.file.num_bytes * number // file.metadata.num_rows
                        if data is None:
                            self._note_bad(f"row {number}", f"has no value in {self.source.text_field!r}")
                        elif (text := self._decode(data, f"row {number}")) is not None:
                            yield _name(name), text
            except (pa.ArrowException, OSError) as error:
                raise DamagedFileError(
                    f"{self.file.path} cannot be read as Parquet: {error}; fetch or write it again"
                ) from None

    def _check_column(self, schema: pa.Schema) -> None:
        name = self.source.text_field
        if name not in schema.names:
            raise CorpusError(
                f"{self.file.path} has no column {name!r}; it has {', '.join(schema.names)}: "
                "set corpus.text_field (--text-field)"
            )
        for twice in (one for one in (name, ID_FIELD) if schema.names.count(one) > 1):
            raise CorpusError(f"{self.file.path} has several columns {twice!r}; rename all but one of them")
        kind = schema.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
            raise CorpusError(
                f"{self.file.path}: column {name!r} holds {kind}, not text; set corpus.text_field (--text-field)"
            )

    def _read_record(self, line: str, place: str) -> Iterator[tuple[str, str]]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            self._note_bad(place, f"is not JSON: {error}")
            return
        if not isinstance(record, dict):
            self._note_bad(place, f"is {type(record).__name__}, not a JSON object")
            return
        field = self.source.text_field
        text = record.get(field)
        if not isinstance(text, str):
            has = f"has {type(text).__name__} in" if field in record else "lacks"
            fields = ", ".join(record)[:200]
            hint = "" if field in record else "; set corpus.text_field (--text-field) if another holds the text"
            self._note_bad(place, f"{has} the text field {field!r} (its fields: {fields}){hint}")
            return
        if "\0" in text or (not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)):
            self._note_bad(place, "has NUL or half a surrogate pair, which is no character")
            if self.source.on_bad_record == "skip":
                return
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")
        yield _name(record.get(ID_FIELD)), text

    def _read_lines(self) -> Iterator[Line]:
        return split_lines(read_chunks(self.file, partial(setattr, self, "num_bytes_read")), MAX_RECORD_BYTES)

    def _decode_line(self, line: Line) -> str | None:
        if line.num_bytes > len(line.data):
            self._note_bad(
                f"line {line.number} (byte {line.offset})",
                f"is {line.num_bytes} bytes long, more than the {MAX_RECORD_BYTES} that a record may have",
            )
            if self.source.on_bad_record == "skip":
                return None
            # The cut may have gone through a character.
            return line.data.decode("utf-8", "ignore").replace("\0", "\ufffd")
        return self._decode(line.data, f"line {line.number}", line.offset)

    def _decode(self, data: bytes, place: str, offset: int | None = None) -> str | None:
        """Text of UTF-8 bytes; None when the record is to be left out."""
        try:
            text = data.decode()
            if "\0" not in text:
                return text
            position, problem = data.index(0), "has a NUL byte; is it UTF-16, or no text at all?"
        except UnicodeDecodeError as error:
            position, problem = error.start, f"is not UTF-8 (byte 0x{data[error.start]:02x})"
        self._note_bad(place if offset is None else f"{place} (byte {offset + position})", problem)
        if self.source.on_bad_record == "skip":
            return None
        return data.decode("utf-8", "replace").replace("\0", "\ufffd")

    def _note_bad(self, place: str, problem: str) -> None:
        stream = " of the decompressed content" if self.file.compression else ""
        message = f"{self.file.path}: {place}{stream} {problem}"
        if self.source.on_bad_record == "error":
            raise CorpusError(
                f"{message}; mend the file, or set corpus.on_bad_record (--on-bad-record) to skip or replace"
            )
        self.num_bad_records += 1
        self.first_problem = self.first_problem or message


def _name(value: object) -> str:
    """A document's id as text; empty where it has none."""
    return str(value) if isinstance(value, str | int) else ""
