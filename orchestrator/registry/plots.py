"""A run as a picture: its measurements over its steps, or those of its trials, where it has trials, side by side."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from bert_core.objectives import OBJECTIVES
from bert_core.objectives.base import PERPLEXITY
from orchestrator.cells import short_value
from orchestrator.errors import InputError, NotFoundError
from orchestrator.registry.groups.varying_paths import varying_paths
from orchestrator.registry.registry import Registry
from orchestrator.storage import write_bytes

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = (
    *(name for objective in OBJECTIVES.values() for name in objective.curve_names),
    *(PERPLEXITY, "tokens_per_s", "learning_rate"),
)
"""Names of a pretraining run's measurements that get a panel, where the run has them."""
ENDINGS = (".png", ".svg", ".pdf")
_COLUMNS = 2


def plot_run(registry: Registry, run_id: str, output: str) -> None:
    """Draw a run into a PNG, SVG or PDF file. Raises: InputError, NotFoundError when there is nothing to draw."""
    if Path(output).suffix not in ENDINGS:
        raise InputError(f"{output} should end in {', '.join(ENDINGS)}, which says what is drawn")
    run = registry.run(run_id)
    trials = registry.trials.frame(run.id)
    if len(trials):
        curves = _trial_curves(registry, trials, run.metric or "")
    else:
        history = registry.metrics.history(run.id)
        names = [name for name in PANELS if name in set(history["name"])] or sorted(set(history["name"]))
        curves = {name: _by_split(history[history["name"] == name]) for name in names}
    if not any(curves.values()):
        raise NotFoundError(f"run {run.id} ({run.kind}, {run.state}) has no measurements over steps to draw")
    picture = BytesIO()
    _draw(curves, f"{run.name} ({run.id})").savefig(picture, format=Path(output).suffix[1:], dpi=120)
    write_bytes(output, picture.getvalue())


Curves = dict[str, dict[str, "pandas.DataFrame"]]
"""Frames with the columns step and value, by panel and then by line."""


def _by_split(history: "pandas.DataFrame") -> dict[str, "pandas.DataFrame"]:
    return {str(split): part for split, part in history.groupby("split")}


def _trial_curves(registry: Registry, trials: "pandas.DataFrame", metric: str) -> Curves:
    lines: dict[str, pandas.DataFrame] = {}
    for trial in trials.itertuples():
        points = registry.metrics.history(str(trial.id), f"validation.{metric}")
        if not points.empty:
            lines[f"#{trial.number}"] = points
    return {metric: {f"{label} {text}".strip(): lines[label] for label, text in _settings(trials) if label in lines}}


def _settings(trials: "pandas.DataFrame") -> Iterator[tuple[str, str]]:
    """Yield each trial's number, and what sets it apart from the others: `learning_rate=0.0003 seed=1`."""
    names = [name for name in trials.columns if name.startswith("params.") and name != "params.seed"]
    rows = trials[[*names, "number", "seed"]].to_dict("records")
    varying = sorted(varying_paths([{name: row[name] for name in names} for row in rows]))
    if trials["seed"].nunique() > 1:
        varying.append("seed")
    for row in rows:
        yield f"#{row['number']}", " ".join(f"{name.rpartition('.')[2]}={short_value(row[name])}" for name in varying)


def _draw(curves: Curves, title: str) -> "Figure":
    from matplotlib.figure import Figure

    rows = -(-len(curves) // _COLUMNS)
    columns = min(_COLUMNS, len(curves))
    figure = Figure(figsize=(6.0 * columns, 3.2 * rows + 0.4), layout="constrained")
    figure.suptitle(title)
    for number, (name, lines) in enumerate(curves.items(), start=1):
        _draw_panel(figure.add_subplot(rows, columns, number), name, lines)
    return figure


def _draw_panel(axes: "Axes", name: str, lines: dict[str, "pandas.DataFrame"]) -> None:
    for label, points in lines.items():
        marker = "o" if len(points) < 25 else None
        axes.plot(points["step"], points["value"], label=label, marker=marker, markersize=3, linewidth=1.2)
    axes.set_title(name)
    axes.set_xlabel("step")
    axes.grid(alpha=0.3)
    if name == PERPLEXITY:
        axes.set_yscale("log")
    if len(lines) <= 12:
        axes.legend(fontsize="small")
