"""Goals of a GPU, each with its figure and whether it is met; the figures are those of the stages before.

G4 is a goal of several cards, which this benchmark does not use.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.gpu.results import Report, Row
from benchmarks.gpu.setting import Budget, Setting
from benchmarks.gpu.sides import LEVERS, PEER, PEER_COMPILED

_MFU = "MFU of measured rate"
_TIMES = "× the best here"


@dataclass(frozen=True)
class Goal:
    """Something that is asked of the step on a card."""

    name: str
    asked: str
    least: float
    figure: float | None
    """Measured value; None where a run did not get to it."""


def measure(setting: Setting, budget: Budget, report: Report) -> Iterator[Row]:
    """Check each goal."""
    for goal in goals(report):
        is_met = None if goal.figure is None else goal.figure >= goal.least
        yield {"goal": goal.name, "asked": goal.asked, "least": goal.least, "figure": goal.figure, "met": is_met}


def goals(report: Report) -> Iterator[Goal]:
    """Yield all goals with their figures."""
    yield Goal("G1", "base, S 128, full rows: MFU", 0.50, best_here(report, "base", 128, 1.0, _MFU))
    yield Goal("G1, stretch", "the same", 0.55, best_here(report, "base", 128, 1.0, _MFU))
    for width in (128, 512):
        yield Goal("G2", f"large, S {width}, full rows: MFU", 0.60, best_here(report, "large", width, 1.0, _MFU))
    for side, full, filled in ((PEER, 2.5, 4.0), (PEER_COMPILED, 1.8, 3.0)):
        for fill, least in ((1.0, full), (0.56, filled)):
            ratio = figure(report, "base", 128, fill, side, _TIMES)
            yield Goal("G3", f"base, S 128, {fill:.2f} filled: times as fast as {side}", least, ratio)
    half, whole = (best_here(report, "base", 512, fill, "tokens/s") for fill in (0.56, 1.0))
    share = half / whole if half and whole else None
    yield Goal("G5", "base, S 512, 0.56 filled: real tokens/s over those of full rows", 0.95, share)


def best_here(report: Report, size: str, width: int, fill: float, column: str) -> float | None:
    """Best figure of a step here without attention dropout."""
    found = [figure(report, size, width, fill, side, column) for side in LEVERS]
    return max((value for value in found if value is not None), default=None)


def figure(report: Report, size: str, width: int, fill: float, side: str, column: str) -> float | None:
    """Figure of a side; None where it was not measured."""
    rows = report.rows("step time", size=size, S=width, fill=fill, side=side)
    values = [row.get(column) for row in rows]
    return next((float(value) for value in values if isinstance(value, int | float)), None)
