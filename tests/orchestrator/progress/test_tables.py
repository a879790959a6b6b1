"""Tables on narrow terminals: what is left out or folded.

Alone: .venv/bin/pytest tests/orchestrator/progress/test_tables.py
"""

from collections.abc import Sequence

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from orchestrator.progress.tables import (
    Column,
    fitting,
    lines_with_records,
    plain_lines,
    record_lines,
    records,
    rich_table,
)

NAMES = Column("name", ("name", "sweep-of-the-complaints-of-march", "b"))
SCORES = Column("score", ("score", "0.9123", "0.5000"), is_number=True)
RUNS = Column("run", ("run", "7f3a90b1c2d4", "8f3a90b1c2d4"))
REASONS = Column("why", ("why", "the loss is not finite from step 70 on", "stopped"))


def drawn(table: Table, width: int) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().splitlines()]


def names(columns: Sequence[Column]) -> list[str]:
    return [column.name for column in columns]


def test_plain_lines_have_every_column_whole_and_wide_characters_aligned() -> None:
    assert plain_lines([NAMES, SCORES])[1:] == ["sweep-of-the-complaints-of-march  0.9123", f"{'b':<32}  0.5000"]
    wide = Column("a", ("a", "日本", "abcd"))
    assert plain_lines([wide, Column("b", ("b", "x", "y"))])[1:] == ["日本  x", "abcd  y"]


@pytest.mark.parametrize(
    ("width", "shown"), [(80, ["run", "name", "score"]), (40, ["name", "score"]), (30, ["name"]), (20, [])]
)
def test_columns_are_left_out_by_rank_and_none_fits_a_terminal_that_is_too_narrow(width: int, shown: list[str]) -> None:
    assert names(fitting([RUNS, NAMES, SCORES], width, ["run", "score"])) == shown


@pytest.mark.parametrize("width", range(46, 100, 7))
def test_names_and_prose_are_folded_and_ids_and_numbers_never(width: int) -> None:
    shown = fitting([RUNS, NAMES, SCORES, REASONS], width, ["name", "why"])
    lines = drawn(rich_table(shown, width), width)
    assert max(map(cell_len, lines)) <= width
    words = " ".join(lines).split()
    assert {"7f3a90b1c2d4", "0.9123", "0.5000"} <= set(words)
    assert "why" not in names(shown) or set(REASONS.texts[1].split()) <= set(words)


def test_a_record_leaves_out_what_is_missing_and_folds_what_is_long() -> None:
    fields = [("why", "the loss is not finite from step 70 on"), ("task", "–"), ("seed", "3")]
    assert record_lines(fields) == ["why   the loss is not finite from step 70 on", "seed  3"]
    assert record_lines(fields, 30) == ["why   the loss is not finite", "      from step 70 on", "seed  3"]
    assert record_lines([("folder", "/a/path/that/is/copied")], 20) == ["folder  /a/path/that/is/copied"]


def test_what_has_no_room_beside_the_others_stands_below_each_row() -> None:
    assert lines_with_records([RUNS, SCORES], [REASONS], 30) == [
        "run            score",
        "7f3a90b1c2d4  0.9123",
        "  why  the loss is not finite",
        "       from step 70 on",
        "8f3a90b1c2d4  0.5000",
        "  why  stopped",
    ]
    assert records([RUNS, SCORES], 30)[1] == ["run    8f3a90b1c2d4", "score  0.5000"]
