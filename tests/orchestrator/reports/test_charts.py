"""Charts as values, and runs as pictures. Alone: pytest tests/orchestrator/reports/test_charts.py"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import InputError, NotFoundError
from orchestrator.registry import Registry
from orchestrator.reports.charts import (
    MAX_POINTS,
    Spread,
    count_matrix,
    learning_curves,
    predicted_values,
    score_by_setting,
    seed_spread,
    setting_importances,
    thinned,
)
from orchestrator.reports.rendering import columns_of
from orchestrator.reports.run_page import plot_run
from orchestrator.results import MetricEvent
from tests.orchestrator.registry.samples import new_run
from tests.orchestrator.reports.samples import add_sweep

ROWS = [
    {"trial": f"trial {number}", "score": score, "learning_rate": rate, "start": start}
    for number, (rate, start, score) in enumerate([(1e-5, "tiny", 0.7), (1e-3, "mini", 0.9), (1e-4, "tiny", 0.8)])
]


@given(st.integers(1, 3000))
def test_a_thinned_line_keeps_its_ends_and_its_order(num_points: int) -> None:
    points = [(step, float(step)) for step in range(num_points)]
    kept = thinned(points)
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert len(kept) == min(num_points, MAX_POINTS)
    assert kept == sorted(set(kept))


def test_a_curve_tells_its_last_value_in_figures() -> None:
    chart = learning_curves("loss", {"train": [(0, 3.0), (10, 1.5)], "validation": [(10, 2.0)]})
    assert [trace["name"] for trace in chart.traces] == ["train", "validation"]
    assert chart.table is not None
    assert chart.table.rows[0] == {"line": "train", "last step": 10, "last value": 1.5}


def test_a_legend_of_curves_stands_below_them_and_a_chart_grows_by_it() -> None:
    """Beside them the names of trials, which say how these differ, would leave a phone no room for lines."""
    one, many = (learning_curves("f1", {f"line {n}": [(0, 0.1), (1, 0.2)] for n in range(number)}) for number in (1, 9))
    assert "legend" not in one.layout
    assert many.layout["legend"]["yanchor"] == "bottom"
    assert many.height_px - one.height_px == many.layout["margin"]["b"] - 70 > 0


def test_few_values_stand_in_order_at_even_distances_and_many_numbers_by_their_size() -> None:
    def axis(values: list[object]) -> dict[str, object]:
        rows = [{"trial": "t", "score": 0.5, "value": value} for value in values]
        return dict(score_by_setting(rows, "value", "f1").layout["xaxis"])

    assert axis([row["learning_rate"] for row in ROWS])["categoryarray"] == ["1e-05", "0.0001", "0.001"]
    assert axis(["tiny", "mini", 2])["categoryarray"] == ["2", "mini", "tiny"]
    assert axis([10.0**-power for power in range(10)])["type"] == "log"
    assert axis(list(range(10)))["type"] == "linear"


def test_importance_finds_the_setting_that_matters() -> None:
    rows = [{"score": rate / 10, "rate": rate, "batch": batch} for rate in range(8) for batch in (16, 32)]
    shares = setting_importances(rows, ["rate", "batch"])
    assert shares["rate"] > 0.9
    assert setting_importances(rows[:7], ["rate", "batch"]) == {}
    assert setting_importances([{**row, "score": 0.5} for row in rows], ["rate", "batch"]) == {}


def test_a_group_of_one_seed_has_no_interval_and_the_chart_says_so() -> None:
    some, one = Spread("a", [0.8, 0.9], 0.85, (0.25, 1.5)), Spread("b", [0.75], 0.75)
    chart = seed_spread([some, one], "f1")
    bars = chart.traces[1]["error_x"]
    assert bars["array"] == [0.65, 0.0]
    assert bars["arrayminus"] == [0.6, 0.0]
    assert chart.note
    assert not seed_spread([some], "f1").note
    assert "interval" not in seed_spread([one], "f1").traces[1]["name"]


def test_a_matrix_is_shaded_by_rows_and_tells_counts() -> None:
    chart = count_matrix("errors", ["yes", "no"], [[3, 1], [0, 0]])
    assert chart.traces[0]["z"] == [[0.75, 0.25], [0.0, 0.0]]
    assert chart.traces[0]["text"] == [["3", "1"], ["0", "0"]]


def test_a_class_of_any_name_has_its_own_column() -> None:
    table = count_matrix("errors", ["gold", "run"], [[3, 1], [2, 4]]).table
    assert table is not None
    columns = columns_of(table)
    assert [column.heading for column in columns] == ["gold", "gold", "run"]
    assert [column.texts for column in columns] == [["gold", "run"], ["3", "2"], ["1", "4"]]


def test_equal_values_lie_on_the_dotted_line() -> None:
    points, line = predicted_values([1.0, 5.0], [2.0, 4.0]).traces
    assert (points["x"], points["y"]) == ([1.0, 5.0], [2.0, 4.0])
    assert line["x"] == line["y"] == [1.0, 5.0]


@pytest.mark.heavy
def test_a_pretraining_run_is_drawn_with_a_panel_per_measurement(registry: Registry, tmp_path: Path) -> None:
    run_id = new_run(registry, kind="pretrain")
    for step in (1, 2, 3):
        values = {"mlm_loss": 5.0 / step, "perplexity": 150.0 / step, "tokens_per_s": 1e4, "gradient_norm": 1.0}
        registry.metrics.record(run_id, [MetricEvent(step, "train", values)])
    plot_run(registry, registry.run(run_id), str(tmp_path / "run.svg"))
    assert (tmp_path / "run.svg").read_text().count("<!-- step -->") == 3


def test_the_lines_of_a_sweep_are_named_by_what_varies(registry: Registry, tmp_path: Path) -> None:
    sweep = registry.run(add_sweep(registry, tmp_path))
    plot_run(registry, sweep, str(tmp_path / "sweep.svg"))
    assert "<!-- accuracy -->" in (tmp_path / "sweep.svg").read_text()
    plot_run(registry, sweep, str(tmp_path / "sweep.png"))
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_measured_and_unknown_endings_are_refused(registry: Registry, tmp_path: Path) -> None:
    run = registry.run(new_run(registry))
    with pytest.raises(NotFoundError, match=run.id):
        plot_run(registry, run, str(tmp_path / "run.png"))
    with pytest.raises(InputError, match=r"run\.doc"):
        plot_run(registry, run, str(tmp_path / "run.doc"))
