"""Lines of text as vectors: as JSON values, or as one matrix in a file.

Shapes: N texts, H hidden.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from bert_core.config import BertConfig
from bert_core.errors import DataError
from bert_core.pretrained import WEIGHTS_FILE
from bert_core.text_embedding import TextEmbedder
from bert_core.whole_files import write_whole
from orchestrator.answering.blocks import Answers, LineBlock, json_lines
from orchestrator.errors import InputError
from orchestrator.input_lines import check_has, numbered_lines, parse_line
from orchestrator.storage import digest_file, join, local_copy


def load_embedder(folder: str, device: str = "cpu") -> TextEmbedder:
    """The encoder of a model folder, with the pooling that the folder names, else the mean of a text's tokens.

    Raises: CheckpointError, TokenizerError.
    """
    return TextEmbedder.load(local_copy(folder), device)


def embedding_size(folder: str) -> int:
    """Numbers of a vector by a model folder's encoder. Raises: CheckpointError."""
    return BertConfig.from_pretrained(local_copy(folder)).hidden_size


def embedder_fingerprint(embedder: TextEmbedder, folder: str) -> str:
    """SHA-256 of all that decides a vector: weights and their arithmetic, tokenizer, pooling, length."""
    model = embedder.model
    encoder = [digest_file(join(folder, WEIGHTS_FILE)), model.config.to_dict()]
    values = [*encoder, embedder.tokenizer.fingerprint, asdict(model.embedding), embedder.max_seq_length]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


class LineEmbedder:
    """Answers as JSON lines, an `embedding` beside what the line said, or as rows (H,) of a matrix."""

    def __init__(self, embedder: TextEmbedder, as_matrix: bool = False) -> None:
        """Vectors alone, as they lie in memory, where a matrix is asked for."""
        self.embedder = embedder
        self.as_matrix = as_matrix

    @classmethod
    def load(cls, folder: str, as_matrix: bool = False, device: str = "cpu") -> Self:
        """From any encoder's folder. Raises: CheckpointError, TokenizerError."""
        return cls(load_embedder(folder, device), as_matrix)

    def embed(self, block: LineBlock) -> tuple[list[dict[str, Any]], NDArray[np.float32]]:
        """What each line says, and the vectors (N, H). Raises: InputError, naming the line."""
        values = [read_text_line(line, number) for number, line in block.lines]
        numbers = [number for number, _ in block.lines]
        return values, embed_texts(self.embedder, [some["text"] for some in values], numbers)

    def __call__(self, block: LineBlock) -> Answers:
        """The answers, in the lines' order."""
        num_truncated = self.embedder.num_truncated
        values, vectors = self.embed(block)
        if self.as_matrix:
            data = vectors.tobytes()
        else:
            data = json_lines(
                {**some, "embedding": vector.tolist()} for some, vector in zip(values, vectors, strict=True)
            )
        return Answers(data, len(values), self.embedder.num_truncated - num_truncated)


def read_text_lines(lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The number of each line that is not blank, and what it says, `text` at least. Raises: InputError."""
    return ((number, read_text_line(line, number)) for number, line in numbered_lines(lines))


def read_text_line(line: str, number: int) -> dict[str, Any]:
    """What a line says, `text` at least. Raises: InputError, naming the line."""
    read = parse_line(line, number)
    values = {"text": read} if isinstance(read, str) else read
    check_has("text", values, number)
    if not isinstance(values["text"], str):
        raise InputError(f"line {number}: text must be text")
    return values


def embed_texts(
    embedder: TextEmbedder, texts: Sequence[str], numbers: Sequence[int], unit: str = "line"
) -> NDArray[np.float32]:
    """(N, H). Raises: InputError, naming the number of the first text without any token."""
    try:
        return embedder.embed(texts)
    except DataError:
        empty = [number for number, ids in zip(numbers, embedder.tokenizer.encode_ids(texts), strict=True) if not ids]
        raise InputError(f"{unit} {empty[0]}: the text has no token; leave it out") from None


def write_matrix(path: Path, rows: Iterable[bytes], dimension: int) -> int:
    """Rows of `dimension` float32, any whole number at a time, as the `.npy` file of a matrix (N, H), whole or not at
    all; returns N."""
    num_bytes = 0
    header = {"descr": npy.dtype_to_descr(np.dtype(np.float32)), "fortran_order": False}

    def write(temporary: Path) -> None:
        nonlocal num_bytes
        with temporary.open("wb") as file:
            # NumPy leaves room in a header for any number of rows, so that the true one can be written at the end.
            npy.write_array_header_1_0(file, {**header, "shape": (0, dimension)})
            for data in rows:
                num_bytes += file.write(data)
            file.seek(0)
            npy.write_array_header_1_0(file, {**header, "shape": (num_bytes // (4 * dimension), dimension)})

    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, write)
    return num_bytes // (4 * dimension)
