"""Tables on narrow terminals: what is left out, shortened, wrapped or stacked.

Alone: .venv/bin/pytest tests/orchestrator/progress/test_table_layout.py
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from orchestrator.progress.table_layout import Column, block, lay_out, shorten, wrapped

NAMES = Column("name", ("name", "sweep-of-the-complaints-of-march", "b"))
SCORES = Column("score", ("score", "0.9123", "0.5000"), is_number=True)
RUNS = Column("run", ("run", "7f3a90b1c2d4", "8f3a90b1c2d4"))
REASONS = Column("why", ("why", "the loss is not finite from step 70 on", "stopped"))


def test_a_table_that_fits_has_every_column_at_its_full_width() -> None:
    laid = lay_out([NAMES, SCORES], 80)
    assert laid.header == f"{'name':<32}   score"
    assert laid.lines == ("sweep-of-the-complaints-of-march  0.9123", f"{'b':<32}  0.5000")


def test_columns_are_left_out_by_rank_before_any_name_is_shortened_much() -> None:
    laid = lay_out([RUNS, NAMES, SCORES], 36, spare=["run", "score"])
    assert laid.left_out == ("run",)
    assert laid.lines[0] == "sweep-of-the-c…ints-of-march  0.9123"


def test_a_name_is_shortened_in_the_middle_and_numbers_never() -> None:
    (first, _) = lay_out([NAMES, SCORES], 30).lines
    assert first == "sweep-of-th…s-of-march  0.9123"


def test_ids_and_short_names_stay_whole() -> None:
    laid = lay_out([RUNS, NAMES, SCORES], 40)
    assert [line.split()[0] for line in laid.lines] == ["7f3a90b1c2d4", "8f3a90b1c2d4"]


def test_prose_is_wrapped_between_words() -> None:
    laid = lay_out([RUNS, REASONS], 38)
    assert laid.lines == (
        "7f3a90b1c2d4  the loss is not finite",
        "              from step 70 on",
        "8f3a90b1c2d4  stopped",
    )


def test_a_table_that_is_much_too_wide_is_stacked_with_nothing_left_out() -> None:
    laid = lay_out([RUNS, NAMES, SCORES], 24, spare=["score"])
    assert (laid.header, laid.left_out) == ("", ())
    assert laid.lines == (
        "run    7f3a90b1c2d4",
        "name   sweep-of-the-complaints-of-march",
        "score  0.9123",
        "",
        "run    8f3a90b1c2d4",
        "name   b",
        "score  0.5000",
    )


def test_what_may_stand_below_its_row_does_so_before_the_table_is_stacked() -> None:
    laid = lay_out([RUNS, SCORES, REASONS], 30, below=["why"])
    assert laid.header == "run            score"
    assert laid.lines == (
        "7f3a90b1c2d4  0.9123",
        "  why  the loss is not finite",
        "       from step 70 on",
        "8f3a90b1c2d4  0.5000",
        "  why  stopped",
    )


@pytest.mark.parametrize(("width", "beside"), [(70, "run name why"), (50, "run name"), (30, "run")])
def test_no_more_columns_stand_below_than_must(width: int, beside: str) -> None:
    laid = lay_out([RUNS, NAMES, REASONS], width, below=["why", "name"])
    assert laid.header.split() == beside.split()


def test_a_spare_column_has_room_where_another_stands_below() -> None:
    columns = [RUNS, NAMES, SCORES, REASONS]
    assert lay_out(columns, 48, spare=["name"]).left_out == ("name",)
    assert lay_out(columns, 48, spare=["name"], below=["why"]).left_out == ()


def test_what_is_missing_has_no_line_below_its_row() -> None:
    reasons = Column("why", (*REASONS.texts[:2], "–"))
    assert lay_out([RUNS, SCORES, reasons], 30, below=["why"]).lines[-1] == "8f3a90b1c2d4  0.5000"


def test_the_only_column_never_stands_below() -> None:
    assert lay_out([REASONS], 6, below=["why"]).header == ""


def test_without_a_width_nothing_is_left_out_nor_stands_below() -> None:
    laid = lay_out([RUNS, NAMES, SCORES, REASONS], None, spare=["name"], below=["why"])
    assert laid.lines[0] == (
        "7f3a90b1c2d4  sweep-of-the-complaints-of-march  0.9123  the loss is not finite from step 70 on"
    )


@given(st.text(alphabet="aé日 -", max_size=40), st.integers(3, 30))
def test_a_shortened_text_is_never_wider_than_asked(text: str, width: int) -> None:
    short = shorten(text, width)
    assert cell_len(short) <= width
    assert (short == text) == (cell_len(text) <= width)


@given(st.text(alphabet="ab ", max_size=60), st.integers(1, 30))
def test_wrapping_loses_no_word(text: str, width: int) -> None:
    assert " ".join(wrapped(text, width)) == text


def test_a_record_leaves_out_what_is_missing_and_wraps_what_is_long() -> None:
    fields = [("why", "the loss is not finite from step 70 on"), ("task", "–"), ("seed", "3")]
    assert block(fields, 30) == ["why   the loss is not finite", "      from step 70 on", "seed  3"]


@pytest.mark.parametrize("width", range(20, 100, 7))
def test_no_line_of_a_table_side_by_side_is_wider_than_the_terminal(width: int) -> None:
    laid = lay_out([RUNS, NAMES, SCORES, REASONS], width, spare=["name"])
    assert not laid.header or all(cell_len(line) <= width for line in (laid.header, *laid.lines))


@pytest.mark.parametrize("width", range(40, 100, 7))
def test_no_line_below_a_row_is_wider_than_the_terminal(width: int) -> None:
    laid = lay_out([RUNS, NAMES, SCORES, REASONS], width, below=["why", "name"])
    assert laid.header
    assert all(cell_len(line) <= width for line in laid.lines)
