"""Groups with what a mean does not say. Alone: pytest tests/orchestrator/registry/test_leaderboard.py"""

import pytest

from orchestrator.base.results import MetricEvent
from orchestrator.base.run_states import RunState
from orchestrator.registry import Registry
from orchestrator.registry.leaderboard import ranking_sentences
from tests.orchestrator.registry.group_samples import RECIPE, new_sweep, scored, scored_on, seeds, set_code
from tests.orchestrator.registry.samples import model_result, new_run, trial_result


def test_the_leaderboard_takes_seeds_together(registry: Registry) -> None:
    sweep = new_sweep(registry)
    good, poor = {"learning_rate": 2e-5}, {"learning_rate": 9e-5}
    trials = [
        scored("a0", 0.90, 0, parameters=good, model=model_result()),
        scored("a1", 0.80, 1, parameters=good),
        scored("b0", 0.84, 0, parameters=poor),
        scored("b1", 0.83, 1, parameters=poor),
        scored("c0", 0.99, 0, parameters=good, state=RunState.FAILED),
    ]
    ids = registry.trials.record(sweep, trials)
    registry.metrics.record(ids[1], [MetricEvent(7, "test", {"accuracy": 0.77})], final=True)
    registry.models.register("best", model_result(), sweep)
    board = registry.leaderboard("sst2", by="mean").frame()
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
    assert list(board["model"].dropna()) == ["best@1"]


def test_each_score_of_a_task_has_a_first_place(registry: Registry) -> None:
    for metric in ("accuracy", "f1"):
        sweep = new_sweep(registry)
        registry.trials.set_metric(sweep, "sst2", metric)
        registry.trials.record(sweep, [trial_result("k", metrics={metric: 0.9})])
    board = registry.leaderboard("sst2").frame()
    assert list(zip(board["metric"], board["rank"], strict=True)) == [("accuracy", 1), ("f1", 1)]


def test_scores_on_other_validation_data_are_ranked_apart(registry: Registry) -> None:
    for validation, score, seed in (("v1", 0.90, 0), ("v1", 0.88, 1), ("v2", 0.60, 0)):
        scored_on(registry, validation, score, seed)
    board = registry.leaderboard("sst2").frame()
    assert list(zip(board["data"], board["rank"], board["n"], board["mean"], strict=True)) == [
        ("v2", 1, 1, 0.60),
        ("v1", 1, 2, pytest.approx(0.89)),
    ]


def test_groups_of_more_runs_than_a_statement_has_variables(registry: Registry) -> None:
    sweep = seeds(registry, [0.8, 0.7])
    trials = [str(trial) for trial in registry.trials.table(sweep).values("id")]
    (group,) = registry.groups_of([*trials, *(f"unknown{number}" for number in range(40_000))])
    assert {run.id for run in group.runs} == set(trials)


def test_an_empty_leaderboard_has_its_columns(registry: Registry) -> None:
    board = registry.leaderboard("sst2").frame()
    assert board.empty
    assert {"task", "mean", "sd", "n", "baseline", "model"} <= set(board.columns)


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
    (row,) = registry.leaderboard().records
    counts = {name: row[name] for name in ("n", "completed", "failed", "pruned", "collapsed", "nan", "unfinished")}
    assert counts == {
        "n": 3, "completed": 5, "failed": 1, "pruned": 1, "collapsed": 1, "nan": 2, "unfinished": 0
    }  # fmt: skip
    assert row["mean"] == pytest.approx((0.9 + 0.91 + 0.5) / 3)
    assert "of 7 runs 1 failed, 1 pruned, 1 collapsed, 2 NaN" in row["notes"]


def test_a_group_without_a_score_is_not_among_those_that_the_best_was_chosen_from(registry: Registry) -> None:
    sweep = seeds(registry, [0.9, 0.8], learning_rate=2e-5)
    registry.trials.record(sweep, [scored("failed", 0.0, parameters={"learning_rate": 9e-5}, state=RunState.FAILED)])
    rows = registry.leaderboard("sst2").records
    assert [(row["rank"], row["num_ranked"], row["num_scored"]) for row in rows] == [(1, 2, 1), (None, 2, 1)]
    assert not any("the best of" in sentence for sentence in ranking_sentences(rows))


def test_a_seed_that_ran_again_hides_no_result_and_counts_once(registry: Registry) -> None:
    for score in (0.9, 0.7, 0.8):
        seeds(registry, [score], first=4)
    (row,) = registry.leaderboard().records
    assert (row["n"], row["completed"], row["mean"], row["best"]) == (1, 3, pytest.approx(0.8), 0.9)
    assert "seed 4 run 3 times, scores differ by up to 0.2 although nothing else does" in row["notes"]


def test_a_seed_that_ran_again_with_the_same_bits_is_no_new_evidence(registry: Registry) -> None:
    for _ in range(3):
        seeds(registry, [0.8, 0.9])
    (row,) = registry.leaderboard().records
    assert (row["n"], row["completed"], row["sd"]) == (2, 6, pytest.approx(0.0707106781))
    assert row["notes"] == "2 seeds run up to 3 times, same score"


def test_other_code_is_another_group_and_told_beside_its_twin(registry: Registry) -> None:
    for code in ("0.1.0+g1", "0.1.0+g2"):
        sweep = new_sweep(registry)
        set_code(registry, sweep, code)
        seeds(registry, [0.8, 0.9], sweep=sweep, first=int(code[-1]))
    rows = registry.leaderboard().records
    assert sorted(row["recipe"] for row in rows) == ["code=0.1.0+g1", "code=0.1.0+g2"]
    assert all("the same was run with other code, too: " in row["notes"] for row in rows)
    assert rows[0]["group"].partition(".")[0] == rows[1]["group"].partition(".")[0]
    assert registry.group(rows[1]["group"]).code_version == rows[1]["recipe"].removeprefix("code=")
    (pooled,) = registry.leaderboard(across_code=True).records
    assert (pooled["n"], pooled["completed"], pooled["recipe"]) == (3, 4, "")
    assert pooled["group"] == rows[0]["group"].partition(".")[0]
    assert "runs of 2 versions of the code taken together: 0.1.0+g1, 0.1.0+g2" in pooled["notes"]


def test_the_fields_of_a_task_tell_groups_apart_and_trials_have_them(registry: Registry) -> None:
    for size in (100, 200):
        sweep = new_sweep(registry, max_train_examples=size, labels=None, files={"train": f"t{size}.csv"})
        seeds(registry, [size / 1000], sweep=sweep)
    assert registry.leaderboard().values("recipe") == ["task.max_train_examples=200", "task.max_train_examples=100"]
    found = registry.runs("params.max_train_examples = 100 and kind = 'trial'")
    assert list(found["metrics.accuracy"]) == [0.1]
    assert not [path for path in registry.parameters(found["id"][0]) if path.startswith(("task.files", "task.labels"))]


def test_the_same_data_at_another_place_are_the_same_group(registry: Registry) -> None:
    for number, folder in enumerate(("here", "there")):
        sweep = new_sweep(registry, files={"train": f"{folder}/train.csv"})
        registry.trials.set_data(sweep, {"train": "t", "validation": "v", "test": f"test{number}"})
        seeds(registry, [0.8], first=number, sweep=sweep)
    assert registry.leaderboard().values("n") == [2]


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
    rows = registry.leaderboard().records
    assert [(row["kind"], row["n"]) for row in rows] == [("distill", 2), ("sweep", 2), ("probe", 2)]


def test_archived_runs_are_left_out_and_counted(registry: Registry) -> None:
    """With their trials, and without an effect on the groups that they share with others."""
    _, away = seeds(registry, [0.8, 0.82]), seeds(registry, [0.9], first=2)
    alone = seeds(registry, [0.99], learning_rate=3e-5)
    for sweep in (away, alone):
        registry.annotations.set_flag(sweep, "archived")
    (row,) = registry.leaderboard("sst2").records
    assert (row["mean"], row["n"]) == (pytest.approx(0.81), 2)
    assert [len(group.runs) for group in registry.groups_of(registry.run_ids(), archived=False)] == [2]
    assert registry.num_ranked_archived("sst2") == registry.num_ranked_archived() == 2
    assert registry.num_ranked_archived("mrpc") == 0
    assert sorted(registry.leaderboard("sst2", archived=True).values("n")) == [1, 3]
    registry.annotations.clear_flag(away, "archived")
    registry.annotations.set_flag(str(registry.run_table(f"parent = '{away}'").values("id")[0]), "archived")
    assert registry.num_ranked_archived() == 2, "a trial of its own, too"


def test_tasks_that_have_groups_are_listed(registry: Registry) -> None:
    assert registry.ranked_tasks() == []
    away = seeds(registry, [0.8])
    registry.annotations.set_flag(away, "archived")
    new_run(registry, kind="pretrain", task=None)
    assert registry.ranked_tasks() == ["sst2"]
    registry.trials.set_metric(new_sweep(registry), "mrpc", "f1")
    assert registry.ranked_tasks() == ["sst2"], "a sweep without trials has no group"


def test_the_same_scores_by_other_code_are_no_more_evidence(registry: Registry) -> None:
    told = []
    for code in ("0.1.0+g1", "0.1.0+g2"):
        sweep = new_sweep(registry)
        set_code(registry, sweep, code)
        for rate in (1e-4, 2e-4):
            seeds(registry, [0.7 + rate * 1e3, 0.75], sweep=sweep, learning_rate=rate)
        registry.lifecycle.finish(sweep, RunState.COMPLETED)
        told.append({(row["low"], row["high"]) for row in registry.leaderboard().records})
    assert told[0] == told[1]
