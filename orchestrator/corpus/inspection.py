"""Inspection of a corpus before it is used: each file's documents, sentences, bad records and first words."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from orchestrator.corpus.document_readers import DocumentReader
from orchestrator.corpus.input_files import InputFile, find_files
from orchestrator.corpus.sentence_splitting import split_sentences
from orchestrator.errors import CorpusError
from orchestrator.specs import TextSource

_SAMPLE_DOCUMENTS = 3
_SAMPLE_CHARACTERS = 200


@dataclass(frozen=True)
class FileInspection:
    """One file of a corpus, as a row of a table."""

    path: str
    format: str
    num_bytes: int
    """Size of the file as it is stored."""
    num_documents: int
    num_sentences: int
    num_words: int
    """Number of strings between white space."""
    num_characters: int
    median_sentence_words: int
    long_sentence_words: int
    """Number of words that 19 of 20 sentences do not exceed."""
    num_bad_records: int
    first_problem: str
    """Message about the first bad record; empty when there is none."""
    sample: tuple[str, ...]
    """Beginnings of the first documents."""


def inspect_corpus(source: TextSource) -> Iterator[FileInspection]:
    """Read every file to its end; bad records, and files that cannot be read, are counted.

    Raises: CorpusError when there is no such file.
    """
    counting = source.model_copy(update={"on_bad_record": "replace" if source.on_bad_record == "replace" else "skip"})
    remaining = source.max_documents
    for file in find_files(source):
        row = _inspect_file(file, counting, remaining)
        yield row
        if remaining is not None:
            remaining -= row.num_documents
            if remaining <= 0:
                return


def _inspect_file(file: InputFile, source: TextSource, limit: int | None) -> FileInspection:
    reader = DocumentReader(file, source)
    num_characters = 0
    sentence_words: Counter[int] = Counter()
    sample: list[str] = []
    unreadable = ""
    try:
        for document in islice(reader.read(), limit):
            num_characters += len(document.text)
            sentence_words.update(len(sentence.split()) for sentence in split_sentences(document.text))
            if len(sample) < _SAMPLE_DOCUMENTS:
                sample.append(" ".join(document.text[:_SAMPLE_CHARACTERS].split()))
    except CorpusError as error:
        unreadable = str(error)
    return FileInspection(
        path=file.path,
        format=file.format + file.compression,
        num_bytes=file.num_bytes,
        num_documents=reader.num_documents,
        num_sentences=sentence_words.total(),
        num_words=sum(words * count for words, count in sentence_words.items()),
        num_characters=num_characters,
        median_sentence_words=quantile(sentence_words, 0.5),
        long_sentence_words=quantile(sentence_words, 0.95),
        num_bad_records=reader.num_bad_records + bool(unreadable),
        first_problem=reader.first_problem or unreadable,
        sample=tuple(sample),
    )


def quantile(counts: Counter[int], share: float) -> int:
    """The smallest value that at least this share of all values does not exceed; 0 when there is none."""
    below = 0
    for value in sorted(counts):
        below += counts[value]
        if below >= share * counts.total():
            return value
    return 0
