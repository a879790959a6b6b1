"""Charts of measurements and trials, as values that Plotly.js draws.

Learning curves, seeds with their spread, counts as a matrix, predicted beside right values; `setting_charts` has those
of settings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from orchestrator.reports.blocks import Chart, Table

MAX_POINTS = 500
"""Points of a line at most: more cannot be told apart on a screen, and each costs 30 bytes of a report."""
_LONGEST_NAME = 24
_LABEL_WIDTH = 46
"""Characters in a line of a row's label, which a telephone has room for."""
_LABEL_SHIFT_PX, _LINE_PX = 9, 16
_CURVES_PX, _AXIS_PX, _LEGEND_LINE_PX = 360, 70, 20
"""Heights of curves without their legend, of what stands below an axis, and of a line of a legend."""
_MOST_LEGEND_LINES = 10
"""Lines of a legend that are seen at once; a longer one scrolls."""


@dataclass(frozen=True)
class Spread:
    """Scores of trials that differ only in the seed, with the interval of their mean where there are several."""

    label: str
    scores: Sequence[float]
    mean: float
    interval: tuple[float, float] | None = None


def learning_curves(name: str, lines: Mapping[str, Sequence[tuple[int, float | None]]], *, log: bool = False) -> Chart:
    """Lines of a measurement over the optimizer's steps.

    Args:
        lines: steps and values by the line's name; a value that is None leaves a gap.
    """
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers" if len(points) < 25 else "lines",
            "name": label,
            "x": [step for step, _ in points],
            "y": [value for _, value in points],
        }
        for label, points in ((label, thinned(points)) for label, points in lines.items())
    ]
    axis = {"title": {"text": name}, **({"type": "log"} if log else {})}
    layout: dict[str, Any] = {"xaxis": {"title": {"text": "step"}}, "yaxis": axis, "showlegend": len(traces) > 1}
    below_px = _LEGEND_LINE_PX * min(len(traces), _MOST_LEGEND_LINES) if len(traces) > 1 else 0
    if below_px:  # beside the lines it would take most of a phone's width
        layout["legend"] = {"yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "maxheight": below_px}
        layout["margin"] = {"l": 60, "r": 20, "t": 36, "b": _AXIS_PX + below_px}
    last = [{"line": label, "last step": points[-1][0], "last value": points[-1][1]} for label, points in lines.items()]
    table = Table(("line", "last step", "last value"), last)
    return Chart(name, traces, layout, table=table, height_px=_CURVES_PX + below_px)


def thinned(points: Sequence[tuple[int, float | None]]) -> Sequence[tuple[int, float | None]]:
    """Keep at most `MAX_POINTS` of the points, at even distances, with the first and the last.

    >>> thinned([(step, 0.0) for step in range(1001)])[1]
    (2, 0.0)
    """
    if len(points) <= MAX_POINTS:
        return points
    last = len(points) - 1
    return [points[round(number * last / (MAX_POINTS - 1))] for number in range(MAX_POINTS)]


def seed_spread(groups: Sequence[Spread], metric: str) -> Chart:
    """Scores of each group of trials as points, one for each seed, with the interval of their mean."""
    labels = [group.label for group in groups]
    points = {
        "type": "scatter",
        "mode": "markers",
        "name": "a seed",
        "x": [score for group in groups for score in group.scores],
        "y": [group.label for group in groups for _ in group.scores],
        "marker": {"opacity": 0.55, "size": 8},
    }
    bounds = [group.interval or (group.mean, group.mean) for group in groups]
    num_without = sum(group.interval is None for group in groups)
    means = {
        "type": "scatter",
        "mode": "markers",
        "name": "mean" if num_without == len(groups) else "mean, 95 % interval",
        "x": [group.mean for group in groups],
        "y": labels,
        "marker": {"symbol": "line-ns-open", "size": 16, "line": {"width": 3}},
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [high - group.mean for group, (_, high) in zip(groups, bounds, strict=True)],
            "arrayminus": [group.mean - low for group, (low, _) in zip(groups, bounds, strict=True)],
        },
    }
    wrapped = [wrap(label, _LABEL_WIDTH) or [label] for label in labels]
    layout = {
        "xaxis": {"title": {"text": metric}},
        "yaxis": {"type": "category", "autorange": "reversed", "showticklabels": False},
        "annotations": [_label_above(label, lines) for label, lines in zip(labels, wrapped, strict=True)],
        "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
        "margin": {"l": 16, "t": 44, "b": 90},
    }
    row_px = 2 * (_LABEL_SHIFT_PX + _LINE_PX * max(map(len, wrapped), default=1))
    note = "A group with one seed, or whose seeds all score the same, has no interval: nothing is known of its luck."
    return Chart("Score of each seed", [points, means], layout, 140 + row_px * len(groups), note if num_without else "")


def _label_above(label: str, lines: Sequence[str]) -> dict[str, Any]:
    """Label of a row, above its points: beside them it would leave a narrow screen no room for the plot."""
    place = {"xref": "paper", "x": 0, "xanchor": "left", "y": label, "yanchor": "bottom", "yshift": _LABEL_SHIFT_PX}
    return {"text": "<br>".join(lines), "align": "left", "showarrow": False, "font": {"size": 12}, **place}


def count_matrix(title: str, names: Sequence[str], counts: Sequence[Sequence[int]]) -> Chart:
    """Counts of gold classes (rows) by predicted classes (columns), shaded by the share of the row."""
    places = list(range(len(names)))
    texts = [_cut(name) for name in names]
    trace = {
        "type": "heatmap",
        "x": places,
        "y": places,
        "z": [[count / max(sum(row), 1) for count in row] for row in counts],
        "zmin": 0,
        "zmax": 1,
        "text": [[str(count) for count in row] for row in counts],
        "texttemplate": "%{text}" if len(names) <= 20 else "",
        "colorscale": [[0, "rgba(90, 140, 200, 0.05)"], [1, "rgb(90, 140, 200)"]],
        "colorbar": {"title": {"text": "share of row"}},
        "customdata": [[[gold, predicted] for predicted in texts] for gold in texts],
        "hovertemplate": "gold %{customdata[0]}, predicted %{customdata[1]}: %{text}<extra></extra>",
    }
    ticks = {"tickvals": places, "ticktext": texts, "showgrid": False, "zeroline": False}
    layout = {
        "xaxis": {"title": {"text": "predicted"}, **ticks},
        "yaxis": {"title": {"text": "gold"}, "autorange": "reversed", **ticks},
    }
    headings = {f"predicted {place}": name for place, name in enumerate(names)}
    rows = [{"gold": name, **dict(zip(headings, row, strict=True))} for name, row in zip(names, counts, strict=True)]
    return Chart(title, [trace], layout, 260 + 24 * len(names), table=Table(("gold", *headings), rows, headings))


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def predicted_values(gold: Sequence[float], predicted: Sequence[float]) -> Chart:
    """Predicted values over the right ones, with the line on which both are equal."""
    ends = [min((*gold, *predicted)), max((*gold, *predicted))]
    traces: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "markers", "name": "an example", "x": list(gold), "y": list(predicted)},
        {"type": "scatter", "mode": "lines", "name": "equal", "x": ends, "y": ends, "line": {"dash": "dot"}},
    ]
    layout = {"xaxis": {"title": {"text": "gold"}}, "yaxis": {"title": {"text": "predicted"}}}
    return Chart("Predicted beside right values", traces, layout)
