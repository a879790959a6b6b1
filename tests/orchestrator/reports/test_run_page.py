"""Pages of runs and of tasks: which sections they have, and what these say.

Alone: pytest tests/orchestrator/reports/test_run_page.py
"""

from pathlib import Path

import pytest
import yaml
from sqlalchemy import event

from orchestrator.registry import Registry
from orchestrator.registry.groups.group_keys import group_label
from orchestrator.registry.lineage.lineage_edges import LineageNode
from orchestrator.registry.lineage.lineage_trees import LineageTree
from orchestrator.reports.blocks import Chart, Code, Facts, Page, Section, Table, Words
from orchestrator.reports.run_page import lineage_table, run_page
from orchestrator.reports.run_texts import data_line, score_lines
from orchestrator.reports.task_page import same_in_all, shown_columns, task_page
from orchestrator.results import MetricEvent, TrialResult
from orchestrator.run_states import RunState
from orchestrator.specs.loading import parse_spec
from tests.orchestrator.kinds.samples import SAMPLES
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
    assert len([statement for statement in seen if "FROM runs" in statement and "runs.parent_id = ?" in statement]) == 1


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
    run_id = registry.lifecycle.create(
        kind=kind, name=kind, fingerprint=spec.fingerprint(), spec=spec.model_dump(mode="json")
    )
    short, _, whole = (
        b for b in section(run_page(registry, registry.run(run_id)), "Make it again").blocks if isinstance(b, Code)
    )
    for text in (short.text, whole.text):
        assert parse_spec(yaml.safe_load(text)).fingerprint() == spec.fingerprint()


def test_the_way_to_a_model_is_told_once_for_each_part() -> None:
    text, tokenizer = LineageNode("t" * 64, "file", "notes.txt"), LineageNode("k" * 64, "tokenizer", "tokenizers/notes")
    model = LineageNode("m" * 64, "model", "wiki@1")
    made_of_text = LineageTree(tokenizer, "tokenizer", branches=(LineageTree(text, "text"),))
    table = lineage_table(LineageTree(model, branches=(made_of_text, LineageTree(text, "text"))))
    assert [(row["what"], row["was"], row["of"]) for row in table.rows] == [
        ("tokenizer tokenizers/notes", "tokenizer", "model wiki@1"),
        ("file notes.txt", "text", "tokenizer tokenizers/notes"),
        ("file notes.txt", "text", "model wiki@1"),
    ]


@pytest.mark.parametrize(
    ("varied", "names"),
    [
        ([("a", 0), ("b", 0)], ["start a", "start b"]),
        ([("a", 0), ("a", 1)], ["seed 0", "seed 1"]),
        ([("a", 0), ("b", 0), ("b", 1)], ["start a, seed 0", "start b, seed 0", "start b, seed 1"]),
        ([("a", 0), ("a", 0)], ["(trial 0)", "(trial 1)"]),
        ([("a", 0), ("a", 0), ("b", 0)], ["start a (trial 0)", "start a (trial 1)", "start b"]),
    ],
)
def test_a_trial_is_named_by_its_number_where_nothing_else_tells_it_apart(
    registry: Registry, varied: list[tuple[str, int]], names: list[str]
) -> None:
    sweep = registry.lifecycle.create(
        kind="sweep", name="s", fingerprint="f" * 64, spec={"kind": "sweep"}, task="own", metric="f1"
    )
    trials = [
        TrialResult(
            key=f"k{number}",
            number=number,
            parameters={"start": start},
            seed=seed,
            metrics={"f1": 0.5},
            state=RunState.COMPLETED,
        )
        for number, (start, seed) in enumerate(varied)
    ]
    for trial_id in registry.trials.record(sweep, trials):
        registry.metrics.record(trial_id, [MetricEvent(step, "validation", {"f1": 0.5}) for step in (1, 2)])
    (chart,) = charts(run_page(registry, registry.run(sweep)), "Learning curves of the trials")
    assert sorted(trace["name"] for trace in chart.traces) == names


def test_groups_stand_in_the_order_of_the_leaderboard_with_their_seeds(registry: Registry, tmp_path: Path) -> None:
    add_sweep(registry, tmp_path)
    page = task_page(registry, "own")
    board = registry.leaderboard_table("own").records
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
    row = dict.fromkeys(("rank", "tie", "mean", "low", "high", "sd", "best", "test", "recipe", "model", "run"))
    row |= {"n": 1, "baseline": 0.0133, "init_from": "random", "size": "tiny", "notes": "one seed", "group": "a"}
    other = row | {"init_from": "wiki@1", "notes": "", "group": "b"}
    assert same_in_all([row, other]) == ["n", "baseline", "size"]
    assert shown_columns([row, other]) == ["init_from", "notes", "group"]
    assert same_in_all([row]) == [], "one group has nothing beside it"


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
    assert lines == {"f1": "0.5000", "test.f1": "0.7500 (refused: the reason)"}
