"""A look at a corpus before it is used: what each file gives, what is wrong with it, what its text is like."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from orchestrator.corpus.files import InputFile, find_files
from orchestrator.corpus.readers import DocumentReader
from orchestrator.corpus.sentences import split_sentences
from orchestrator.specs import TextSource

_DOCUMENTS_MEASURED = 500
"""Sentences are split in the first documents of a file only: enough to judge by, quick on any size."""
_SAMPLE_DOCUMENTS = 3
_SAMPLE_CHARACTERS = 200


@dataclass(frozen=True)
class FileInspection:
    """One file of a corpus, as a row of a table."""

    path: str
    format: str
    num_bytes: int
    num_documents: int
    num_bad_records: int
    first_problem: str
    """Empty when there is none."""
    characters_per_document: float
    """The mean, over all documents."""
    sentences_per_document: float
    """The mean, over the first documents, like all that follows."""
    words_per_sentence: float
    """The mean."""
    words_per_sentence_p95: float
    """19 of 20 sentences are not longer."""
    sample: tuple[str, ...]
    """How the first documents begin."""


def inspect_corpus(source: TextSource) -> Iterator[FileInspection]:
    """Read every file to its end, counting what is bad instead of stopping at it. Raises: CorpusError."""
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
    documents: list[int] = []
    sentences: list[int] = []
    sample: list[str] = []
    for document in islice(reader.read(), limit):
        num_characters += len(document.text)
        if len(sample) < _SAMPLE_DOCUMENTS:
            sample.append(" ".join(document.text[:_SAMPLE_CHARACTERS].split()))
        if len(documents) < _DOCUMENTS_MEASURED:
            lengths = [len(sentence.split()) for sentence in split_sentences(document.text)]
            documents.append(len(lengths))
            sentences += lengths
    count = reader.count()
    return FileInspection(
        path=file.path,
        format=file.format + file.compression,
        num_bytes=file.num_bytes,
        num_documents=count.num_documents,
        num_bad_records=count.num_bad_records,
        first_problem=reader.first_problem,
        characters_per_document=num_characters / max(1, count.num_documents),
        sentences_per_document=float(np.mean(documents or [0])),
        words_per_sentence=float(np.mean(sentences or [0])),
        words_per_sentence_p95=float(np.percentile(sentences or [0], 95)),
        sample=tuple(sample),
    )
