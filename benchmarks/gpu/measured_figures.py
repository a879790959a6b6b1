"""Measured figures of docs/performance.md: those of the newest full run on a GPU, beside what was predicted of them."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.gpu.results import Report

NOT_YET = "not yet measured"
"""Cell of a row whose figures no full run on a GPU has reached."""
_FULL_RUN = re.compile(r"gpu_(?!small-)(?P<card>.+)(?<!-small)_(?P<date>\d{4}-\d{2}-\d{2})\.json")
"""Name of a results file of a full run on a GPU; `machine.card_name` marks the small form in it."""


def newest_report(folder: Path) -> Report | None:
    """Read the newest results of a full run on a GPU that measured a step, from a folder; None where it has none."""
    names = [match for path in folder.glob("gpu_*.json") if (match := _FULL_RUN.fullmatch(path.name))]
    for match in sorted(names, key=lambda match: (match["date"], match["card"]), reverse=True):
        report = Report.open(folder / match[0].removesuffix(".json"), command="")
        if any("ms" in row for row in report.rows("step time")):
            return report
    return None


def source(report: Report | None) -> str:
    """Say in a sentence what was measured, and where the whole of it is."""
    if report is None:
        return "No card has run this code yet: every figure of a GPU on this page is a prediction."
    return (
        f"Columns named `measured` are from `benchmarks/results/{report.markdown_path.name}`, with the ratio to the "
        "predicted figure in parentheses; every other figure of a GPU on this page is a prediction."
    )


def compared(measured: Sequence[float | None], predicted: Sequence[float], write: Callable[[float], str]) -> str:
    """Write the measured figures of a row, each with its ratio to the predicted one; a dash where there is none."""
    if all(figure is None for figure in measured):
        return NOT_YET
    return ", ".join(
        "–" if figure is None else f"{write(figure)} ({figure / expected:.2f})"
        for figure, expected in zip(measured, predicted, strict=True)
    )
