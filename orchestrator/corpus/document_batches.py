"""Units of work that a corpus is cut into: bundles of files, and batches of documents, of which each becomes a shard.

Both depend on the files and on `shard_bytes` alone. So the shards and the corpus digest are the same for any number of
CPUs, and a unit that is done twice writes the same file twice.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from orchestrator.corpus.document_readers import Document, DocumentReader
from orchestrator.corpus.input_files import InputFile, find_files, num_copies
from orchestrator.errors import CorpusError
from orchestrator.results import FileCount
from orchestrator.specs import TextSource

BUNDLE_BYTES = 64 << 20
"""Stored size of the consecutive files that one task reads; a larger file is a bundle of its own."""

Bundle = tuple[InputFile, ...]


@dataclass(frozen=True)
class DocumentBatch:
    """Consecutive documents of a bundle, about `shard_bytes` of text.

    A document is in it as often as the sampling of its language says.
    """

    documents: Sequence[Document]
    num_bytes_read: int
    """Bytes that were read since the batch before, as the files are stored."""
    files: Sequence[FileCount]
    """Counts of the files that ended within the batch."""
    is_last: bool = False
    """Whether it is the bundle's last batch."""


def plan_bundles(files: Sequence[InputFile], source: TextSource) -> tuple[Bundle, ...]:
    """Cut files into bundles, in order; one bundle takes all of them where documents are counted across files."""
    if source.max_documents is not None:
        return (tuple(files),)
    bundles: list[list[InputFile]] = []
    room = 0
    for file in files:
        if not bundles or file.num_bytes > room:
            bundles.append([])
            room = BUNDLE_BYTES
        bundles[-1].append(file)
        room -= file.num_bytes
    return tuple(tuple(bundle) for bundle in bundles)


def read_corpus(source: TextSource, max_bytes: int | None = None) -> Iterator[Document]:
    """Read all documents in this process, or those of the first `max_bytes` of text. Raises: CorpusError.

    Documents come in the order of the files. Languages that are sampled take turns, so that any beginning has them in
    their shares.
    """
    files = find_files(source)
    by_language = groupby(files, key=lambda file: 0 if source.sampling_exponent == 1 else file.language)
    languages = [tuple(language) for _, language in by_language]
    wanted = [max(1.0, sum(file.num_bytes * file.mean_copies for file in language)) for language in languages]
    readers = [_read_documents(language, source) for language in languages]
    taken = [0] * len(languages)
    turns = [(0.0, number) for number in range(len(languages))]
    while turns:
        _, number = heapq.heappop(turns)
        document = next(readers[number], None)
        if document is None:
            continue
        taken[number] += len(document.text.encode())
        if max_bytes is not None and sum(taken) > max_bytes:
            return
        yield document
        heapq.heappush(turns, (taken[number] / wanted[number], number))


def check_text(source: TextSource) -> None:
    """Check that there is a document with text, which is read no further. Raises: CorpusError."""
    if next(read_corpus(source), None) is None:
        raise no_text(source)


def no_text(source: TextSource) -> CorpusError:
    """Make the error for files that no document can be read from."""
    hold = "holds" if len(source.files) == 1 else "hold"
    left_out = (
        ""
        if source.on_bad_record == "error"
        else (
            f" that can be read (on_bad_record is {source.on_bad_record}, so bad records are not errors); "
            f"`orchestrator corpus inspect {source.files[0]}` says what is wrong with them"
        )
    )
    return CorpusError(f"corpus.files: {', '.join(source.files)} {hold} no document with text{left_out}")


def _read_documents(files: Bundle, source: TextSource) -> Iterator[Document]:
    for batch in read_batches(files, source, 1):
        yield from batch.documents


def _repeat(documents: Iterable[Document], mean: float) -> Iterator[Document]:
    return (document for document in documents for _ in range(num_copies(document.text, mean)))


def read_batches(bundle: Bundle, source: TextSource, shard_bytes: int) -> Iterator[DocumentBatch]:
    """Read the documents of a bundle in batches; the last batch may have few, or none. Raises: CorpusError."""
    documents: list[Document] = []
    counts: list[FileCount] = []
    num_text_bytes = bytes_before = 0
    remaining = source.max_documents
    for file in bundle:
        reader = DocumentReader(file, source)
        for document in _repeat(islice(reader.read(), remaining), file.mean_copies):
            documents.append(document)
            num_text_bytes += len(document.text.encode())
            if num_text_bytes >= shard_bytes:
                yield DocumentBatch(tuple(documents), reader.num_bytes_read - bytes_before, tuple(counts))
                documents, counts, num_text_bytes, bytes_before = [], [], 0, reader.num_bytes_read
        counts.append(reader.count())
        bytes_before -= file.num_bytes
        if remaining is not None:
            remaining -= reader.num_documents
    yield DocumentBatch(tuple(documents), -bytes_before, tuple(counts), is_last=True)
