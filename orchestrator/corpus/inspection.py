"""Text of a corpus in its files: each counted to its end, or the beginning of all looked at. No torch."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

from bert_core.text.characters import Characters, count_words, plain_text
from orchestrator.base.errors import CorpusError
from orchestrator.corpus.document_batches import split_sentences
from orchestrator.corpus.document_readers import DocumentReader
from orchestrator.corpus.input_files import InputFile, find_files
from orchestrator.specs import TextSource

_SAMPLE_DOCUMENTS = 3
_SAMPLE_CHARACTERS = 200
_LARGE_SAMPLE_BYTES = 64 << 20
"""Text of a large sample at most, which is counted and not tokenized."""


@dataclass(frozen=True)
class FileInspection:
    """One file of a corpus, as a row of a table."""

    path: str
    format: str
    num_bytes: int
    num_documents: int
    num_sentences: int
    num_words: int
    num_characters: int
    median_sentence_words: int
    long_sentence_words: int
    """Number of words that 19 of 20 sentences do not exceed."""
    num_bad_records: int
    first_problem: str
    sample: tuple[str, ...]


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
    num_characters, sentence_words, unreadable = 0, Counter[int](), ""
    sample: list[str] = []
    try:
        for document in islice(reader.read(), limit):
            num_characters += len(document.text)
            sentences = split_sentences(document.text, document.language)
            sentence_words.update(len(sentence.split()) for sentence in sentences)
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
    """Quantile of counted values: the smallest with at least this share at or below it; 0 of none."""
    below = 0
    for value in sorted(counts):
        below += counts[value]
        if below >= share * counts.total():
            return value
    return 0


class TextFacts(NamedTuple):
    """Documents of a corpus; of a large one its beginning is looked at, and the rest is estimated from files' sizes."""

    files: tuple[str, ...]
    words: Counter[int]
    """Number of documents that were looked at, by their number of words."""
    characters: Characters
    num_text_bytes: int
    """Text that was looked at, as UTF-8."""
    num_duplicates: int
    """Duplicate documents, whatever their white space and capitals."""
    num_bad_records: int
    first_problem: str
    scale: float
    """Ratio of all text to what was looked at."""

    @property
    def num_documents(self) -> float:
        return self.words.total() * self.scale

    @property
    def num_words(self) -> float:
        return sum(number * count for number, count in self.words.items()) * self.scale

    def tokens_holding(self, share: float) -> float:
        """Estimated quantile of documents' lengths in tokens, weighted by length."""
        words = Counter({number: number * count for number, count in self.words.items()})
        return quantile(words, share) * self.characters.tokens_per_word


def sample_text(source: TextSource) -> TextFacts:
    """Look at text as pretraining reads it; bad records are left out. Raises: CorpusError."""
    files, skipping = find_files(source), source.model_copy(update={"on_bad_record": "skip"})
    readers = [DocumentReader(file, skipping) for file in files]
    words, characters, num_text_bytes = Counter[int](), Characters(), 0
    seen: set[int] = set()
    for document in chain.from_iterable(reader.read() for reader in readers):
        characters.note(document.text)
        words[count_words(document.text)] += 1
        num_text_bytes += len(document.text.encode())
        seen.add(hash(plain_text(document.text)))
        if num_text_bytes >= _LARGE_SAMPLE_BYTES:
            break
    return TextFacts(
        source.files,
        words,
        characters,
        num_text_bytes,
        num_duplicates=words.total() - len(seen),
        num_bad_records=sum(reader.num_bad_records for reader in readers),
        first_problem=next((reader.first_problem for reader in readers if reader.first_problem), ""),
        scale=sum(file.num_bytes for file in files) / max(1, sum(reader.num_bytes_read for reader in readers)),
    )
