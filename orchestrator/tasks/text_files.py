"""Files of labeled data: found with or without a compression's ending, read whole, decoded line by line, by readers.

Lines end at LF or CRLF only, or at CR in a file that has no LF, as Excel saves "CSV (Macintosh)"; other characters that
Unicode calls line breaks are text.
"""

import codecs
import io
import lzma
import re
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import PurePosixPath
from typing import Generic, Literal, Self, TypeVar

from orchestrator.base.errors import TaskDataError
from orchestrator.base.nearest import no_file
from orchestrator.specs.task import TaskSpec
from orchestrator.storage import exists, join, open_read, read_bytes
from orchestrator.storage.text_lines import COMPRESSIONS, compression_problem, unpacked
from orchestrator.tasks.catalogue import KnownTask

_HEAD_BYTES = 4096
"""First bytes of a file by which its kind is known."""
_ROWS = "write CSV or JSONL with an example in each row: columns text and label"
_XML = f"is XML or HTML; {_ROWS}, or its text alone as a .txt file"
_FOREIGN = {
    rb"PK\x03\x04": "is a zip archive or an Excel sheet; save the sheet as CSV, or unpack the archive",
    rb"BZh": "is compressed by bzip2; unpack it, or compress it with gzip",
    rb"%PDF": "is a PDF; save its text as a .txt file",
    rb"\{\\rtf": "is RTF; save its text as a .txt file",
    rb"(?i)\s*<(\?xml|!doctype|html)\b": _XML,
    rb"(version:.*\s+)?nlu:\s|##\s*(intent|synonym|lookup|regex):": f"holds examples for Rasa; {_ROWS}",
}
"""Problem of a file, and the remedy, by the bytes that it begins with."""
_FOREIGN_ENDINGS = {
    **dict.fromkeys((".xml", ".html", ".htm"), _XML),
    **dict.fromkeys((".yaml", ".yml"), f"is YAML; {_ROWS}"),
}
"""The same by the ending of its name."""


@dataclass
class BadRecords:
    """Records of a file that cannot be used: the first one ends the reading, or each is left out and counted."""

    path: str
    policy: Literal["error", "skip"]
    count: int = 0
    num_unlabeled: int = 0
    """Records without a label, which are left out."""
    num_repaired: int = 0
    """Records that were repaired from what the file itself holds."""
    first_problem: str = ""
    """The first broken record's place, and what is wrong with it; empty without one."""
    first_repair: str = ""
    """The first repaired record's place, and what was done; empty without one."""
    remarks: Counter[str] = field(default_factory=Counter)
    """Number of times, by description, that something was read otherwise than it is written: a person is told."""

    def found(self, place: str, problem: str, num_lines: int = 1) -> None:
        """Count a broken record, by its lines where it swallowed others. Raises: TaskDataError, by policy."""
        if self.policy == "error":
            raise TaskDataError(
                f"{self.path}, {place}: {problem}; correct it, or leave such records out with task.on_bad_record: skip"
            )
        self.first_problem = self.first_problem or f"{place}: {problem}"
        self.count += num_lines

    def unlabeled(self, value: object) -> None:
        """Count a record that is left out because it has no label."""
        self.num_unlabeled += 1
        shown = "" if value is None else str(value).strip()
        self.remarks[f"rows without a label ({shown or 'empty'}), left out"] += 1

    def repaired(self, place: str, what: str) -> None:
        self.first_repair = self.first_repair or f"{place}: {what}"
        self.num_repaired += 1


E_co = TypeVar("E_co", covariant=True)


@dataclass(frozen=True)
class Reader(ABC, Generic[E_co]):
    """Reads a file as examples, each with an `id`. A subclass is a frozen dataclass of everything that decides how."""

    @classmethod
    def of_spec(cls, spec: TaskSpec, labels: tuple[str, ...] | None, known: KnownTask | None = None) -> Self:
        """The reader of a task's files, for the arguments of `TaskType.reader`. Raises: SpecError."""
        return cls()

    @property
    def shared_files(self) -> tuple[str, ...]:
        """Files that every split is read with beside its own."""
        return ()

    def at_absolute_paths(self) -> Self:
        """The same reader for a process with another working folder."""
        return self

    @abstractmethod
    def read(self, path: str, bad: BadRecords) -> Iterator[E_co]:
        """The file's examples in order. Raises: TaskDataError, or counts broken records in `bad`."""

    def without_labels(self) -> "Reader[E_co]":
        """A reader of the same layout for files without labels."""
        return self


@dataclass(frozen=True)
class LabeledReader(Reader[E_co]):
    """A reader that can leave labels out."""

    _: KW_ONLY
    labeled: bool = True
    """Whether labels are read; if not, they need not be there."""

    def without_labels(self) -> Self:
        return replace(self, labeled=False)


def find_file(folder: str, names: Iterable[str]) -> str | None:
    """The first of `names` that lies in `folder`, compressed or not."""
    for name in names:
        for ending in ("", *COMPRESSIONS):
            path = join(folder, name + ending)
            if exists(path):
                return path
    return None


def plain_name(path: str) -> str:
    """A path in lower case without its compression's ending."""
    lower = path.lower()
    for ending in COMPRESSIONS:
        lower = lower.removesuffix(ending)
    return lower


def _content_problem(path: str, head: bytes) -> str | None:
    """Say what a file's first bytes are, where they are no text or table as its name says, and the remedy."""
    ending = PurePosixPath(plain_name(path)).suffix
    if ending == ".parquet":
        return None
    begins = (problem for magic, problem in _FOREIGN.items() if re.match(magic, head.removeprefix(codecs.BOM_UTF8)))
    foreign = next(begins, _FOREIGN_ENDINGS.get(ending))
    if problem := foreign or compression_problem(path, head):
        return problem
    is_text = head.startswith((*COMPRESSIONS.values(), codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" not in head
    return None if is_text else f"is a binary file, byte {head.index(0) + 1} is 0; text, tables and Parquet are read"


def check_file(path: str) -> None:
    """Check that a file is there, and that its first bytes fit its name and are text or a table.

    Raises: TaskDataError; IsADirectoryError for a folder.
    """
    try:
        with open_read(path) as raw:
            head = raw.read(_HEAD_BYTES)
    except FileNotFoundError:
        raise TaskDataError(no_file(path)) from None
    except IsADirectoryError:
        raise
    except OSError as error:
        raise TaskDataError(f"{path} cannot be read ({error.strerror or error}); check the path") from None
    if problem := _content_problem(path, head) if head else "is empty; name a file that holds data":
        raise TaskDataError(f"{path} {problem}")


def read_decompressed(path: str) -> bytes:
    """All of a file, decompressed by its ending. Raises: TaskDataError when it is missing or cut short."""
    try:
        data = read_bytes(path)
    except OSError as error:
        raise TaskDataError(
            f"{path} cannot be read ({error.strerror or error}); check task.folder or task.files"
        ) from error
    if problem := _content_problem(path, data[:_HEAD_BYTES]):
        raise TaskDataError(f"{path} {problem}")
    try:
        return unpacked(io.BytesIO(data), path).read()
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise TaskDataError(f"{path} cannot be decompressed: {error}; fetch the file again") from error


def read_encoded(path: str) -> bytes:
    """All of a file, decompressed, as UTF-8: from UTF-16 where a byte order mark says so, as spreadsheets save it."""
    data = read_decompressed(path)
    if not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode("utf-16").encode()
    except UnicodeDecodeError:
        raise TaskDataError(f"{path} begins as UTF-16 and is cut short; save it as UTF-8") from None


def read_lines(path: str, bad: BadRecords) -> Iterator[tuple[int, str]]:
    """Each line that is text with its number from 1, without its line end."""
    data = read_encoded(path)
    if b"\n" not in data:
        data = data.replace(b"\r", b"\n")
    data = data.removesuffix(b"\n")
    if not data:
        raise TaskDataError(f"{path} is empty; fetch the file again or name another")
    for number, line in enumerate(io.BytesIO(data), start=1):
        raw = line.removesuffix(b"\n").removesuffix(b"\r")
        try:
            yield number, raw.decode()
        except UnicodeDecodeError as error:
            byte = f"byte {error.start + 1} is not UTF-8 ({raw[error.start]:#04x})"
            bad.found(f"line {number}", f"{byte}, save the file as UTF-8")
