"""Tables on narrow terminals: what is left out or folded; views of runs as they are drawn.

Alone: .venv/bin/pytest tests/orchestrator/base/test_tables.py
"""

import time
from collections.abc import Sequence

import pytest
from rich.cells import cell_len

from orchestrator.base.console.run_views import Shown, SweepView, TrainingView, TrialView
from orchestrator.base.console.tables import (
    Column,
    fitting,
    folded_lines,
    lines_with_records,
    plain_lines,
    record_lines,
    records,
)

NAMES = Column("name", ("name", "sweep-of-the-complaints-of-march", "b"))
SCORES = Column("score", ("score", "0.9123", "0.5000"), is_number=True)
RUNS = Column("run", ("run", "7f3a90b1c2d4", "8f3a90b1c2d4"))
REASONS = Column("why", ("why", "the loss is not finite from step 70 on", "stopped"))


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
    lines = folded_lines(shown, width)
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


def screen(shown: Shown, width: int = 80, height: int = 24) -> list[str]:
    return list(shown.lines(width, height))


def trials(number: int) -> list[TrialView]:
    varied = {"init_from": "minilm", "learning_rate": "3e-05", "seed": "1"}
    return [TrialView(n, varied, 3, 1.5, 0.5, 0.6) for n in range(number)]


def test_a_training_has_a_bar_its_losses_and_the_time_left() -> None:
    view = TrainingView(1240, 5000, ("mlm 6.430", "1,500 tokens/s"), 90.0, "held out 1,000: mlm 6.500 (15.0 %)")
    head, bar, losses, held_out = screen(Shown(view=view, stage="stage 2 of 3: pretrain"))
    assert head.endswith("stage 2 of 3: pretrain  training")
    assert bar.endswith("step 1,240/5,000  25%  1:30 min left")
    assert (losses, held_out) == ("mlm 6.430  1,500 tokens/s", "held out 1,000: mlm 6.500 (15.0 %)")


def test_a_status_tells_for_how_long_already() -> None:
    assert screen(Shown("loading minilm", since=time.monotonic() - 75))[0].endswith("loading minilm  1:15 min")


def test_a_sweep_has_a_row_for_each_running_trial_and_says_what_waits() -> None:
    lines = screen(Shown(view=SweepView("accuracy", trials(2), 3, 8, "best accuracy 0.6500 (trial 1)", 120.0)))
    assert "3 of 8 trials ended, 2 running, 3 waiting" in lines[0]
    assert lines[1].split() == ["trial", "init_from", "learning_rate", "seed", "epoch", "accuracy", "best"]
    assert lines[2].split() == ["0", "minilm", "3e-05", "1", "1.5/3", "0.5000", "0.6000"]
    assert lines[4] == "best accuracy 0.6500 (trial 1)  about 2:00 min left"


FIVE_VALUES = {
    "init_from": "…ing-on-the-notes@12",
    "learning_rate": "3e-05",
    "batch_size": "32",
    "max_seq_length": "128",
    "seed": "1",
}
MANY_VARIED = tuple(TrialView(n, FIVE_VALUES | {"seed": str(n)}, 3, 1.5, 0.6512, 0.6634) for n in range(2))


@pytest.mark.parametrize("width", [20, 32, 40, 60, 80, 120])
def test_no_number_of_a_trial_is_cut(width: int) -> None:
    lines = screen(Shown(view=SweepView("accuracy", MANY_VARIED, 3, 8)), width)
    header, *rows = (line.split() for line in lines[1:4])
    whole = {"trial": "1", "epoch": "1.5/3", "accuracy": "0.6512", "best": "0.6634", **FIVE_VALUES}
    shown = dict(zip(header, rows[1], strict=True))
    assert {name: text for name, text in shown.items() if text != whole[name]}.keys() <= {"init_from"}
    assert ({"accuracy"} if width < 32 else {"trial", "epoch", "accuracy", "best"}) <= shown.keys()


def test_what_sets_no_two_trials_apart_is_left_out_first_and_named() -> None:
    lines = screen(Shown(view=SweepView("accuracy", MANY_VARIED, 3, 8)))
    assert lines[1].split() == ["trial", "init_from", "learning_rate", "seed", "epoch", "accuracy", "best"]
    assert lines[-1] == "left out: batch_size, max_seq_length"


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (20, 5)])
def test_no_table_of_trials_is_larger_than_the_terminal(width: int, height: int) -> None:
    lines = screen(Shown(view=SweepView("accuracy", trials(50), 3, 90, "best", 120.0)), width, height)
    assert len(lines) <= height
    assert max(len(line) for line in lines if line[-1].isdecimal()) <= width


def test_a_value_of_many_words_takes_one_line() -> None:
    long = [TrialView(n, {"prompt": "which of the two sentences is the better one here"}, 3, 1.5) for n in range(9)]
    assert len(screen(Shown(view=SweepView("accuracy", long, 3, 12)), 60, 12)) <= 12
