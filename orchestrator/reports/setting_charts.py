"""Charts of trials over their settings: a score over one of them, all of them together, and how much each matters."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.cells import short_value
from orchestrator.reports.blocks import Chart, Row, Table, is_numeric

_FEW_VALUES = 8
"""Different values up to which an axis shows each one, at even distances."""
_CHARACTER_PX, _GAP_PX = 7, 20
"""Width of a label's character, and what lies between two labels."""
_LOGARITHMIC_FROM = 30.0
"""Ratio of the largest to the smallest value from which an axis is logarithmic, as grids of learning rates are."""


def score_by_setting(rows: Sequence[Row], setting: str, metric: str) -> Chart:
    """Score of each trial over the value of one setting.

    Args:
        rows: `trial`, a trial's name; `score`; and the settings by their names.
    """
    axis = _axis([row.get(setting) for row in rows])
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": axis.positions,
        "y": [row["score"] for row in rows],
        "text": [row["trial"] for row in rows],
        "customdata": axis.texts,
        "hovertemplate": f"%{{text}}<br>{setting} %{{customdata}}<br>{metric} %{{y:.4f}}<extra></extra>",
    }
    ticks = {"tickvals": axis.tick_positions, "ticktext": axis.tick_texts, "title": {"text": setting}}
    return Chart(f"{metric} by {setting}", [trace], {"xaxis": ticks, "yaxis": {"title": {"text": metric}}}, 300)


def parallel_coordinates(rows: Sequence[Row], settings: Sequence[str], metric: str) -> Chart:
    """All settings of each trial and its score, as a line from axis to axis; the higher the score, the darker."""
    ordered = sorted(rows, key=lambda row: float(row["score"]))
    scores = [float(row["score"]) for row in ordered]
    lowest, width = scores[0], (scores[-1] - scores[0]) or 1.0
    axes = [_axis([row.get(name) for row in ordered]).scaled() for name in settings]
    axes.append(_Axis(scores, [f"{score:.4f}" for score in scores], scores, []).scaled())
    names = [*settings, metric]
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "showlegend": False,
            "x": names,
            "y": [axis.positions[number] for axis in axes],
            "line": {"color": _shade((score - lowest) / width), "width": 1.5},
            "text": [f"{name} {axis.texts[number]}" for name, axis in zip(names, axes, strict=True)],
            "hovertemplate": f"{row['trial']}<br>%{{text}}<extra></extra>",
        }
        for number, (row, score) in enumerate(zip(ordered, scores, strict=True))
    ]
    ticks = [
        {"x": name, "y": position, "text": text, "showarrow": False, "xanchor": "left", "xshift": 5}
        for name, axis in zip(settings, axes, strict=False)
        for position, text in zip(axis.tick_positions, axis.tick_texts, strict=True)
    ]
    ends = [(0.0, scores[0]), (1.0, scores[-1])]
    ticks += [{"x": metric, "y": y, "text": f"{score:.4f}", "showarrow": False, "xshift": 30} for y, score in ends]
    layout = {
        "xaxis": {"type": "category", "side": "top", "showgrid": True, "range": [-0.2, len(names) - 0.5]},
        "yaxis": {"visible": False, "range": [-0.05, 1.05]},
        "annotations": ticks,
        "hovermode": "closest",
    }
    note = "A line is a trial; the darkest has the highest score."
    widest = max(map(len, [*names, *(text for axis in axes for text in axis.tick_texts)]))
    min_width_px = len(names) * (_CHARACTER_PX * widest + _GAP_PX)
    return Chart("All settings together", traces, layout, note=note, min_width_px=min_width_px)


@dataclass(frozen=True)
class _Axis:
    """Places of values along an axis, and the values that are written beside it."""

    positions: Sequence[float]
    texts: Sequence[str]
    tick_positions: Sequence[float]
    tick_texts: Sequence[str]

    def scaled(self) -> "_Axis":
        """The same from 0 to 1; all in the middle where they are one."""
        low, high = min(self.positions), max(self.positions)

        def scale(position: float) -> float:
            return 0.5 if high == low else (position - low) / (high - low)

        ticks = [scale(tick) for tick in self.tick_positions] if self.tick_texts else []
        return _Axis([scale(position) for position in self.positions], self.texts, ticks, self.tick_texts)


def _axis(values: Sequence[Any]) -> _Axis:
    """Axis of a setting: few values in order at even distances, many numbers by size, or by their logarithms."""
    texts = [short_value(value) for value in values]
    numbers = [float(value) for value in values if is_numeric(value)]
    if len(numbers) < len(values) or len(set(numbers)) <= _FEW_VALUES:
        keys: list[Any] = numbers if len(numbers) == len(values) else texts
        shown = dict(zip(keys, texts, strict=True))
        ranks = {key: float(rank) for rank, key in enumerate(sorted(shown))}
        return _Axis([ranks[key] for key in keys], texts, list(ranks.values()), [shown[key] for key in sorted(shown)])
    distinct = sorted(set(numbers))
    is_logarithmic = distinct[0] > 0 and distinct[-1] / distinct[0] >= _LOGARITHMIC_FROM
    place = math.log10 if is_logarithmic else float
    ticks = [distinct[round(part * (len(distinct) - 1) / 4)] for part in range(5)]
    return _Axis(list(map(place, numbers)), texts, list(map(place, ticks)), [f"{tick:.3g}" for tick in ticks])


def _shade(share: float) -> str:
    """Color between pale and deep blue, both of which are seen on white and on black: `rgb(…)`."""
    pale, deep = (158, 202, 225), (33, 102, 172)
    return "rgb({}, {}, {})".format(*(round(a + share * (b - a)) for a, b in zip(pale, deep, strict=True)))


def importances(shares: Mapping[str, float], method: str) -> Chart:
    """Bars of the settings' importances, the largest on top."""
    ordered = sorted(shares.items(), key=lambda item: item[1])
    trace = {
        "type": "bar",
        "orientation": "h",
        "x": [share for _, share in ordered],
        "y": [name for name, _ in ordered],
        "hovertemplate": "%{y}: %{x:.2f}<extra></extra>",
    }
    layout = {"xaxis": {"title": {"text": "share"}, "range": [0, 1]}, "yaxis": {"automargin": True}}
    rows = [{"setting": name, "share": share} for name, share in reversed(ordered)]
    table = Table(("setting", "share"), rows)
    return Chart("Which settings matter", [trace], layout, 120 + 30 * len(ordered), method, table)
