"""Folding of lines between words. Alone: .venv/bin/pytest tests/orchestrator/progress/test_line_folding.py"""

import pytest
from rich.cells import cell_len

from orchestrator.progress.line_folding import folded


@pytest.mark.parametrize(
    "text",
    ["", "short", "  orchestrator runs show 7f3a9c21 --all --columns name,state", "one\ntwo\n", "a  b"],
)
def test_what_fits_or_is_indented_stays(text: str) -> None:
    assert folded(text, 20) == text
    assert folded(text, None) == text


@pytest.mark.parametrize("width", [20, 40, 79])
def test_no_line_is_wider_and_no_word_is_lost(width: int) -> None:
    text = "no column 'text' in reviews.csv, which has these: label, 本文は日本語です, author; name one by --text"
    rows = folded(text, width).split("\n")
    assert max(map(cell_len, rows)) <= width
    assert [row[:2] for row in rows[1:]] == ["  "] * (len(rows) - 1)
    assert " ".join(rows).split() == text.split()


def test_commands_stay_whole() -> None:
    quoted = folded("a column that is no table's (see `orchestrator schema task`) is refused", 40)
    assert "`orchestrator schema task`" in quoted
    behind = folded("what differs: orchestrator runs diff efed16ff8fc7 ba721d82f26d --all", 40)
    assert behind == "what differs:\n  orchestrator runs diff efed16ff8fc7 ba721d82f26d --all"
