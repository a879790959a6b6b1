"""The curves of a run's page as a PNG, SVG or PDF file, for a paper or a mail."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import InputError, NotFoundError
from orchestrator.reports.blocks import Chart
from orchestrator.reports.run_page import FIRST, curve_charts, trial_curves
from orchestrator.storage import write_bytes

if TYPE_CHECKING:
    from orchestrator.registry import Registry
    from orchestrator.registry.records import RunRecord

ENDINGS = (".png", ".svg", ".pdf")
_PANELS = (*FIRST, "tokens_per_s", "learning_rate")
"""Measurements that are drawn where a run has some of them; of another run all are."""
_NUM_COLUMNS = 2


def plot_run(registry: "Registry", run: "RunRecord", output: str) -> None:
    """Draw a run into a PNG, SVG or PDF file. Raises: InputError, NotFoundError when there is nothing to draw."""
    if Path(output).suffix not in ENDINGS:
        raise InputError(f"{output} should end in {', '.join(ENDINGS)}, which says what is drawn")
    trials = registry.trials.table(run.id).records
    charts = [trial_curves(registry, run, trials)] if trials else curve_charts(registry, {"": run}, min_points=1)
    shown = [chart for chart in charts if chart.title in _PANELS] or [chart for chart in charts if chart.traces]
    if not shown:
        raise NotFoundError(f"run {run.id} ({run.kind}, {run.state}) has no measurements over steps to draw")
    write_bytes(output, _drawn(shown, f"{run.name} ({run.id})", Path(output).suffix[1:]))


def _drawn(charts: Sequence[Chart], title: str, form: str) -> bytes:
    from matplotlib.figure import Figure

    num_rows, num_columns = -(-len(charts) // _NUM_COLUMNS), min(_NUM_COLUMNS, len(charts))
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
        axes.set_yscale(chart.layout["yaxis"].get("type", "linear"))
        if len(chart.traces) <= 12:
            axes.legend(fontsize="small")
    picture = BytesIO()
    figure.savefig(picture, format=form, dpi=120)
    return picture.getvalue()
