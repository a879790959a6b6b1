"""Lines of text as vectors: as JSON values, or as one matrix in a file.

Shapes: N texts, H hidden.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from bert_core.checkpoints.manifest import atomic_write
from bert_core.text_embedding import TextEmbedder
from orchestrator.base.errors import InputError
from orchestrator.inference.line_blocks import (
    Abilities,
    LineBlock,
    ModelInput,
    PredictedBlock,
    json_lines,
    line_blocks,
    number_inputs,
)
from orchestrator.inference.text_vectors import embed_texts, load_embedder
from orchestrator.storage.text_lines import check_has, numbered_lines, parse_line
from orchestrator.tasks.types import TASK_TYPES


class LineEmbedder:
    """Predictor of vectors: JSON lines with an `embedding`, or rows (H,) of a matrix."""

    def __init__(self, embedder: TextEmbedder, as_matrix: bool = False, prompt_name: str | None = None) -> None:
        """Keep an encoder.

        Args:
            as_matrix: whether answers to blocks hold the vectors alone, as they lie in memory.
            prompt_name: name of the prompt that stands before each text; None for the encoder's default.

        Raises: ConfigError for a prompt that the encoder has not.
        """
        self.embedder, self.as_matrix = embedder, as_matrix
        self.prompt = embedder.model.embedding.prompt(prompt_name)
        self.abilities = Abilities("embedding", ("text",), (), True, dict(TASK_TYPES["classification"].request.example))

    @classmethod
    def load(cls, folder: str, as_matrix: bool = False, prompt_name: str | None = None, **loading: Any) -> Self:
        """Load any encoder's folder as `load_embedder` does. Raises: as that."""
        return cls(load_embedder(folder, **loading), as_matrix, prompt_name)

    def embed(
        self, inputs: Sequence[ModelInput], numbers: Sequence[int] = ()
    ) -> tuple[list[dict[str, Any]], NDArray[np.float32]]:
        """Return the values of inputs, and their vectors (N, H). Raises: InputError, naming the line."""
        numbered = number_inputs(inputs, numbers)
        values = [text_values(given, number) for number, given in numbered]
        texts = [some["text"] for some in values]
        return values, embed_texts(self.embedder, texts, [number for number, _ in numbered], prompt=self.prompt)

    def answer(self, inputs: Sequence[ModelInput], numbers: Sequence[int] = ()) -> list[dict[str, Any]]:
        for number, given in number_inputs(inputs, numbers):
            if isinstance(given, dict) and "embedding" in given:
                raise InputError(
                    f"line {number} has the key 'embedding' already, which the answer would replace; rename it"
                )
        values, vectors = self.embed(inputs, numbers)
        return [{**some, "embedding": vector.tolist()} for some, vector in zip(values, vectors, strict=True)]

    def __call__(self, block: LineBlock) -> PredictedBlock:
        num_truncated = self.embedder.num_truncated
        read = block.parse()
        data = self.embed(*read)[1].tobytes() if self.as_matrix else json_lines(self.answer(*read))
        return PredictedBlock(data, len(block.lines), self.embedder.num_truncated - num_truncated)


def embed(folder: str, lines: Iterable[str]) -> Iterator[tuple[dict[str, Any], NDArray[np.float32]]]:
    """Yield each line's values and its vector (H,), in order; blank lines are passed over.

    A line is a text, or a JSON object with `text`, whose other keys are kept. Raises: InputError, naming the line.
    """
    embedder = LineEmbedder.load(folder)
    for block in line_blocks(lines):
        yield from zip(*embedder.embed(*block.parse()), strict=True)


def read_texts(lines: Iterable[str]) -> Iterator[str]:
    """Read the text of each line that is not blank. Raises: InputError, naming the line."""
    return (text_values(parse_line(line, number), number)["text"] for number, line in numbered_lines(lines))


def text_values(given: ModelInput, number: int) -> dict[str, Any]:
    """Values of an input that is a text or an object with one. Raises: InputError, naming the line."""
    values = {"text": given} if isinstance(given, str) else given
    check_has("text", values, number)
    if not isinstance(values["text"], str):
        raise InputError(f"line {number}: text must be text")
    return values


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
    atomic_write(path, write)
    return num_bytes // (4 * dimension)
