"""Charts of measurements and settings, as values that Plotly.js draws in a page; curves also as a picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from textwrap import wrap
from typing import Any

from orchestrator.base.formatting import short_value, short_values
from orchestrator.reports.page_blocks import Chart, Row, Table, is_numeric

MAX_POINTS = 500
"""Maximum number of points of a line: a screen shows no more, and each costs 30 bytes of a report."""
MIN_TRIALS = 8
"""Minimum number of trials for importances; of fewer they are noise."""
_METHOD = (
    "PED-ANOVA (Watanabe, Bansal & Hutter 2023, IJCAI), by Optuna: how far each setting alone sets the better half of "
    "the trials apart. Settings that were varied little look unimportant."
)
_FEW_VALUES = 8
"""Maximum number of distinct values on a categorical axis."""
_LOGARITHMIC_FROM = 30.0
"""Ratio of the largest to the smallest value from which an axis is logarithmic: grids of learning rates."""
_LONGEST_NAME = 24
_LABEL_WIDTH = 46
"""Characters per line of a row's label, as many as fit on a phone."""
_LABEL_SHIFT_PX, _LINE_PX = 9, 16
_CURVES_PX, _AXIS_PX, _LEGEND_LINE_PX = 360, 70, 20
"""Heights of curves without their legend, of an axis with its labels, and of a line of a legend."""
_NUM_COLUMNS = 2
"""Charts beside each other in a picture."""
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
    traces = []
    for label, points in lines.items():
        steps, values = zip(*thinned(points), strict=True)
        traces.append(_scatter(label, steps, values, mode="lines+markers" if len(steps) < 25 else "lines"))
    y = _axis(name, type="log" if log else "linear")
    layout: dict[str, Any] = {"xaxis": _axis("step"), "yaxis": y, "showlegend": len(traces) > 1}
    below_px = _LEGEND_LINE_PX * min(len(traces), _MOST_LEGEND_LINES) if len(traces) > 1 else 0
    if below_px:  # beside the lines it would take most of a phone's width
        layout["legend"] = {"yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "maxheight": below_px}
        layout["margin"] = {"l": 60, "r": 20, "t": 36, "b": _AXIS_PX + below_px}
    last = [{"line": label, "last step": points[-1][0], "last value": points[-1][1]} for label, points in lines.items()]
    table = Table(("line", "last step", "last value"), last)
    return Chart(name, traces, layout, table=table, height_px=_CURVES_PX + below_px)


def _scatter(name: str, x: Sequence[Any], y: Sequence[Any], mode: str = "markers", **more: Any) -> dict[str, Any]:
    return {"type": "scatter", "mode": mode, "name": name, "x": x, "y": y, **more}


def _axis(title: str, **more: Any) -> dict[str, Any]:
    return {"title": {"text": title}, **more}


def draw_curves(charts: Sequence[Chart], title: str, form: str) -> bytes:
    """Draw learning curves, two beside each other, as PNG, SVG or PDF, which Plotly makes only by a browser."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    num_rows, num_columns = -(-len(charts) // _NUM_COLUMNS), min(_NUM_COLUMNS, len(charts))
    picture = BytesIO()
    with rc_context({"text.parse_math": False}):  # a `$` in a name begins no formula
        figure = Figure(figsize=(6.0 * num_columns, 3.2 * num_rows + 0.4), layout="constrained")
        figure.suptitle(title)
        for number, chart in enumerate(charts, start=1):
            axes = figure.add_subplot(num_rows, num_columns, number)
            for trace in chart.traces:
                values = [float("nan") if value is None else value for value in trace["y"]]
                marker = "o" if "markers" in trace["mode"] else None
                axes.plot(trace["x"], values, label=trace["name"], marker=marker, markersize=3, linewidth=1.2)
            axes.set_title(chart.title)
            axes.set_xlabel("step")
            axes.grid(alpha=0.3)
            axes.set_yscale(chart.layout["yaxis"]["type"])
            if len(chart.traces) <= 12:
                axes.legend(fontsize="small")
        figure.savefig(picture, format=form, dpi=120)
    return picture.getvalue()


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
    scores = [score for group in groups for score in group.scores]
    of_groups = [group.label for group in groups for _ in group.scores]
    points = _scatter("a seed", scores, of_groups, marker={"opacity": 0.55, "size": 8})
    bounds = [group.interval or (group.mean, group.mean) for group in groups]
    num_without = sum(group.interval is None for group in groups)
    means = _scatter(
        "mean" if num_without == len(groups) else "mean, 95 % interval",
        [group.mean for group in groups],
        labels,
        marker={"symbol": "line-ns-open", "size": 16, "line": {"width": 3}},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [high - group.mean for group, (_, high) in zip(groups, bounds, strict=True)],
            "arrayminus": [group.mean - low for group, (low, _) in zip(groups, bounds, strict=True)],
        },
    )
    wrapped = [wrap(label, _LABEL_WIDTH) or [label] for label in labels]
    layout = {
        "xaxis": _axis(metric),
        "yaxis": {"type": "category", "autorange": "reversed", "showticklabels": False},
        "annotations": [_label_above(label, lines) for label, lines in zip(labels, wrapped, strict=True)],
        "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
        "margin": {"l": 16, "t": 44, "b": 90},
    }
    row_px = 2 * (_LABEL_SHIFT_PX + _LINE_PX * max(map(len, wrapped), default=1))
    note = "No group has several seeds that differ: how much a seed matters is not known, so there is no interval."
    return Chart("Score of each seed", [points, means], layout, 140 + row_px * len(groups), note if num_without else "")


def _label_above(label: str, lines: Sequence[str]) -> dict[str, Any]:
    """Label of a row, above its points: beside them it would leave a narrow screen no room for the plot."""
    place = {"xref": "paper", "x": 0, "xanchor": "left", "y": label, "yanchor": "bottom", "yshift": _LABEL_SHIFT_PX}
    return {"text": "<br>".join(lines), "align": "left", "showarrow": False, "font": {"size": 12}, **place}


def count_matrix(title: str, names: Sequence[str], counts: Sequence[Sequence[int]]) -> Chart:
    """Counts of gold classes (rows) by predicted classes (columns), shaded by the share of the row."""
    places = list(range(len(names)))
    texts = [short_value(name, _LONGEST_NAME) for name in names]
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
        "xaxis": _axis("predicted", **ticks),
        "yaxis": _axis("gold", autorange="reversed", **ticks),
    }
    headings = {f"predicted {place}": name for place, name in enumerate(names)}
    rows = [{"gold": name, **dict(zip(headings, row, strict=True))} for name, row in zip(names, counts, strict=True)]
    return Chart(title, [trace], layout, 260 + 24 * len(names), table=Table(("gold", *headings), rows, headings))


def predicted_values(gold: Sequence[float], predicted: Sequence[float]) -> Chart:
    """Scatter plot of predicted over gold values, with the identity line."""
    ends = [min((*gold, *predicted)), max((*gold, *predicted))]
    traces = [
        _scatter("an example", list(gold), list(predicted)),
        _scatter("equal", ends, ends, mode="lines", line={"dash": "dot"}),
    ]
    layout = {"xaxis": _axis("gold"), "yaxis": _axis("predicted")}
    return Chart("Predicted beside right values", traces, layout)


def score_by_setting(rows: Sequence[Row], setting: str, metric: str) -> Chart:
    """Score of each trial over the value of one setting: few values at even distances, many numbers by their size.

    Args:
        rows: `trial`, a trial's name; `score`; and the settings by their names.
    """
    values: list[Any] = [row.get(setting) for row in rows]
    numbers: list[Any] = sorted(set(values)) if all(map(is_numeric, values)) else []
    axis = _axis(setting)
    if len(numbers) > _FEW_VALUES:
        axis["type"] = "log" if numbers[0] > 0 and numbers[-1] / numbers[0] >= _LOGARITHMIC_FROM else "linear"
    else:
        texts = short_values(values)
        order = dict(zip(texts, values, strict=True))
        axis |= {"type": "category", "categoryarray": sorted(order, key=order.__getitem__ if numbers else None)}
        values = texts
    hover = f"%{{text}}<br>{setting} %{{x}}<br>{metric} %{{y:.4f}}<extra></extra>"
    trace = _scatter(
        "", values, [row["score"] for row in rows], text=[row["trial"] for row in rows], hovertemplate=hover
    )
    return Chart(f"{metric} by {setting}", [trace], {"xaxis": axis, "yaxis": _axis(metric)}, 300)


def importances(shares: Mapping[str, float]) -> Chart:
    """Bars of the settings' importances, the largest on top."""
    ordered = sorted(shares.items(), key=lambda item: item[1])
    trace = {
        "type": "bar",
        "orientation": "h",
        "x": [share for _, share in ordered],
        "y": [name for name, _ in ordered],
        "hovertemplate": "%{y}: %{x:.2f}<extra></extra>",
    }
    layout = {"xaxis": _axis("share", range=[0, 1]), "yaxis": {"automargin": True}}
    table = Table(("setting", "share"), [{"setting": name, "share": share} for name, share in reversed(ordered)])
    return Chart("Which settings matter", [trace], layout, 120 + 30 * len(ordered), _METHOD, table)


def setting_importances(
    rows: Sequence[Row], settings: Sequence[str], *, larger_is_better: bool = True
) -> dict[str, float]:
    """Hyperparameter importances by Optuna; empty for fewer than `MIN_TRIALS` trials.

    Args:
        rows: `score` and the settings by their names; a trial that lacks a setting is left out.
    """
    whole = [row for row in rows if all(row.get(name) is not None for name in settings)]
    varied = [name for name in settings if len({str(row[name]) for row in whole}) > 1]
    if len(whole) < MIN_TRIALS or len({row["score"] for row in whole}) < 2 or not varied:
        return {}
    import warnings

    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

    columns: dict[str, list[Any]] = {}
    distributions: dict[str, BaseDistribution] = {}
    for name in varied:
        values = [row[name] for row in whole]
        is_number = all(map(is_numeric, values))
        columns[name] = list(map(float if is_number else str, values))
        low, *_, high = sorted(columns[name])
        distributions[name] = (
            FloatDistribution(low, high) if is_number else CategoricalDistribution(sorted(set(columns[name])))
        )
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize" if larger_is_better else "minimize")
    for number, row in enumerate(whole):
        chosen = {name: column[number] for name, column in columns.items()}
        study.add_trial(
            optuna.trial.create_trial(params=chosen, distributions=distributions, value=float(row["score"]))
        )
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))
