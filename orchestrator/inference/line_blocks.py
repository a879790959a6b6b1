"""Inputs of a model and its answers: single ones, and blocks of the lines of a file.

A block is answered at a time, its lines in batches by length. Which lines make a block depends on the file alone, so
the bytes of an answer are the same whoever computes it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from orchestrator.base.errors import InputError
from orchestrator.storage.text_lines import numbered_lines, parse_line

BLOCK_LINES = 1024
BLOCK_CHARACTERS = 1 << 20
"""A block ends with the line that reaches either: enough to sort by length, little enough to hold many."""


ModelInput = str | dict[str, Any]
"""One input: a text, or an object with the keys that the model reads."""


@dataclass(frozen=True)
class Abilities:
    """Description of what a model answers, for a person and for a program."""

    head: str
    """Kind of the answers: a task's head, `embedding` or `fill_mask`."""
    keys: tuple[str, ...]
    """Keys of an input that is an object."""
    labels: tuple[str, ...]
    """Names of the classes, where there are some."""
    takes_text: bool
    """Whether an input may be a plain text."""
    example: dict[str, Any]
    """An input."""


class AnsweringModel(Protocol):
    """A loaded model that answers inputs: `Predictor`, `LineEmbedder`, `MaskFiller`."""

    abilities: Abilities

    def answer(self, inputs: Sequence[ModelInput]) -> list[dict[str, Any]]:
        """Answer each input: its values, and what the model says. Raises: InputError, naming `line N`."""


def number_inputs(inputs: Sequence[ModelInput], numbers: Sequence[int] = ()) -> list[tuple[int, ModelInput]]:
    """Inputs with their line numbers, from 1 when left out."""
    return list(zip(numbers or range(1, len(inputs) + 1), inputs, strict=True))


@dataclass(frozen=True)
class LineBlock:
    """Consecutive lines without the blank ones."""

    lines: tuple[tuple[int, str], ...]
    """Each with its number in the file, from 1."""

    def parse(self) -> tuple[list[ModelInput], list[int]]:
        """Return the inputs, and their numbers. Raises: InputError, naming the line."""
        return [parse_line(line, number) for number, line in self.lines], [number for number, _ in self.lines]


@dataclass(frozen=True)
class PredictedBlock:
    """A model's answers to a block of lines."""

    data: bytes
    """Bytes of the output, which is the blocks' data one after the other."""
    num_lines: int
    num_truncated: int = 0
    """Lines of which the model read the beginning only."""


LinePredictor = Callable[[LineBlock], PredictedBlock]
"""A model that answers blocks, each from its lines alone, in their order. Raises: InputError, naming the line."""


def line_blocks(lines: Iterable[str]) -> Iterator[LineBlock]:
    """All lines that are not blank, in order; no more than a block is read ahead."""
    held: list[tuple[int, str]] = []
    num_characters = 0
    for number, line in numbered_lines(lines):
        held.append((number, line))
        num_characters += len(line)
        if len(held) == BLOCK_LINES or num_characters >= BLOCK_CHARACTERS:
            yield LineBlock(tuple(held))
            held, num_characters = [], 0
    if held:
        yield LineBlock(tuple(held))


def predict_blocks(predictor: LinePredictor, blocks: Iterable[LineBlock], file: str) -> Iterator[PredictedBlock]:
    """The answers to a file's blocks. Raises: InputError, naming file and line."""
    for block in blocks:
        try:
            predicted = predictor(block)
        except InputError as error:
            raise InputError(f"{file}: {error}") from None
        yield predicted


def json_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """A JSON object a line, in UTF-8."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
