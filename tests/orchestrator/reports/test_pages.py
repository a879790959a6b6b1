"""Pages of runs and of tasks: which sections they have, what these say, and charts and pictures.

Alone: pytest tests/orchestrator/reports/test_pages.py
"""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event

from orchestrator.base.errors import InputError, NotFoundError
from orchestrator.base.results import MetricEvent
from orchestrator.registry import Registry
from orchestrator.registry.parameters import group_label
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
from orchestrator.reports.page_blocks import Chart, Code, Facts, Page, Section, Table, Words
from orchestrator.reports.pages import plot_run, run_page, task_page, telling_columns
from orchestrator.reports.rendering import columns_of
from orchestrator.reports.run_facts import data_line, score_lines
from orchestrator.specs.loading import parse_spec
from tests.orchestrator.kinds.samples import SAMPLES
from tests.orchestrator.registry.samples import new_run
from tests.orchestrator.reports.samples import add_pretraining, add_sweep


def section(page: Page, heading: str) -> Section:
    return next(section for section in page.sections if section.heading == heading)


def charts(page: Page, heading: str) -> list[Chart]:
    return [block for block in section(page, heading).blocks if isinstance(block, Chart)]


def test_a_pretraining_shows_both_splits_of_a_loss_in_one_chart(registry: Registry) -> None:
    page = run_page(registry, registry.run(add_pretraining(registry)))
    loss, speed = charts(page, "How it learned")
    assert (loss.title, [trace["name"] for trace in loss.traces]) == ("mlm_loss", ["validation", "train"])
    assert speed.title == "tokens_per_s"


def test_a_page_of_a_sweep_reads_its_trials_once(registry: Registry, tmp_path: Path) -> None:
    run = registry.run(add_sweep(registry, tmp_path))
    seen: list[str] = []
    event.listen(registry._database._open(), "before_cursor_execute", lambda *given: seen.append(given[2]))
    run_page(registry, run)
    assert len([statement for statement in seen if "FROM runs" in statement and "runs.parent_id = (" in statement]) == 1


def test_a_sweep_shows_its_groups_settings_and_trials(registry: Registry, tmp_path: Path) -> None:
    page = run_page(registry, registry.run(add_sweep(registry, tmp_path)))
    (spread,) = charts(page, "Luck of the seeds")
    assert spread.traces[1]["y"][0] == "batch_size 32, learning_rate 0.0001"
    assert [chart.title for chart in charts(page, "Settings")] == [
        "Which settings matter",
        "accuracy by batch_size",
        "accuracy by learning_rate",
    ]
    (table,) = section(page, "Trials").blocks
    assert isinstance(table, Table)
    assert len(table.rows) == 18
    assert [row["state"] for row in table.rows].count("FAILED") == 1
    assert any(
        "on these very data: a little flattering" in block.text
        for block in section(page, "Result").blocks
        if isinstance(block, Words)
    )


@pytest.mark.parametrize(("test_data", "is_honest"), [("t", True), ("v", False)])
def test_a_test_score_is_not_called_flattering_unless_it_is_refused(
    registry: Registry, tmp_path: Path, test_data: str, is_honest: bool
) -> None:
    sweep = add_sweep(registry, tmp_path)
    registry.trials.set_data(sweep, {"validation": "v", "test": test_data})
    registry.metrics.record(sweep, [MetricEvent(30, "test", {"accuracy": 0.8})], final=True)
    facts, words = section(run_page(registry, registry.run(sweep)), "Result").blocks
    assert isinstance(facts, Facts)
    assert isinstance(words, Words)
    assert facts.values["accuracy"] == "0.9100 (baseline 0.5000; best of 17 trials on the validation data)"
    assert words.text.startswith("The scores on the validation data are those of the trial that did best")
    assert ("Nothing was chosen on the test data" in words.text) == is_honest


def test_kept_predictions_become_a_matrix_and_scores_by_class(registry: Registry, tmp_path: Path) -> None:
    page = run_page(registry, registry.run(add_sweep(registry, tmp_path)))
    (matrix,) = charts(page, "Where it errs")
    assert sum(int(text) for row in matrix.traces[0]["text"] for text in row) == 90
    scores = next(block for block in section(page, "Where it errs").blocks if isinstance(block, Table))
    assert [row["recall"] for row in scores.rows] == [pytest.approx(0.8)] * 3


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.heavy
def test_the_spec_to_copy_has_the_same_fingerprint(registry: Registry, kind: str) -> None:
    spec = parse_spec(SAMPLES[kind].spec)
    run_id = new_run(registry, kind=kind, fingerprint=spec.fingerprint(), spec=spec.model_dump(mode="json"))
    short, _, whole = (
        b for b in section(run_page(registry, registry.run(run_id)), "Make it again").blocks if isinstance(b, Code)
    )
    for text in (short.text, whole.text):
        assert parse_spec(yaml.safe_load(text)).fingerprint() == spec.fingerprint()


def test_groups_stand_in_the_order_of_the_leaderboard_with_their_seeds(registry: Registry, tmp_path: Path) -> None:
    add_sweep(registry, tmp_path)
    page = task_page(registry, "own")
    board = registry.leaderboard("own").records
    (section,) = page.sections
    assert section.heading.startswith("accuracy on validation")
    chart, _, words, same, table = section.blocks
    assert isinstance(same, Words)
    assert isinstance(words, Words)
    assert words.text.startswith("Scores are on the validation data on which the best step of each trial was chosen")
    assert words.text.endswith("the first place was chosen on them, too: the best of 6 groups.")
    assert isinstance(chart, Chart)
    assert isinstance(table, Table)
    assert [row["group"] for row in table.rows] == [group_label(row["group"]) for row in board]
    assert len(chart.traces[0]["x"]) == 17  # of 18 trials one has failed
    assert list(chart.traces[1]["x"]) == [row["mean"] for row in board]


def test_what_is_the_same_in_all_groups_is_told_once_and_has_no_column() -> None:
    row = dict.fromkeys(("rank", "may_be_best", "mean", "low", "high", "sd", "best", "test", "recipe", "model", "run"))
    row |= {"n": 1, "baseline": 0.0133, "init_from": "random", "size": "tiny", "notes": "one seed", "group": "a"}
    other = row | {"init_from": "wiki@1", "notes": "", "group": "b"}
    assert telling_columns([row, other]) == (["init_from", "notes", "group"], ["n", "baseline", "size"])
    assert telling_columns([row])[1] == [], "one group has nothing beside it"


def test_a_page_says_how_many_archived_runs_it_leaves_out(registry: Registry, tmp_path: Path) -> None:
    registry.annotations.set_flag(add_sweep(registry, tmp_path), "archived")
    page = task_page(registry, "own")
    assert page.subtitle == "0 groups of runs that differ only in their seed; 18 archived runs left out"
    assert page.sections == []


def test_a_line_on_data_leaves_zeros_out() -> None:
    counts = {"num_train_examples": 60, "num_train_bad_records": 0, "num_train_tokens": 9_200}
    line = data_line({"name": "complaints", "counts": counts, "path": "/c"})
    assert line == "complaints: 60 train examples, 9,200 train tokens; at /c"


def test_a_truth_value_among_scores_is_a_word_and_a_rate_keeps_its_digits() -> None:
    lines = score_lines({"accuracy": 0.5, "collapsed": 1.0, "train.learning_rate": 0.00125}, "accuracy")
    assert lines == {"accuracy": "0.5000", "collapsed": "yes", "train.learning_rate": "0.00125"}


def test_a_refused_test_score_is_told_with_the_reason() -> None:
    lines = score_lines({"f1": 0.5, "test.f1": 0.75, "test.baseline.f1": 0.5}, "f1", "the reason")
    assert lines == {"f1": "0.5000", "test.f1": "0.7500 (baseline 0.5000; refused: the reason)"}


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


def test_values_that_end_alike_are_apart() -> None:
    values = ["wikipedia-lowercase/pretraining@1", "bookcorpus-lowercase/pretraining@1"]
    rows = [{"trial": value, "score": 0.5, "value": value} for value in values]
    assert score_by_setting(rows, "value", "f1").layout["xaxis"]["categoryarray"] == sorted(values)


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


def test_of_a_pipeline_the_stages_that_can_be_drawn_are_named(registry: Registry, tmp_path: Path) -> None:
    whole, words, model = (new_run(registry, kind=kind) for kind in ("pipeline", "tokenizer", "pretrain"))
    registry.metrics.record(model, [MetricEvent(1, "train", {"loss": 1.0})])
    for stage in (words, model):
        registry.annotations.tag(stage, [f"pipeline:{whole}"], reserved=True)
    with pytest.raises(NotFoundError, match=model) as refusal:
        plot_run(registry, registry.run(whole), str(tmp_path / "run.png"))
    assert words not in str(refusal.value)
