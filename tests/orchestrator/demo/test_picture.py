"""The picture at the demo's end: what it draws of the data. Alone: pytest tests/orchestrator/demo/test_picture.py"""

from io import StringIO
from pathlib import Path

import pandas
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from orchestrator.demo.picture import draw_findings
from orchestrator.demo.tour import show_picture

HEADS = (("kinds", "classification", 0.125, 0.47, 0.907), ("names", "NER", 0.0, 0.118, 0.945))


def findings() -> tuple[pandas.DataFrame, pandas.DataFrame]:
    rows = [
        {"task": task, "head": head, "metric": "f1", "baseline": baseline, "random": random, "pretrained": pretrained}
        for task, head, baseline, random, pretrained in HEADS
    ]
    points = [
        {"split": split, "name": name, "step": step, "value": value / step}
        for split in ("train", "validation")
        for name, value in (("mlm_loss", 500.0), ("nsp_accuracy", 150.0))
        for step in (100, 200)
    ]
    return pandas.DataFrame(rows), pandas.DataFrame(points)


@pytest.fixture
def figure() -> Figure:
    return draw_findings(*findings())


def test_each_head_has_a_bar_with_its_value_for_each_start(figure: Figure) -> None:
    scores = figure.axes[0]
    assert {text.get_text() for text in scores.texts} == {"0.12", "0.47", "0.91", "0.00", "0.94"}
    assert [tick.get_text() for tick in scores.get_xticklabels()] == ["kinds\nclassification, f1", "names\nNER, f1"]
    heights = [bar.get_height() for bars in scores.containers for bar in bars]
    assert heights == [0.125, 0.0, 0.47, 0.118, 0.907, 0.945]


def test_the_curves_are_of_held_out_text_and_tell_their_last_value(figure: Figure) -> None:
    loss, accuracy = figure.axes[1:]
    (line,) = loss.get_lines()
    assert list(line.get_xdata()) == [100, 200]
    assert list(line.get_ydata()) == [5.0, 2.5]
    assert [text.get_text() for text in loss.texts] == ["2.50"]
    assert [text.get_text() for text in accuracy.texts] == ["guessing", "0.75"]


def test_the_picture_is_written_and_its_path_told(tmp_path: Path) -> None:
    out, path = StringIO(), tmp_path / "a long folder's name" / "picture.png"
    path.parent.mkdir()
    show_picture(Console(file=out, width=80), *findings(), path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert f"  {path}\n" in out.getvalue()
