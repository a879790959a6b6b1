"""The demo's findings as one picture: scores per head, and how well the model came to read held-out text."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STARTS = {
    "baseline": ("majority baseline", "#999999"),
    "random": ("random weights", "#E69F00"),
    "pretrained": ("pretrained", "#0072B2"),
}
"""Columns of the comparison that are drawn: their names in the legend, and colors that color-blind people tell apart
(Okabe and Ito 2008)."""
CHANCE = 0.5
"""Share of right answers of a model that guesses whether a sentence follows: half of the examples do."""
_BAR_WIDTH = 0.27


def draw_findings(comparison: "pandas.DataFrame", history: "pandas.DataFrame") -> "Figure":
    """Draw what pretraining brought each head, and the pretraining's held-out loss and next-sentence accuracy.

    Args:
        comparison: a row per head, as `tour.comparison` makes it.
        history: measurements of the pretraining run, as the registry's `history` gives them.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 5.6), layout="constrained")
    figure.suptitle("What pretraining brought a tiny BERT in a generated world", fontsize=15)
    grid = figure.add_gridspec(2, 2, width_ratios=(3, 2))
    _draw_scores(figure.add_subplot(grid[:, 0]), comparison)
    held_out = history[history["split"] == "validation"]
    loss = figure.add_subplot(grid[0, 1])
    _draw_curve(loss, held_out, "mlm_loss", "Pretraining: loss of masked tokens, held-out text")
    loss.set_ylim(bottom=0.0)
    accuracy = figure.add_subplot(grid[1, 1], sharex=loss)
    accuracy.axhline(CHANCE, color=STARTS["baseline"][1], linestyle="--")
    accuracy.annotate("guessing", (0.99, CHANCE), xycoords=("axes fraction", "data"), ha="right", va="bottom")
    _draw_curve(accuracy, held_out, "nsp_accuracy", "Pretraining: next sentence or not, share right")
    accuracy.set_ylim(0.4, 1.05)
    accuracy.set_xlabel("step", fontsize=11)
    return figure


def _draw_scores(axes: "Axes", comparison: "pandas.DataFrame") -> None:
    """Draw three bars a head, each with its value above."""
    places = range(len(comparison))
    for number, (column, (label, color)) in enumerate(STARTS.items()):
        shift = (number - 1) * _BAR_WIDTH
        bars = axes.bar([x + shift for x in places], comparison[column], _BAR_WIDTH, label=label, color=color)
        axes.bar_label(bars, fmt="%.2f", padding=2, fontsize=11)
    names = [f"{row.task}\n{row.head}, {row.metric}" for row in comparison.itertuples()]
    axes.set_xticks(list(places), names, fontsize=11)
    axes.set_ylim(0.0, 1.15)
    axes.set_title("After fine-tuning: validation scores, best recipe from each start", fontsize=12)
    axes.legend(loc="upper center", ncols=len(STARTS), frameon=False, fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_curve(axes: "Axes", held_out: "pandas.DataFrame", name: str, title: str) -> None:
    """Draw a measurement over the steps of pretraining, with its last value beside the last point."""
    points = held_out[held_out["name"] == name]
    axes.plot(points["step"], points["value"], color=STARTS["pretrained"][1], marker="o", markersize=4)
    for last in points.tail(1).itertuples():
        axes.annotate(
            f"{last.value:.2f}",
            (last.step, last.value),
            xytext=(0, 7),
            textcoords="offset points",
            ha="center",
            fontsize=11,
        )
    axes.set_title(title, fontsize=12)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
