"""Lines of text as vectors: as JSON values, or as one matrix in a file.

Shapes: N texts, H hidden.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from bert_core.errors import DataError
from bert_core.pretrained import WEIGHTS_FILE
from bert_core.text_embedding import TextEmbedder
from bert_core.whole_files import write_whole
from orchestrator.errors import InputError
from orchestrator.input_lines import check_has, numbered_lines, parse_line
from orchestrator.storage import digest_file, join, local_copy

_LINES_AT_A_TIME = 2048


def load_embedder(folder: str) -> TextEmbedder:
    """The encoder of a model folder, with the pooling that the folder names, else the mean of a text's tokens.

    Raises: CheckpointError, TokenizerError.
    """
    return TextEmbedder.load(local_copy(folder))


def embedder_fingerprint(embedder: TextEmbedder, folder: str) -> str:
    """SHA-256 of all that decides a vector: weights and their arithmetic, tokenizer, pooling, length."""
    model = embedder.model
    encoder = [digest_file(join(folder, WEIGHTS_FILE)), model.config.to_dict()]
    values = [*encoder, embedder.tokenizer.fingerprint, asdict(model.embedding), embedder.max_seq_length]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def embed_lines(embedder: TextEmbedder, lines: Iterable[str]) -> Iterator[tuple[dict[str, Any], NDArray[np.float32]]]:
    """What each line says and its vector (H,), in order; blank lines are passed over.

    A line is a text, or a JSON object with `text`, whose other keys are kept. Raises: InputError, naming the line.
    """
    remaining = read_text_lines(lines)
    while chunk := list(islice(remaining, _LINES_AT_A_TIME)):
        numbers, values = zip(*chunk, strict=True)
        yield from zip(values, embed_texts(embedder, [some["text"] for some in values], numbers), strict=True)


def read_text_lines(lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The number of each line that is not blank, and what it says, `text` at least. Raises: InputError."""
    for number, line in numbered_lines(lines):
        read = parse_line(line, number)
        values = {"text": read} if isinstance(read, str) else read
        check_has("text", values, number)
        if not isinstance(values["text"], str):
            raise InputError(f"line {number}: text must be text")
        yield number, values


def embed_texts(
    embedder: TextEmbedder, texts: Sequence[str], numbers: Sequence[int], unit: str = "line"
) -> NDArray[np.float32]:
    """(N, H). Raises: InputError, naming the number of the first text without any token."""
    try:
        return embedder.embed(texts)
    except DataError:
        empty = [number for number, ids in zip(numbers, embedder.tokenizer.encode_ids(texts), strict=True) if not ids]
        raise InputError(f"{unit} {empty[0]}: the text has no token; leave it out") from None


def write_matrix(path: Path, vectors: Iterable[NDArray[np.float32]], dimension: int) -> int:
    """Vectors (H,), one after the other, as the `.npy` file of a matrix (N, H), whole or not at all; returns N."""
    num_vectors = 0

    def write(temporary: Path) -> None:
        nonlocal num_vectors
        header = {"descr": npy.dtype_to_descr(np.dtype(np.float32)), "fortran_order": False}
        with temporary.open("wb") as file:
            # NumPy leaves room in a header for any number of rows, so that the true one can be written at the end.
            npy.write_array_header_1_0(file, {**header, "shape": (0, dimension)})
            for vector in vectors:
                file.write(vector.tobytes())
                num_vectors += 1
            file.seek(0)
            npy.write_array_header_1_0(file, {**header, "shape": (num_vectors, dimension)})

    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, write)
    return num_vectors
