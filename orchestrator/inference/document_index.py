"""Documents with their vectors, in a folder that is made once and searched often.

index.json        the encoder and the file they were made with, and counts
documents.jsonl   {"id", "text"}, one a line, in the order of the vectors
offsets.npy       where each of these lines begins
vectors/          the vector index
manifest.json     digests, written last

Documents come from a file of lines, compressed or not, read in bounded memory. A line is a text, or an object with
`text`, perhaps `title`, and `_id` (as in BEIR) or `id`; else it goes by its number.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bert_core.checkpoints.manifest import MANIFEST_FILE, check_manifest, write_manifest
from bert_core.errors import CheckpointError, DataError
from bert_core.text_embedding import TextEmbedder
from bert_core.vector_index import VectorIndex, build_index, load_index, save_index
from orchestrator.base.errors import InputError
from orchestrator.inference.requests import refuse_table
from orchestrator.storage import digest_file, exists, local_copy, names_in, write_folder, write_json
from orchestrator.storage.text_lines import numbered_lines, parse_line, stream_lines
from orchestrator.storage.uris import is_local, local_path
from orchestrator.tasks.table_files import table_name

_INDEX_FILE = "index.json"
_DOCUMENTS_FILE = "documents.jsonl"
_OFFSETS_FILE = "offsets.npy"
_VECTORS = "vectors"
_TOLD_EVERY = 256
_INDEX_VERSION = 1
"""Raised when the same documents would become another index."""
_REMEDY = "delete the folder and build the index anew"

OnProgress = Callable[[str], None]


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

        Raises: InputError, naming file and line, also when two lines have the same id; for a table or a JSON array.
        """
        if table_name(self.path) not in (None, "JSONL"):
            raise InputError(f"{self.path} is a table; write its texts line by line, or JSON lines with _id and text")
        seen: set[str] = set()
        self.num_empty = 0
        for number, line in numbered_lines(refuse_table(stream_lines(self.path), (), self.path)):
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


class FoundDocument(NamedTuple):
    """A document that answers a query."""

    id: str
    score: float
    text: str


class DocumentIndex:
    """An index's folder, opened; the documents' texts stay on the disk."""

    def __init__(self, folder: Path) -> None:
        """Open the index of a folder.

        Raises: InputError when the folder is something else, CheckpointError when its index is not whole.
        """
        if missing := [name for name in (_INDEX_FILE, MANIFEST_FILE) if not (folder / name).is_file()]:
            raise InputError(f"{folder} is no index of documents: it has no {missing[0]}; name another folder")
        check_manifest(folder, _REMEDY)
        try:
            values = json.loads((folder / _INDEX_FILE).read_bytes())
            self.encoder: str = values["encoder"]
            """Fingerprint of what made the vectors"""
            self.source: str = values["source"]
            """Digest of the file of documents"""
            self.counts: dict[str, int] = values["counts"]
        except (OSError, ValueError, KeyError, TypeError):
            raise CheckpointError(
                f"{folder} is no index of documents: its {_INDEX_FILE} is of another kind; name another folder"
            ) from None
        self.vectors: VectorIndex = load_index(folder / _VECTORS)
        self._documents = folder / _DOCUMENTS_FILE
        self._offsets = np.load(folder / _OFFSETS_FILE, mmap_mode="r")
        self._rows = {name: row for row, name in enumerate(self.vectors.ids)}

    def search(self, queries: NDArray[np.float32], k: int) -> list[list[FoundDocument]]:
        """The k documents nearest to each query (Q, H), best first. Raises: DataError."""
        found = self.vectors.search(queries, k)
        texts = self.texts({hit.id for hits in found for hit in hits})
        return [[FoundDocument(hit.id, hit.score, texts[hit.id]) for hit in hits] for hits in found]

    def texts(self, ids: Iterable[str]) -> dict[str, str]:
        """The texts by id of those documents that are in the index."""
        found: dict[str, str] = {}
        with self._documents.open("rb") as file:
            for name in ids:
                if name in self._rows:
                    file.seek(int(self._offsets[self._rows[name]]))
                    found[name] = json.loads(file.readline())["text"]
        return found


def index_fingerprint(encoder: str, path: str, kind: str) -> str:
    """SHA-256 of all that decides an index of a file's documents; reads none of them."""
    return hashlib.sha256(json.dumps([_INDEX_VERSION, encoder, digest_file(path), kind]).encode()).hexdigest()


def open_document_index(
    folder: str, path: str | None, embedder: TextEmbedder, encoder: str, kind: str, on_progress: OnProgress
) -> DocumentIndex:
    """The index in a folder, built there first from the documents at `path` when the folder is empty or not there.

    Raises: InputError when it is something else, or of other documents or another model;
    CheckpointError when it is not whole.
    """
    if not exists(folder) or (is_local(folder) and local_path(folder).is_dir() and not names_in(folder)):
        if path is None:
            raise InputError(f"there is no index at {folder}; give the documents to build it from, with --documents")
        build_document_index(folder, path, embedder, encoder, kind, on_progress)
    index = DocumentIndex(local_copy(folder))
    if index.encoder != encoder:
        raise InputError(
            f"{folder} was built with another model, length, pooling, prompt or --dimensions, so that its vectors mean "
            "something else; search with the model that built it, or name another folder"
        )
    if kind not in ("exact", index.vectors.kind):
        raise InputError(f"{folder} is an {index.vectors.kind} index; leave --approximate out, or name another folder")
    if path is not None and index.source != digest_file(path):
        raise InputError(f"{folder} is an index of other documents than {path}; name another folder, or delete it")
    return index


def build_document_index(
    folder: str, path: str, embedder: TextEmbedder, encoder: str, kind: str, on_progress: OnProgress
) -> None:
    """Embed a file's documents into a new folder, whole or not at all.

    In memory are the vectors and ids, not the texts. Raises: InputError, naming file and line; ConfigError.
    """
    documents = DocumentFile(path)
    ids: list[str] = []
    offsets: list[int] = []
    num_truncated = embedder.num_truncated

    def write_texts(target: Path) -> Iterator[str]:
        with (target / _DOCUMENTS_FILE).open("wb") as file:
            for document in documents:
                ids.append(document.id)
                offsets.append(file.tell())
                file.write(json.dumps({"id": document.id, "text": document.text}).encode() + b"\n")
                yield document.text

    def embed(target: Path) -> Iterator[NDArray[np.float32]]:
        vectors = embedder.stream(write_texts(target), embedder.model.embedding.document_prompt)
        for number, vector in enumerate(vectors, start=1):
            yield vector
            if number % _TOLD_EVERY == 0:
                on_progress(f"embedded {number:,} documents")

    on_progress(f"embedding the documents of {path}")
    with write_folder(folder) as target:
        try:
            vectors: NDArray[np.float32] = np.fromiter(embed(target), np.dtype((np.float32, embedder.dimension)))
        except DataError:
            empty = next(each.id for each in documents if not embedder.tokenizer.encode_ids([each.text])[0])
            raise InputError(f"{path}: the text of document {empty} has no token; leave it out") from None
        if not ids:
            raise InputError(f"{path} holds no document with text; name another file")
        on_progress(f"indexing the documents of {path}")
        save_index(build_index(ids, vectors, embedder.model.embedding.similarity_fn_name, kind), target / _VECTORS)
        np.save(target / _OFFSETS_FILE, np.array(offsets, np.int64))
        counts = {
            "num_documents": len(ids),
            "num_empty_documents": documents.num_empty,
            "num_truncated_documents": embedder.num_truncated - num_truncated,
        }
        values = {"encoder": encoder, "source": digest_file(path), "counts": counts}
        write_json(str(target / _INDEX_FILE), values)
        write_manifest(target, [_INDEX_FILE, _DOCUMENTS_FILE, _OFFSETS_FILE])
