"""Charts as values. Alone: pytest tests/orchestrator/reports/test_charts.py"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.reports.charts import (
    MAX_POINTS,
    Spread,
    count_matrix,
    learning_curves,
    predicted_values,
    seed_spread,
    thinned,
)
from orchestrator.reports.rendering import columns_of
from orchestrator.reports.setting_charts import parallel_coordinates, score_by_setting

ROWS = [
    {"trial": f"trial {number}", "score": score, "learning_rate": rate, "start": start}
    for number, (rate, start, score) in enumerate([(1e-5, "tiny", 0.7), (1e-4, "mini", 0.9), (1e-3, "tiny", 0.8)])
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
    assert many.height_px - one.height_px == many.layout["margin"]["b"] - 70 == 9 * 20
    most = learning_curves("f1", {f"line {n}": [(0, 0.1)] for n in range(30)})
    assert most.layout["legend"]["maxheight"] == most.height_px - one.height_px == 10 * 20, "a longer legend scrolls"


def test_few_values_stand_in_order_at_even_distances() -> None:
    chart = score_by_setting(ROWS, "learning_rate", "f1")
    assert chart.traces[0]["x"] == [0.0, 1.0, 2.0]
    assert chart.layout["xaxis"]["ticktext"] == ["1e-05", "0.0001", "0.001"]
    assert score_by_setting(ROWS, "start", "f1").traces[0]["x"] == [1.0, 0.0, 1.0]


def test_many_numbers_far_apart_stand_by_their_logarithms() -> None:
    rows = [{"trial": "t", "score": 0.5, "rate": 10.0**-power} for power in range(10)]
    assert score_by_setting(rows, "rate", "f1").traces[0]["x"] == pytest.approx([-power for power in range(10)])


def test_each_trial_is_a_line_through_all_axes_and_the_best_is_drawn_last() -> None:
    chart = parallel_coordinates(ROWS, ["learning_rate", "start"], "f1")
    assert [trace["y"] for trace in chart.traces] == [[0.0, 1.0, 0.0], [1.0, 1.0, pytest.approx(0.5)], [0.5, 0.0, 1.0]]
    assert chart.traces[-1]["text"] == ["learning_rate 0.0001", "start mini", "f1 0.9000"]


def test_trials_with_one_score_are_drawn_too() -> None:
    chart = parallel_coordinates([{**row, "score": 0.5} for row in ROWS], ["start"], "f1")
    assert {trace["y"][-1] for trace in chart.traces} == {0.5}


def test_a_group_of_one_seed_has_no_interval() -> None:
    chart = seed_spread([Spread("a", [0.8, 0.9], 0.85, (0.2, 1.5)), Spread("b", [0.7], 0.7)], "f1")
    bars = chart.traces[1]["error_x"]
    assert bars["array"] == [pytest.approx(0.65), 0.0]
    assert bars["arrayminus"] == [pytest.approx(0.65), 0.0]


def test_a_matrix_is_shaded_by_rows_and_tells_counts() -> None:
    chart = count_matrix("errors", ["yes", "no"], [[3, 1], [0, 0]])
    assert chart.traces[0]["z"] == [[0.75, 0.25], [0.0, 0.0]]
    assert chart.traces[0]["text"] == [["3", "1"], ["0", "0"]]


def test_a_class_of_any_name_has_its_own_column_without_links() -> None:
    table = count_matrix("errors", ["gold", "run"], [[3, 1], [2, 4]]).table
    assert table is not None
    columns = columns_of(table, runs_url="/runs/")
    assert [column.heading for column in columns] == ["gold", "gold", "run"]
    assert [column.texts for column in columns] == [["gold", "run"], ["3", "2"], ["1", "4"]]
    assert not any(link for column in columns for link in column.links)


def test_equal_values_lie_on_the_dotted_line() -> None:
    points, line = predicted_values([1.0, 5.0], [2.0, 4.0]).traces
    assert (points["x"], points["y"]) == ([1.0, 5.0], [2.0, 4.0])
    assert line["x"] == line["y"] == [1.0, 5.0]


def test_the_caption_and_the_legend_of_seeds_speak_of_intervals_where_there_are_some() -> None:
    some, none = Spread("a", [0.8, 0.9], 0.85, (0.2, 1.5)), Spread("b", [0.7] * 5, 0.7)
    notes = [seed_spread(groups, "f1").note for groups in ([some], [some, none], [none])]
    names = [seed_spread(groups, "f1").traces[1]["name"] for groups in ([some], [some, none], [none])]
    assert names == ["mean, 95 % interval", "mean, 95 % interval", "mean"]
    assert notes[0] == ""
    assert notes[1] == notes[2]
    assert notes[1].startswith("A group with one seed, or whose seeds all score the same, has no interval")
