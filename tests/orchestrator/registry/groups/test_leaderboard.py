"""Leaderboard: groups of runs ranked by what their seeds show, and all that a mean does not say.

pytest tests/orchestrator/registry/groups/test_leaderboard.py
"""

import dataclasses
import math
import random
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Dialect, delete, true, update
from sqlalchemy.dialects import postgresql, sqlite

from orchestrator.errors import InputError
from orchestrator.registry import Registry, parameter_values
from orchestrator.registry.groups import groups
from orchestrator.registry.groups.group_records import GroupRecord, GroupRun
from orchestrator.registry.groups.model_origins import ModelOrigin, load_origins
from orchestrator.registry.groups.ranking import ORDERS, Order, ranked_groups
from orchestrator.registry.groups.scored_trials import scored_groups
from orchestrator.registry.groups.varying_paths import varying_paths
from orchestrator.registry.runs.trials import trial_id
from orchestrator.registry.tables import ParameterRow, RunRow
from orchestrator.reports.blocks import Chart
from orchestrator.reports.task_page import task_page
from orchestrator.results import MetricEvent, TrialResult
from orchestrator.run_states import RunState
from orchestrator.significance.many_comparisons import holm
from orchestrator.significance.welch import means_p_value
from tests.orchestrator.registry.samples import model_result, new_run, trial_result

RECIPE = {"learning_rate": 1e-4, "size": "tiny", "seed": 0, "init_from": "random", "epochs": 3.0}


def new_sweep(registry: Registry, **task: Any) -> str:
    spec = {"kind": "sweep", "task": {"id": "sst2", **task}, "recipe": RECIPE, "search_seed": 5}
    return new_run(registry, kind="sweep", name="sweep", spec=spec, task="sst2", metric="accuracy")


def scored(key: str, score: float, seed: int = 0, **changes: Any) -> TrialResult:
    metrics = {"accuracy": score, "baseline.accuracy": 0.5}
    return trial_result(key, **({"seed": seed, "metrics": metrics, "best_step": 7} | changes))


def seeds(registry: Registry, scores: list[float], *, first: int = 0, sweep: str = "", **parameters: Any) -> str:
    """Record a sweep of one group, a trial for each score, and return its id."""
    sweep = sweep or new_sweep(registry)
    key = repr(sorted(parameters.items()))
    trials = [
        scored(f"{key}{seed}", score, seed, number=seed, parameters=parameters)
        for seed, score in enumerate(scores, start=first)
    ]
    registry.trials.record(sweep, trials)
    return sweep


def test_the_leaderboard_takes_seeds_together(registry: Registry) -> None:
    sweep = new_sweep(registry)
    good, poor = {"learning_rate": 2e-5}, {"learning_rate": 9e-5}
    trials = [
        scored("a0", 0.90, 0, parameters=good),
        scored("a1", 0.80, 1, parameters=good, model=model_result()),
        scored("b0", 0.84, 0, parameters=poor),
        scored("b1", 0.83, 1, parameters=poor),
        scored("c0", 0.99, 0, parameters=good, state=RunState.FAILED),
    ]
    ids = registry.trials.record(sweep, trials)
    registry.metrics.record(ids[1], [MetricEvent(7, "test", {"accuracy": 0.77})], final=True)
    registry.models.register("best", model_result(), sweep)
    board = registry.leaderboard("sst2", by="mean")
    assert list(board["rank"]) == [1, 2]
    assert list(board["mean"]) == pytest.approx([0.85, 0.835])
    assert list(board["sd"]) == pytest.approx([0.0707106781, 0.00707106781])
    assert list(board["n"]) == [2, 2]
    assert list(board["best"]) == [0.90, 0.84]
    assert list(board["baseline"]) == [0.5, 0.5]
    assert board["test"][0] == 0.77
    assert board["test"].isna()[1]
    assert list(board["recipe"]) == ["learning_rate=2e-05", "learning_rate=9e-05"]
    assert list(board["run"]) == [ids[0], ids[2]]
    assert list(board["init_from"]) == ["random", "random"]


def test_the_leaderboard_names_the_registered_model(registry: Registry) -> None:
    sweep = new_sweep(registry)
    registry.trials.record(
        sweep, [scored("a", 0.9, model=model_result("a")), scored("b", 0.8, 1, model=model_result("b"))]
    )
    registry.models.register("best", model_result("a"), sweep)
    assert list(registry.leaderboard()["model"]) == ["best@1"]


@pytest.mark.parametrize("winner", ["a", "b"])
def test_of_equal_groups_one_with_a_model_is_first(registry: Registry, winner: str) -> None:
    sweep = new_sweep(registry)
    models = {winner: model_result(winner)}
    trials = [scored(key, 0.9, parameters={"size": key}, model=models.get(key)) for key in ("a", "b")]
    registry.trials.record(sweep, trials)
    registry.models.register("best", model_result(winner), sweep)
    assert list(registry.leaderboard()["model"].isna()) == [False, True]


def test_the_newest_of_equal_runs_stands_for_the_group(registry: Registry) -> None:
    for number in range(3):
        seeds(registry, [0.9 if number else 0.8], first=number)
    (group,) = registry.groups()
    assert group.best is not None
    assert group.best.seed == 2
    tested = dataclasses.replace(group, runs=[run._replace(test=0.7) for run in group.runs])
    assert tested.tested is not None
    assert tested.tested.seed == 2


@pytest.mark.parametrize("dialect", [sqlite.dialect(), postgresql.dialect()])
def test_runs_that_have_not_ended_stand_first_on_every_database(dialect: Dialect) -> None:
    ordered = str(groups._ranked_runs(true()).compile(dialect=dialect)).partition("ORDER BY ")[2]
    assert ordered == "runs.finished_at IS NOT NULL, runs.finished_at, runs.id"


def test_each_score_of_a_task_has_a_first_place(registry: Registry) -> None:
    for metric in ("accuracy", "f1"):
        sweep = new_sweep(registry)
        registry.trials.set_metric(sweep, "sst2", metric)
        registry.trials.record(sweep, [trial_result("k", metrics={metric: 0.9})])
    board = registry.leaderboard("sst2")
    assert list(zip(board["metric"], board["rank"], strict=True)) == [("accuracy", 1), ("f1", 1)]


def test_trials_of_before_a_field_was_added_are_in_the_group_of_those_that_leave_it_alone(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = new_sweep(registry)
    registry.trials.record(old, [scored("old", 0.6)])
    monkeypatch.setattr(parameter_values, "ADDED_FIELDS", {"recipe.weight_decay": 0.01})
    new = new_sweep(registry)
    as_before, used = {**RECIPE, "weight_decay": 0.01}, {**RECIPE, "weight_decay": 0.1}
    registry.trials.record(new, [scored("new", 0.8, seed=1, number=1, parameters=as_before)])
    registry.trials.record(new, [scored("used", 0.5, number=2, parameters=used)])
    board = registry.leaderboard("sst2")
    assert list(board["mean"]) == [pytest.approx(0.7), 0.5]
    assert list(board["n"]) == [2, 1]
    assert list(board["recipe"]) == ["", "weight_decay=0.1"]


def test_trials_on_other_data_are_no_group(registry: Registry) -> None:
    for size in (100, 200):
        registry.trials.record(new_sweep(registry, max_train_examples=size), [scored("k", size / 1000)])
    assert list(registry.leaderboard()["mean"]) == [0.2, 0.1]


def scored_on(registry: Registry, validation: str, score: float, seed: int = 0, train: str = "t1", **spec: Any) -> str:
    """A sweep of one trial on these data."""
    sweep = new_sweep(registry, **spec)
    registry.trials.set_data(sweep, {"train": train, "validation": validation})
    registry.trials.record(sweep, [scored("k", score, seed)])
    return sweep


def test_scores_on_other_validation_data_are_ranked_apart(registry: Registry) -> None:
    for validation, score, seed in (("v1", 0.90, 0), ("v1", 0.88, 1), ("v2", 0.60, 0)):
        scored_on(registry, validation, score, seed)
    board = registry.leaderboard("sst2")
    assert list(zip(board["data"], board["rank"], board["n"], board["mean"], strict=True)) == [
        ("v2", 1, 1, 0.60),
        ("v1", 1, 2, pytest.approx(0.89)),
    ]


def test_trials_on_other_training_data_are_told_apart_in_one_ranking(registry: Registry) -> None:
    scored_on(registry, "v1", 0.8, train="few")
    scored_on(registry, "v1", 0.9, train="many")
    board = registry.leaderboard("sst2")
    assert list(board["rank"]) == [1, 2]
    assert list(board["recipe"]) == ["data.train_digest=many", "data.train_digest=few"]


def test_an_older_result_outlives_a_newer_one_with_other_threads(registry: Registry) -> None:
    """Another number of threads rounds otherwise: the same seed gives another score."""
    for threads, score in ((1, 0.90), (8, 0.60)):
        sweep = new_run(
            registry,
            kind="sweep",
            spec={"kind": "sweep", "task": {"id": "sst2"}, "recipe": RECIPE, "threads_per_trial": threads},
            task="sst2",
            metric="accuracy",
        )
        registry.trials.record(sweep, [scored("k", score)])
    board = registry.leaderboard("sst2")
    assert list(zip(board["mean"], board["recipe"], strict=True)) == [
        (0.90, "threads_per_trial=1"),
        (0.60, "threads_per_trial=8"),
    ]


def test_the_data_of_trials_can_be_asked_for(registry: Registry) -> None:
    sweep = scored_on(registry, "v1", 0.9)
    assert set(registry.runs("params.validation_digest = 'v1'").id) == {sweep, trial_id(sweep, "k")}
    assert registry.parameters(sweep)["task.id"] == "sst2"


def test_more_groups_than_a_statement_has_variables_are_ranked(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "_IDS_PER_STATEMENT", 2)
    sweep = new_sweep(registry)
    rates = [1e-5, 2e-5, 3e-5, 4e-5, 5e-5]
    registry.trials.record(sweep, [scored(f"{rate}", rate * 1e4, parameters={"learning_rate": rate}) for rate in rates])
    board = registry.leaderboard("sst2")
    assert list(board["recipe"]) == [f"learning_rate={rate}" for rate in reversed(rates)]


def test_an_empty_leaderboard_has_its_columns(registry: Registry) -> None:
    board = registry.leaderboard("sst2")
    assert board.empty
    assert {"task", "mean", "sd", "n", "baseline", "model"} <= set(board.columns)


def test_a_group_is_ranked_by_the_worse_end_of_its_interval(registry: Registry) -> None:
    seeds(registry, [0.88, 0.885, 0.882, 0.879, 0.884], learning_rate=1e-5)
    seeds(registry, [0.99, 0.80], learning_rate=2e-5)
    seeds(registry, [0.92], learning_rate=3e-5)
    board = registry.leaderboard("sst2")
    assert list(board["n"]) == [5, 2, 1]
    assert list(board["low"])[:2] == sorted(board["low"][:2], reverse=True)
    assert board["low"].isna()[2]
    assert "one seed: noise not known" in board["notes"][2]
    assert list(registry.leaderboard("sst2", by="mean")["n"]) == [1, 2, 5]
    assert list(registry.leaderboard("sst2", by="best")["n"]) == [2, 1, 5]
    assert list(registry.leaderboard("sst2", by="median")["n"]) == [1, 2, 5]


def test_seeds_that_all_score_the_same_are_ranked_as_one_seed_is(registry: Registry) -> None:
    seeds(registry, [0.684, 0.684, 0.684], learning_rate=1e-5)
    seeds(registry, [0.80, 0.86, 0.74], learning_rate=2e-5)
    seeds(registry, [0.92, 0.92], learning_rate=3e-5)
    rows = registry.leaderboard_table().records
    assert [row["n"] for row in rows] == [3, 2, 3]
    assert rows[0]["low"] < 0.684 == rows[2]["mean"], "collapsed models would lead by an interval without width"
    assert [row["low"] for row in rows[1:]] == [None, None]
    assert [row["tie"] for row in rows] == [None, None, None]
    assert [row["notes"] for row in rows[1:]] == [
        "all 2 seeds score the same: noise not known", "all 3 seeds score the same: noise not known"
    ]  # fmt: skip


def test_the_numbers_of_a_place_are_those_of_its_seeds(registry: Registry) -> None:
    seeds(registry, [0.7, 0.9, 0.8, 0.8])
    (row,) = registry.leaderboard_table().records
    assert (row["mean"], row["median"], row["worst"], row["best"]) == pytest.approx((0.8, 0.8, 0.7, 0.9))
    assert row["low"] == pytest.approx(0.8 - 3.182446 * row["sd"] / 2)
    assert row["high"] == pytest.approx(0.8 + 3.182446 * row["sd"] / 2)


def test_nothing_of_a_group_is_left_out(registry: Registry) -> None:
    sweep = seeds(registry, [0.9, 0.91])
    registry.trials.record(
        sweep,
        [
            scored("failed", 0.0, 2, number=2, parameters={}, state=RunState.FAILED),
            scored("pruned", 0.4, 3, number=3, parameters={}, state=RunState.PRUNED),
            scored("nan", float("nan"), 4, number=4, parameters={}),
            scored("inf", float("inf"), 5, number=5, parameters={}),
            scored("low", 0.5, 6, number=6, parameters={}, metrics={"accuracy": 0.5, "collapsed": 1.0}),
        ],
    )
    (row,) = registry.leaderboard_table().records
    counts = {name: row[name] for name in ("n", "completed", "failed", "pruned", "collapsed", "nan", "unfinished")}
    assert counts == {
        "n": 3, "completed": 5, "failed": 1, "pruned": 1, "collapsed": 1, "nan": 2, "unfinished": 0
    }  # fmt: skip
    assert row["mean"] == pytest.approx((0.9 + 0.91 + 0.5) / 3)
    assert "of 7 runs 1 failed, 1 pruned, 1 collapsed, 2 NaN" in row["notes"]


def test_what_completed_without_a_score_is_last_and_told(registry: Registry) -> None:
    seeds(registry, [float("inf"), float("inf")], learning_rate=1e-5)
    seeds(registry, [0.3, 0.2], learning_rate=2e-5)
    rows = registry.leaderboard_table().records
    assert [(row["n"], row["mean"]) for row in rows] == [(2, pytest.approx(0.25)), (0, None)]
    assert rows[1]["notes"] == "no run completed with a score; of 2 runs 2 NaN"


def test_a_seed_that_ran_again_hides_no_result_and_counts_once(registry: Registry) -> None:
    for score in (0.9, 0.7, 0.8):
        seeds(registry, [score], first=4)
    (row,) = registry.leaderboard_table().records
    assert (row["n"], row["completed"], row["mean"], row["best"]) == (1, 3, pytest.approx(0.8), 0.9)
    assert "seed 4 run 3 times, scores differ by 0.2 although nothing else does" in row["notes"]


def test_a_seed_that_ran_again_with_the_same_bits_is_no_new_evidence(registry: Registry) -> None:
    for _ in range(3):
        seeds(registry, [0.8, 0.9])
    (row,) = registry.leaderboard_table().records
    assert (row["n"], row["completed"], row["sd"]) == (2, 6, pytest.approx(0.0707106781))
    assert row["notes"] == "2 seeds run up to 3 times, same score"


def test_other_code_is_another_group_and_told_beside_its_twin(registry: Registry) -> None:
    for code in ("0.1.0+g1", "0.1.0+g2"):
        sweep = new_sweep(registry)
        set_code(registry, sweep, code)
        seeds(registry, [0.8, 0.9], sweep=sweep)
    rows = registry.leaderboard_table().records
    assert sorted(row["recipe"] for row in rows) == ["code=0.1.0+g1", "code=0.1.0+g2"]
    assert all("the same was run with other code, too: " in row["notes"] for row in rows)
    assert rows[0]["group"].partition(".")[0] == rows[1]["group"].partition(".")[0]
    assert registry.group(rows[1]["group"]).code_version == rows[1]["recipe"].removeprefix("code=")


def test_a_sweep_that_goes_on_under_other_code_has_the_same_two_groups_everywhere(registry: Registry) -> None:
    sweep = new_sweep(registry)
    for first, code in enumerate(("0.1.0+g1", "0.1.0+g2")):
        set_code(registry, sweep, code)
        seeds(registry, [0.8 + first / 10], first=first, sweep=sweep)
    ranked = registry.leaderboard_table().values("group")
    trials = registry.trials.table(sweep).records
    assert len(ranked) == 2
    assert [group[0]["group"] for group in scored_groups(trials, "accuracy")] == ranked
    assert sorted(registry.grouped_table("group", "kind = 'trial'").values("group")) == sorted(ranked)


def set_code(registry: Registry, sweep: str, code: str) -> None:
    """Put a version of the code into a run's row, as an attempt does."""
    with registry._database.session(writing=True) as session:
        session.execute(update(RunRow).where(RunRow.id == sweep).values(code_version=code))


@pytest.mark.parametrize("metric", ["perplexity", "mlm_loss", "error_rate", "wer", "brier", "bits_per_character"])
def test_a_score_that_falls_ranks_the_smallest_first(registry: Registry, metric: str) -> None:
    for rate, values in ((1e-5, (50.0, 51.0, 49.0)), (2e-5, (5.0, 5.1, 5.2)), (3e-5, (math.inf, 5.0, 4.9))):
        sweep = new_sweep(registry)
        registry.trials.set_metric(sweep, "sst2", metric)
        registry.trials.record(
            sweep,
            [
                trial_result(f"{seed}", seed=seed, parameters={"learning_rate": rate}, metrics={metric: value})
                for seed, value in enumerate(values)
            ],
        )
    rows = registry.leaderboard_table(by="mean").records
    assert [row["mean"] for row in rows] == pytest.approx([4.95, 5.1, 50.0])
    assert (rows[2]["best"], rows[2]["worst"]) == (49.0, 51.0)
    assert [row["mean"] for row in registry.leaderboard_table().records] == pytest.approx([5.1, 4.95, 50.0])


@pytest.mark.parametrize(("metric", "is_known"), [("surprise", False), ("macro_f1", True), ("wer", True)])
def test_a_score_of_which_it_is_not_known_whether_more_is_better_is_told(
    registry: Registry, metric: str, is_known: bool
) -> None:
    sweep = new_sweep(registry)
    registry.trials.set_metric(sweep, "sst2", metric)
    registry.trials.record(sweep, [trial_result(f"{seed}", seed=seed, metrics={metric: seed / 9}) for seed in (1, 2)])
    (row,) = registry.leaderboard_table().records
    note = f"whether a larger {metric} is better is not known: it is ranked so"
    assert row["notes"] == ("" if is_known else note)


def test_places_that_cannot_be_told_apart_are_ties(registry: Registry) -> None:
    seeds(registry, [0.90, 0.91, 0.92], learning_rate=1e-5)
    seeds(registry, [0.89, 0.91, 0.93], learning_rate=2e-5)
    seeds(registry, [0.50, 0.51, 0.52], learning_rate=3e-5)
    seeds(registry, [0.60], learning_rate=4e-5)
    assert [row["tie"] for row in registry.leaderboard_table().records] == [None, True, False, None]


def test_ties_are_corrected_for_the_number_of_neighbors(registry: Registry) -> None:
    seeds(registry, [0.90, 0.91, 0.92], learning_rate=1e-5)
    seeds(registry, [0.865, 0.88, 0.89], learning_rate=2e-5)
    assert [row["tie"] for row in registry.leaderboard_table().records] == [None, False]
    for number in range(1, 6):
        seeds(registry, [0.8 - number / 100, 0.81 - number / 100, 0.79 - number / 100], learning_rate=number)
    assert [row["tie"] for row in registry.leaderboard_table().records][:2] == [None, True]


@pytest.mark.parametrize("num_groups", [2, 10, 30])
def test_groups_of_one_mean_are_seldom_told_apart(num_groups: int) -> None:
    """One ranking of twenty at most may tell any two neighbors apart; uncorrected, of 30 groups it is one of three."""
    rng, num_told_apart = random.Random(7), 0
    for _ in range(200):
        drawn = [[rng.gauss(0.8, 0.01) for _ in range(3)] for _ in range(num_groups)]
        made = [group_of(f"{number:016}", scores) for number, scores in enumerate(drawn)]
        num_told_apart += any(one.tie is False for one in ranked_groups(made))
    assert num_told_apart / 200 <= 0.05


def test_the_fields_of_a_task_tell_groups_apart_and_trials_have_them(registry: Registry) -> None:
    for size in (100, 200):
        sweep = new_sweep(registry, max_train_examples=size, labels=None, files={"train": f"t{size}.csv"})
        seeds(registry, [size / 1000], sweep=sweep)
    assert list(registry.leaderboard()["recipe"]) == ["task.max_train_examples=200", "task.max_train_examples=100"]
    found = registry.runs("params.max_train_examples = 100 and kind = 'trial'")
    assert list(found["metrics.accuracy"]) == [0.1]
    assert not [path for path in registry.parameters(found["id"][0]) if path.startswith(("task.files", "task.labels"))]


def test_rows_of_before_their_differences_were_recorded_are_told_apart_by_their_group(registry: Registry) -> None:
    for size in (100, 200):
        sweep = new_sweep(registry, max_train_examples=size)
        seeds(registry, [size / 1000], sweep=sweep)
    with registry._database.session(writing=True) as session:
        session.execute(delete(ParameterRow).where(ParameterRow.path == "task.max_train_examples"))
    rows = registry.leaderboard_table().records
    assert [row["recipe"] for row in rows] == [f"group={row['group'][:8]}" for row in rows]


def test_the_same_data_at_another_place_are_the_same_group(registry: Registry) -> None:
    for number, folder in enumerate(("here", "there")):
        sweep = new_sweep(registry, files={"train": f"{folder}/train.csv"})
        registry.trials.set_data(sweep, {"train": "t", "validation": "v", "test": f"test{number}"})
        seeds(registry, [0.8], first=number, sweep=sweep)
    assert list(registry.leaderboard()["n"]) == [2]


def test_a_test_score_of_models_that_were_chosen_on_the_test_data_is_refused(registry: Registry) -> None:
    for test, rate in (("v", 1e-5), ("t", 2e-5)):
        sweep = new_sweep(registry)
        registry.trials.set_data(sweep, {"train": "x", "validation": "v", "test": test})
        seeds(registry, [0.8, 0.7], sweep=sweep, learning_rate=rate)
        best = registry.leaderboard_table().records[0]["run"]
        registry.metrics.record(best, [MetricEvent(7, "test", {"accuracy": 0.77})], final=True)
    by_recipe = {row["recipe"]: row for row in registry.leaderboard_table().records}
    refused, clean = by_recipe["learning_rate=1e-05"], by_recipe["learning_rate=2e-05"]
    assert refused["test"] is None
    assert "test score refused: the test data are those that the model was chosen on" in refused["notes"]
    assert clean["origin"] == "chosen", "its validation score was chosen on, its test score was not"


def test_an_honest_test_score_is_shown_beside_a_refused_one_whichever_is_newer(registry: Registry) -> None:
    """Test data are no part of a group: each run's test score is judged by the data of its own sweep."""
    for number, (rate, tests) in enumerate(((1e-5, ("v", "t")), (2e-5, ("t", "v")))):
        for test in tests:
            sweep = new_sweep(registry)
            registry.trials.set_data(sweep, {"train": "x", "validation": "v", "test": test})
            seeds(registry, [0.9 if test == "v" else 0.8], first=number, sweep=sweep, learning_rate=rate)
            (trial,) = registry.trials.table(sweep).values("id")
            score = {"accuracy": 0.99 if test == "v" else 0.65}
            registry.metrics.record(str(trial), [MetricEvent(7, "test", score)], final=True)
    rows = registry.leaderboard_table().records
    assert [row["test"] for row in rows] == [0.65, 0.65]
    note = "1 of 2 test scores refused: the test data are those that the model was chosen on"
    assert all(note in row["notes"] for row in rows)


def test_a_student_and_the_trials_of_a_probe_are_ranked_with_those_of_sweeps(registry: Registry) -> None:
    seeds(registry, [0.8, 0.81])
    probe_spec = {"kind": "probe", "task": {"id": "sst2"}, "recipe": RECIPE, "run": "r"}
    probe = new_run(registry, kind="probe", spec=probe_spec, task="sst2", metric="accuracy")
    seeds(registry, [0.7, 0.72], sweep=probe, init_from="snapshot")
    for seed in (0, 1):
        spec = {"kind": "distill", "teacher": "t", "task": {"id": "sst2"}, "recipe": {**RECIPE, "seed": seed}}
        student = new_run(registry, kind="distill", spec=spec, task="sst2", metric="accuracy")
        registry.lifecycle.start_attempt(student)
        registry.metrics.record(student, [MetricEvent(3, "validation", {"accuracy": 0.9 + seed / 100})], final=True)
        registry.lifecycle.finish(student, RunState.COMPLETED)
    rows = registry.leaderboard_table().records
    assert [(row["kind"], row["n"]) for row in rows] == [("distill", 2), ("sweep", 2), ("probe", 2)]


def evaluated(registry: Registry, split: str, data: str, score: float, model: str = "m@1") -> str:
    """Record an evaluation of a model on data, and return its id."""
    spec = {"kind": "evaluate", "model": model, "task": {"id": "sst2"}, "split": split}
    run = new_run(registry, kind="evaluate", spec=spec, task="sst2", metric="accuracy")
    registry.lifecycle.start_attempt(run)
    registry.trials.set_data(run, {split: data, "model": "d" * 16})
    registry.metrics.record(run, [MetricEvent(0, split, {"accuracy": score})], final=True)
    registry.lifecycle.finish(run, RunState.COMPLETED)
    return run


def test_an_evaluated_model_is_ranked_and_told_whether_it_was_chosen_on_the_data(registry: Registry) -> None:
    sweep = new_sweep(registry)
    registry.trials.set_data(sweep, {"train": "x", "validation": "v"})
    seeds(registry, [0.8, 0.7], sweep=sweep)
    registry.models.register("m", model_result("d" * 64), sweep)
    evaluated(registry, "validation", "v", 0.8)
    evaluated(registry, "validation", "other", 0.6)
    evaluated(registry, "test", "t", 0.75)
    rows = {(row["kind"], row["split"], row["data"]): row for row in registry.leaderboard_table().records}
    assert rows["evaluate", "validation", "v"]["origin"] == "chosen"
    assert "its model was chosen on these data" in rows["evaluate", "validation", "v"]["notes"]
    assert rows["evaluate", "validation", "v"]["rank"] == 2
    assert rows["evaluate", "validation", "other"]["origin"] == "apart"
    assert (rows["evaluate", "test", "t"]["mean"], rows["evaluate", "test", "t"]["rank"]) == (0.75, 1)


def test_a_test_score_of_an_evaluated_model_that_was_chosen_on_it_is_refused(registry: Registry) -> None:
    sweep = new_sweep(registry)
    registry.trials.set_data(sweep, {"train": "x", "validation": "the test file"})
    registry.models.register("m", model_result("d" * 64), sweep)
    evaluated(registry, "test", "the test file", 0.99)
    (row,) = registry.leaderboard_table().records
    assert (row["mean"], row["best"], row["n"]) == (None, None, 0)
    assert row["notes"].startswith("score refused: the test data are those that the model was chosen on")


def test_an_evaluation_on_the_data_that_its_model_was_trained_on_is_told_and_as_a_test_refused(
    registry: Registry,
) -> None:
    sweep = new_sweep(registry)
    registry.trials.set_data(sweep, {"train": "x", "validation": "v"})
    registry.models.register("m", model_result("d" * 64), sweep)
    for split in ("train", "validation", "test"):
        run = evaluated(registry, split, "x", 0.99)
    rows = {row["split"]: row for row in registry.leaderboard_table().records}
    assert {row["origin"] for row in rows.values()} == {"trained"}
    for split in ("train", "validation"):
        assert (rows[split]["mean"], rows[split]["notes"].split("; ")[-1]) == (
            0.99, "its model was trained on these data"
        )  # fmt: skip
    reason = "the test data are those that the model was trained on"
    assert (rows["test"]["mean"], rows["test"]["notes"]) == (None, f"score refused: {reason}")
    assert registry.test_refusals([run]) == {run: reason}


def test_trials_that_were_trained_on_their_validation_data_are_told(registry: Registry) -> None:
    sweep = new_sweep(registry)
    registry.trials.set_data(sweep, {"train": "x", "validation": "x", "test": "x"})
    seeds(registry, [0.8, 0.7], sweep=sweep)
    (row,) = registry.leaderboard_table().records
    assert (row["origin"], row["notes"]) == ("trained", "its model was trained on these data")


def test_evaluations_on_other_test_data_are_ranked_apart(registry: Registry) -> None:
    """Also those of a registry that recorded one key for all of them."""
    of_before = [evaluated(registry, "test", data, score) for data, score in (("t1", 0.9), ("t2", 0.5))]
    with registry._database.session(writing=True) as session:
        session.execute(update(RunRow).where(RunRow.id.in_(of_before)).values(group_key="3f2a77c0b1d2e3f4"))
    for data, score in (("t3", 0.8), ("t4", 0.6)):
        evaluated(registry, "test", data, score)
    evaluated(registry, "test", "t4", 0.6)
    rows = registry.leaderboard_table().records
    found = {row["data"]: (row["rank"], row["n"], row["completed"], row["mean"]) for row in rows}
    assert found == {"t1": (1, 1, 1, 0.9), "t2": (1, 1, 1, 0.5), "t3": (1, 1, 1, 0.8), "t4": (1, 1, 2, 0.6)}
    assert not [row for row in rows if "although nothing else does" in row["notes"]]
    assert len({row["group"] for row in rows}) == 3, "new ones have keys of their own"
    with pytest.raises(InputError, match=f"3f2a77c0 stands for 2 groups.*{of_before[0]} .accuracy, data t1"):
        registry.group("3f2a77c0")
    assert registry.group(of_before[1]).data == "t2"
    charts = [block for section in task_page(registry, "sst2").sections for block in section.blocks]
    scores = [trace["x"] for chart in charts if isinstance(chart, Chart) for trace in chart.traces]
    assert sorted(x[0] for x in scores if len(x) == 1)[::2] == [0.5, 0.6, 0.8, 0.9]


@given(
    st.lists(
        st.lists(st.one_of(st.floats(0, 1), st.just(math.nan), st.just(math.inf)), min_size=1, max_size=6),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(ORDERS),
    st.sampled_from(["accuracy", "perplexity"]),
)
def test_no_score_that_is_no_number_and_no_single_seed_leads(scores: list[list[float]], by: Order, metric: str) -> None:
    made = [group_of(f"{number:016}", values, metric) for number, values in enumerate(scores)]
    ranked = [one.group for one in ranked_groups(made, by)]
    assert sorted(group.key for group in ranked) == [group.key for group in made]
    assert [one.rank for one in ranked_groups(made, by)] == list(range(1, len(made) + 1))
    has_score = [bool(group.seeds) for group in ranked]
    assert has_score == sorted(has_score, reverse=True)
    if by == "lower":
        has_interval = [group.shows_noise for group in ranked if group.seeds]
        assert has_interval == sorted(has_interval, reverse=True)


def group_of(key: str, scores: list[float], metric: str = "accuracy") -> GroupRecord:
    """A group of completed trials, a seed for each score."""
    runs = [
        GroupRun(f"{key}{seed}", seed, RunState.COMPLETED, score, None, None, False, None, None, "sweep")
        for seed, score in enumerate(scores)
    ]
    return GroupRecord(key, "sweep", "sst2", metric, "validation", runs, parameters={"recipe.key": key})


VALUES = st.one_of(st.none(), st.booleans(), st.sampled_from([0, 1, 1.0, 16, 16.0, "a", "", "1"]), st.just([1, 2.0]))


@given(st.lists(st.dictionaries(st.sampled_from("abc"), VALUES), max_size=6))
def test_varying_paths_are_those_in_which_any_two_recipes_differ(recipes: list[dict[str, Any]]) -> None:
    paths = {path for recipe in recipes for path in recipe}
    by_pairs = {path for path in paths if any(a.get(path) != b.get(path) for a, b in product(recipes, recipes))}
    assert varying_paths(recipes) == by_pairs


class Counted(str):
    """Text that counts how often any was compared with another."""

    num_comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.num_comparisons += 1
        return str.__eq__(self, str(other))


def test_the_work_of_a_leaderboard_grows_with_its_groups_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for num_groups in (500, 1000):
        monkeypatch.setattr(Counted, "num_comparisons", 0)
        recipes = [
            {f"recipe.p{axis}": Counted(f"{group % (axis + 2)}") for axis in range(20)} for group in range(num_groups)
        ]
        varying_paths(recipes)
        counts.append(Counted.num_comparisons)
    assert counts[1] <= 2.5 * counts[0]


def test_where_models_were_chosen_is_asked_of_those_that_evaluations_name_alone(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = new_sweep(registry)
    for number in range(20):
        other = maker if number == 7 else new_sweep(registry)
        registry.trials.set_data(other, {"train": "x", "validation": f"v{number}"})
        registry.models.register(f"m{number}", model_result(f"{number:064d}"), other)
    run = evaluated(registry, "validation", "v7", 0.8, "m7@1")
    registry.trials.set_data(run, {"validation": "v7", "model": "0" * 14 + "no"})
    num_rows = 0
    with registry._database.session(writing=False) as session:
        execute = session.execute

        def counted(statement: Any) -> list[Any]:
            nonlocal num_rows
            rows = list(execute(statement))
            num_rows += len(rows)
            return rows

        monkeypatch.setattr(session, "execute", counted)
        assert load_origins(session, [run]) == {run: ModelOrigin("x", "v7")}
    assert num_rows == 5, "two names, one model, two digests"


def test_archived_runs_are_left_out_and_counted(registry: Registry) -> None:
    """With their trials, and without an effect on the groups that they share with others."""
    kept, away = seeds(registry, [0.8, 0.82]), seeds(registry, [0.9], first=2)
    alone = seeds(registry, [0.99], learning_rate=3e-5)
    for sweep in (away, alone):
        registry.annotations.set_flag(sweep, "archived")
    (row,) = registry.leaderboard_table("sst2").records
    assert (row["mean"], row["n"]) == (pytest.approx(0.81), 2)
    assert [len(group.runs) for group in registry.groups("sst2")] == [2]
    assert registry.num_ranked_archived("sst2") == registry.num_ranked_archived() == 2
    assert registry.num_ranked_archived("mrpc") == 0
    assert sorted(registry.leaderboard_table("sst2", archived=True).values("n")) == [1, 3]
    registry.annotations.clear_flag(away, "archived")
    trial = str(registry.run_table(f"parent = '{away}'").values("id")[0])
    registry.annotations.set_flag(trial, "archived")
    assert trial not in registry.run_table(archived=False).values("id"), "a trial of its own, too"
    assert registry.num_ranked_archived() == 2
    assert kept in registry.run_table(archived=False).values("id")


def test_intervals_of_scores_between_0_and_1_end_there(registry: Registry) -> None:
    seeds(registry, [0.999, 1.0, 0.96])
    seeds(registry, [0.001, 0.0, 0.04], learning_rate=3e-5)
    good, poor = registry.leaderboard_table("sst2").records
    assert good["high"] == 1.0
    assert good["low"] == pytest.approx(0.986333 - 0.0567, abs=1e-3)
    assert poor["low"] == 0.0


def test_the_first_places_are_those_of_the_whole_board(registry: Registry) -> None:
    for number in range(3):
        seeds(registry, [0.7 + 0.1 * number, 0.71 + 0.1 * number], learning_rate=1e-5 * (number + 1))
    places = registry.leaderboard_table(limit=2)
    assert places.records == registry.leaderboard_table().records[:2]
    assert {row["num_ranked"] for row in places.records} == {3}


def test_tasks_that_have_groups_are_listed(registry: Registry) -> None:
    assert registry.ranked_tasks() == []
    away = seeds(registry, [0.8])
    registry.annotations.set_flag(away, "archived")
    new_run(registry, kind="pretrain", task=None)
    assert registry.ranked_tasks() == ["sst2"]
    registry.trials.set_metric(new_sweep(registry), "mrpc", "f1")
    assert registry.ranked_tasks() == ["sst2"], "a sweep without trials has no group"


def test_a_long_ranking_has_the_ties_that_exact_tests_of_all_neighbors_give() -> None:
    """Neighbors that are close are not tested; whatever their p-value, a correction leaves them ties."""
    rng = random.Random(3)
    drawn = [[rng.gauss(mean, 0.002) for _ in range(rng.choice((1, 3, 8)))] for mean in (0.5, 0.6, 0.8) * 20]
    ranked = ranked_groups([group_of(f"{number:016}", scores) for number, scores in enumerate(drawn)])
    p_values = [means_p_value(above.group.scores, one.group.scores) for above, one in pairwise(ranked)]
    corrected = iter(holm([p_value for p_value in p_values if p_value is not None]))
    assert [one.tie for one in ranked[1:]] == [None if p is None else next(corrected) >= 0.05 for p in p_values]
    assert {one.tie for one in ranked[1:]} == {None, True, False}
