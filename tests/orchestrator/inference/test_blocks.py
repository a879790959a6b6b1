"""Blocks of lines: every line once and in order, cut by what the lines are.

Alone: .venv/bin/pytest tests/orchestrator/inference/test_blocks.py
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import InputError
from orchestrator.inference import blocks
from orchestrator.inference.blocks import LineBlock, PredictedBlock, json_lines, line_blocks, predict_blocks


@given(st.lists(st.text(alphabet="ab \n", max_size=6), max_size=40))
def test_blocks_hold_every_line_once_in_order_and_are_as_full_as_may_be(lines: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_LINES", 4)
        patch.setattr(blocks, "BLOCK_CHARACTERS", 12)
        found = list(line_blocks(lines))
    together = [line for block in found for line in block.lines]
    assert together == [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    sizes = [sum(len(line) for _, line in block.lines) for block in found]
    assert all(len(block.lines) == 4 or size >= 12 for block, size in zip(found[:-1], sizes, strict=False))
    assert all(len(block.lines) <= 4 and size < 12 + 6 for block, size in zip(found, sizes, strict=True))


def test_no_more_than_a_block_is_read_ahead() -> None:
    read = []

    def lines() -> object:
        for number in range(10**9):
            read.append(number)
            yield "a line"

    first = next(line_blocks(lines()))  # type: ignore[arg-type]
    assert len(first.lines) == len(read) == blocks.BLOCK_LINES


def test_a_bad_line_is_named_with_its_file_after_the_answers_before_it() -> None:
    def answer(block: LineBlock) -> PredictedBlock:
        ((number, line),) = block.lines
        if line == "bad":
            raise InputError(f"line {number} is bad")
        return PredictedBlock(line.encode(), 1)

    found = predict_blocks(answer, (LineBlock(((n, line),)) for n, line in enumerate(["a", "b", "bad"], 1)), "file.txt")
    assert [next(found).data, next(found).data] == [b"a", b"b"]
    with pytest.raises(InputError, match=r"^file\.txt: line 3 is bad$"):
        next(found)


def test_json_lines_are_read_back() -> None:
    rows = [{"text": "Zürich\u2028\n", "label": 1}, {"text": "", "label": None}]
    data = json_lines(rows)
    assert [json.loads(line) for line in data.split(b"\n")[:-1]] == rows
    assert "Zürich".encode() in data
