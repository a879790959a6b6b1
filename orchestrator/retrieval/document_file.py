"""Documents to search: a file of lines, compressed or not, read in bounded memory.

A line is a text, or an object with `text`, perhaps `title`, and `_id` (as in BEIR) or `id`; else it goes by its number.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.errors import InputError
from orchestrator.storage.text_lines import numbered_lines, parse_line, stream_lines


@dataclass(frozen=True, slots=True)
class CollectionDocument:
    """A text that can be found."""

    id: str
    text: str
    """The document's text, after its title where it has one."""


@dataclass
class DocumentFile:
    """A file's documents, in order. Those without any text are left out and counted."""

    path: str
    num_empty: int = 0

    def __iter__(self) -> Iterator[CollectionDocument]:
        """Yield the documents that have text, in the file's order; `num_empty` counts the others.

        Raises: InputError, naming file and line, also when two lines have the same id.
        """
        seen: set[str] = set()
        self.num_empty = 0
        for number, line in numbered_lines(stream_lines(self.path)):
            try:
                document = _read_document(line, number)
                if document.id in seen:
                    raise InputError(f"line {number}: the id {document.id!r} stands twice; give each its own")
            except InputError as error:
                raise InputError(f"{self.path}: {error}") from None
            seen.add(document.id)
            if document.text:
                yield document
            else:
                self.num_empty += 1


def _read_document(line: str, number: int) -> CollectionDocument:
    values = parse_line(line, number)
    if isinstance(values, str):
        return CollectionDocument(str(number), values.strip())
    texts = [values.get("title") or "", values.get("text")]
    if not all(isinstance(text, str) for text in texts):
        raise InputError(
            f"line {number}: a document needs text, and its title is text; it has: {', '.join(values)[:200]}"
        )
    name = values.get("_id", values.get("id", number))
    return CollectionDocument(str(name), " ".join(filter(None, (str(text).strip() for text in texts))))
