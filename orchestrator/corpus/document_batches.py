"""Units of work that a corpus is cut into: bundles of files, and batches of documents, of which each becomes a shard.

Both depend on the files and on `shard_bytes` alone. So the shards and the corpus digest are the same for any number of
CPUs, and a unit that is done twice writes the same file twice. A shard is sentences as tokens; some documents are kept
out of it for validation.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice

import numpy as np
from numpy.typing import NDArray
from sentencex import segment

from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import CorpusError
from orchestrator.base.results import FileCount
from orchestrator.corpus.document_readers import Document, DocumentReader
from orchestrator.corpus.input_files import InputFile, find_files, num_copies
from orchestrator.corpus.token_store import STORED_NAMES, ShardInfo, StoreSplit, write_shard
from orchestrator.specs import TextSource

BUNDLE_BYTES = 64 << 20
"""Stored size of the consecutive files that one task reads; a larger file is a bundle of its own."""

Bundle = tuple[InputFile, ...]
MAX_SENTENCE_CHARACTERS = 8192
"""Longest sentence. A longer one is a table or noise, and is cut, so that the tokenizer's memory stays bounded."""
_WHITE_SPACE = re.compile(r"\s+")
_PIECE = re.compile(rf"(?s:.{{1,{MAX_SENTENCE_CHARACTERS}}})(?:\s|$)|(?s:.{{{MAX_SENTENCE_CHARACTERS}}})")
_SENTENCES_AT_ONCE = 1024
"""Sentences tokenized at a time: the tokenizer library takes hundreds of bytes per token while it works."""


@dataclass(frozen=True)
class Unit:
    """Consecutive documents of a bundle, about `shard_bytes` of text: their shards, once they are written, and counts.

    A document is among them as often as the sampling of its language says.
    """

    num_bytes_read: int
    """Bytes that were read since the unit before, as the files are stored."""
    files: tuple[FileCount, ...]
    """Counts of the files that ended within the unit."""
    is_last: bool = False
    shards: tuple[ShardInfo, ...] = ()


def of_entry(shards: Sequence[ShardInfo], bundle: Bundle, source: TextSource) -> tuple[ShardInfo, ...]:
    """Shards of a bundle, which know their entry of `corpus.files` where it has a weight."""
    return tuple(replace(shard, entry=bundle[0].entry) if source.weights else shard for shard in shards)


def plan_bundles(files: Sequence[InputFile], source: TextSource) -> tuple[Bundle, ...]:
    """Cut files into bundles, in order; one bundle takes all of them where documents are counted across files.

    Where entries of `corpus.files` have weights, a bundle is of one entry, and so is each shard.
    """
    if source.max_documents is not None:
        return (tuple(files),)
    bundles: list[list[InputFile]] = []
    room = 0
    for file in files:
        if not bundles or file.num_bytes > room or (source.weights and file.entry != bundles[-1][-1].entry):
            bundles.append([])
            room = BUNDLE_BYTES
        bundles[-1].append(file)
        room -= file.num_bytes
    return tuple(tuple(bundle) for bundle in bundles)


def read_corpus(source: TextSource, max_bytes: int | None = None) -> Iterator[Document]:
    """Read all documents in this process, or one at least of the first `max_bytes` of text. Raises: CorpusError.

    Documents come in the order of the files. Languages that are sampled, and entries that have weights, take turns, so
    that any beginning has them in their shares; documents of the largest weight come once.
    """
    files = find_files(source)
    if source.weights:
        copies = [weight / max(source.weights) for weight in source.weights]
        files = tuple(replace(file, mean_copies=copies[file.entry]) for file in files if copies[file.entry] > 0)
    is_mixed = source.weights or source.sampling_exponent < 1
    entries = [tuple(entry) for _, entry in groupby(files, key=lambda file: file.entry if is_mixed else 0)]
    wanted = [max(1.0, sum(file.estimated_text_bytes for file in entry)) for entry in entries]
    readers = {
        number: (document for documents, _ in read_batches(entry, source, 1) for document in documents)
        for number, entry in enumerate(entries)
    }
    taken = [0] * len(entries)
    while readers:
        number = min(readers, key=lambda number: taken[number] / wanted[number])
        document = next(readers[number], None)
        if document is None:
            del readers[number]
            continue
        num_bytes = len(document.text.encode())
        if max_bytes is not None and any(taken) and sum(taken) + num_bytes > max_bytes:  # the first one, however long
            return
        taken[number] += num_bytes
        yield document


def check_text(source: TextSource) -> None:
    """Check that there is a document with text, which is read no further, and that each weight counts.

    Raises: CorpusError.
    """
    if source.weights:
        with_files = {file.entry for file in find_files(source)}
        if alike := [pattern for entry, pattern in enumerate(source.files) if entry not in with_files]:
            raise CorpusError(
                f"corpus.files: entries before {alike[0]!r} have all of its files, so that its weight would not count; "
                "name them in one entry only"
            )
    if next(read_corpus(source), None) is None:
        raise no_text(source)


def no_text(source: TextSource) -> CorpusError:
    """Make the error for files that no document can be read from."""
    message = f"corpus.files: no document with text in {', '.join(source.files)}"
    if source.on_bad_record != "error":
        message += (
            f" that can be read (on_bad_record is {source.on_bad_record}, so bad records are not errors); "
            f"`orchestrator corpus inspect {source.files[0]}` says what is wrong with them"
        )
    return CorpusError(message)


def read_batches(bundle: Bundle, source: TextSource, shard_bytes: int) -> Iterator[tuple[list[Document], Unit]]:
    """Read the documents of each unit of a bundle; the last unit may have few, or none. Raises: CorpusError."""
    documents: list[Document] = []
    counts: list[FileCount] = []
    num_text_bytes = bytes_before = 0
    remaining = source.max_documents
    for file in bundle:
        reader = DocumentReader(file, source)
        documents_read = islice(reader.read(), remaining)
        for document in (one for one in documents_read for _ in range(num_copies(one.text, file.mean_copies))):
            documents.append(document)
            num_text_bytes += len(document.text.encode())
            if num_text_bytes >= shard_bytes:
                yield documents, Unit(reader.num_bytes_read - bytes_before, tuple(counts))
                documents, counts, num_text_bytes, bytes_before = [], [], 0, reader.num_bytes_read
        counts.append(reader.count())
        bytes_before -= file.num_bytes
        if remaining is not None:
            remaining -= reader.num_documents
    yield documents, Unit(-bytes_before, tuple(counts), is_last=True)


def split_sentences(text: str, language: str) -> list[str]:
    """Sentences of a document in order, without white space around them; none is empty.

    `language` is a code as in TextSource.languages; three letters where there are two mean English.

    A line break ends a paragraph and its last sentence; inside it the library `sentencex` decides: measured on
    Wikipedia it splits 87 MB/s on one core (tokenizing runs at 3 to 4), knows English abbreviations, initials and
    quotations ("Dr. Smith", "J. R. Brown", "D.C. on Jan. 5"), gives the same answer every time and loses no character.
    One fault was found: a white space of more than one byte after an initial ("T" + no-break space) makes it panic. So
    white space becomes plain spaces first; over a million random strings of dirty text passed after that.
    """
    sentences: list[str] = []
    for paragraph in text.split("\n"):
        paragraph = _WHITE_SPACE.sub(" ", paragraph).strip()
        if not paragraph:
            continue
        for sentence in segment(language, paragraph):
            if len(sentence) > MAX_SENTENCE_CHARACTERS:
                sentences += [piece for match in _PIECE.finditer(sentence) if (piece := match.group().strip())]
            elif sentence := sentence.strip():
                sentences.append(sentence)
    return sentences


def write_documents(
    documents: Sequence[Document], folder: str, stem: str, tokenizer: Tokenizer, validation_fraction: float
) -> list[ShardInfo]:
    """Tokenize documents and write those of each split as one shard, where there are any."""
    splits: dict[StoreSplit, list[Document]] = {"train": [], "validation": []}
    for document in documents:
        splits["validation" if is_validation(document.text, validation_fraction) else "train"].append(document)
    shards = []
    for split, chosen in splits.items():
        tokens, lengths = tokenize(chosen, tokenizer)
        kept = [number for number, document in enumerate(lengths) if document]
        if kept:
            ids = [chosen[number].id for number in kept]
            file = f"{stem}-{STORED_NAMES[split]}.parquet"
            shards.append(write_shard(folder, file, split, ids, tokens, [lengths[number] for number in kept]))
    return shards


def tokenize(
    documents: Sequence[Document], tokenizer: Tokenizer
) -> tuple[NDArray[np.unsignedinteger], list[list[int]]]:
    """All tokens end to end, and the lengths of each document's sentences; a sentence without a token is dropped."""
    dtype = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32
    cut = [split_sentences(document.text, document.language) for document in documents]
    sentences = [sentence for document in cut for sentence in document]
    parts: list[NDArray[np.unsignedinteger]] = [np.empty(0, dtype)]
    for start in range(0, len(sentences), _SENTENCES_AT_ONCE):
        encoded = tokenizer.encode_sentences(sentences[start : start + _SENTENCES_AT_ONCE])
        parts += [np.array(ids, dtype) for ids in encoded]
    lengths = iter([len(part) for part in parts[1:]])
    return np.concatenate(parts), [[n for _ in document if (n := next(lengths))] for document in cut]


def is_validation(text: str, share: float) -> bool:
    """Whether a document is kept out of training. A hash of its text decides, so that copies stay together."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64
