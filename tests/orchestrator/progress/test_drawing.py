"""Screens of a run as text: what stands on them, within the terminal's width and height.

Run alone: pytest tests/orchestrator/progress/test_drawing.py
"""

import io
import time

import pytest
from rich.console import Console

from orchestrator.progress.drawing import Frame
from orchestrator.progress.run_views import Shown, StageView, SweepView, TrainingView, TrialView


def screen(shown: Shown, width: int = 80, height: int = 24) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(Frame(lambda: shown))
    return [line.rstrip() for line in capture.get().splitlines()]


def trials(number: int) -> list[TrialView]:
    varied = {"init_from": "minilm", "learning_rate": "3e-05", "seed": "1"}
    return [TrialView(n, varied, 1.5, 3, 0.5, 0.6) for n in range(number)]


def test_a_training_has_a_bar_its_losses_and_the_time_left() -> None:
    view = TrainingView(1240, 5000, ("mlm 6.430", "1,500 tokens/s"), 90.0, "held out 1,000: mlm 6.500 (15.0 %)")
    head, bar, losses, held_out = screen(Shown(view=view, stage=StageView(2, 3, "pretrain")))
    assert head.endswith("stage 2 of 3, pretrain  training")
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
    "init_from": "laboratory/pretraining-on-notes@12",
    "learning_rate": "3e-05",
    "batch_size": "32",
    "max_seq_length": "128",
    "seed": "1",
}
MANY_VARIED = tuple(TrialView(n, FIVE_VALUES | {"seed": str(n)}, 1.5, 3, 0.6512, 0.6634) for n in range(2))


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
def test_no_screen_is_larger_than_the_terminal(width: int, height: int) -> None:
    lines = screen(Shown(view=SweepView("accuracy", trials(50), 3, 90, "best", 120.0)), width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_a_value_of_many_words_takes_one_line() -> None:
    long = [TrialView(n, {"prompt": "which of the two sentences is the better one here"}, 1.5, 3) for n in range(9)]
    assert len(screen(Shown(view=SweepView("accuracy", long, 3, 12)), 60, 12)) <= 12


def test_where_the_number_of_trials_is_not_known_none_is_told() -> None:
    assert screen(Shown(view=SweepView("accuracy", trials(2), 1, None)))[0].endswith("1 trial ended, 2 running")
