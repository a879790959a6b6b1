"""Trials: runs with a parent, recorded as they end, ranked with their seeds taken together.

pytest tests/orchestrator/registry/test_trials.py
"""

from itertools import product
from typing import Any

import pytest

from orchestrator.registry import Registry
from orchestrator.registry.trials import trial_id
from orchestrator.results import MetricEvent, TrialResult
from orchestrator.run_states import RunState
from tests.orchestrator.registry.samples import everything, model_result, new_run, trial_result

RECIPE = {"learning_rate": 1e-4, "size": "tiny", "seed": 0, "init_from": "random", "epochs": 3.0}


def new_sweep(registry: Registry, **task: Any) -> str:
    spec = {"kind": "sweep", "task": {"id": "sst2", **task}, "recipe": RECIPE, "search_seed": 5}
    sweep = new_run(registry, kind="sweep", name="sweep", spec=spec, task="sst2", metric="accuracy")
    registry.lifecycle.start_attempt(sweep)
    return sweep


def scored(key: str, score: float, seed: int = 0, **changes: Any) -> TrialResult:
    metrics = {"accuracy": score, "baseline.accuracy": 0.5}
    return trial_result(key, seed=seed, metrics=metrics, best_step=7, **changes)


def test_a_trial_has_the_sweeps_recipe_with_its_own_values(registry: Registry) -> None:
    sweep = new_sweep(registry)
    (trial,) = registry.trials.record(sweep, [scored("k", 0.9, seed=3, number=4, parameters={"learning_rate": 2e-5})])
    run = registry.run(trial)
    assert (run.parent_id, run.kind, run.number, run.seed, run.task) == (sweep, "trial", 4, 3, "sst2")
    changed = {"learning_rate": 2e-5, "seed": 3}
    assert registry.parameters(trial) == {f"recipe.{name}": value for name, value in (RECIPE | changed).items()}
    assert registry.metrics.latest(trial) == {"accuracy": 0.9, "baseline.accuracy": 0.5}
    assert list(registry.runs("params.learning_rate < 5e-5 and metrics.accuracy > 0.8").id) == [trial]
    assert list(registry.trials.frame(sweep)["params.learning_rate"]) == [2e-5]


def test_a_trial_is_one_row_from_its_start_to_its_end(registry: Registry) -> None:
    sweep = new_sweep(registry)
    started = registry.trials.start(sweep, key="k", number=0, parameters={"learning_rate": 1e-4}, seed=0)
    assert started == trial_id(sweep, "k")
    assert registry.run(started).state == "RUNNING"
    registry.metrics.record(started, [MetricEvent(step, "validation", {"accuracy": step / 10}) for step in (7, 9)])
    assert registry.trials.record(sweep, [scored("k", 0.7)]) == [started]
    assert registry.run(started).state == "COMPLETED"
    assert registry.metrics.latest(started)["accuracy"] == 0.7, "the best step's score, not the last one's"
    assert len(registry.trials.frame(sweep)) == 1


TRIAL_STATES = (RunState.RUNNING, RunState.COMPLETED, RunState.FAILED, RunState.PRUNED)


def put_trial(registry: Registry, sweep: str, state: RunState) -> str:
    """Record that the sweep's trial is in this state, and return its id."""
    if state is RunState.RUNNING:
        return registry.trials.start(sweep, key="k", number=0, parameters={"learning_rate": 1e-4}, seed=0)
    (trial,) = registry.trials.record(sweep, [trial_result("k", state=state)])
    return trial


@pytest.mark.parametrize(("old", "new"), list(product(TRIAL_STATES, TRIAL_STATES)))
def test_a_trial_changes_its_state_as_that_allows(registry: Registry, old: RunState, new: RunState) -> None:
    sweep = new_sweep(registry)
    trial = put_trial(registry, sweep, old)
    assert registry.run(trial).state is old
    assert put_trial(registry, sweep, new) == trial
    assert registry.run(trial).state is (new if old.may_become(new) else old)


def test_a_trial_that_its_sweep_stopped_may_run_again_or_turn_out_to_have_completed(registry: Registry) -> None:
    for new in (RunState.FAILED, RunState.PRUNED, RunState.RUNNING, RunState.COMPLETED):
        sweep = new_sweep(registry)
        trial = put_trial(registry, sweep, RunState.RUNNING)
        registry.lifecycle.finish(sweep, RunState.STOPPED)
        assert registry.run(trial).state is RunState.STOPPED
        put_trial(registry, sweep, new)
        assert registry.run(trial).state is (new if RunState.STOPPED.may_become(new) else RunState.STOPPED)


def test_a_trial_that_runs_again_after_its_end_changes_nothing(registry: Registry) -> None:
    sweep = new_sweep(registry)
    registry.trials.record(sweep, [scored("k", 0.9)])
    before = everything(registry)
    registry.trials.start(sweep, key="k", number=0, parameters={"learning_rate": 1e-4}, seed=0)
    registry.trials.record(sweep, [scored("k", 0.9)])
    assert everything(registry) == before


def test_a_completed_trial_gets_its_model_when_the_sweep_ends(registry: Registry) -> None:
    sweep = new_sweep(registry)
    (trial,) = registry.trials.record(sweep, [scored("k", 0.9, predictions_path="predictions")])
    before = registry.run(trial)
    registry.trials.record(sweep, [scored("k", 0.9, model=model_result("a"))])
    after = registry.run(trial)
    assert (before.model_folder, after.model_folder) == (None, "storage/a")
    assert (after.finished_at, after.predictions_path) == (before.finished_at, "predictions")
    registry.trials.record(sweep, [scored("k", 0.9)])
    assert registry.run(trial) == after


def test_a_failed_trial_that_starts_again_has_not_finished(registry: Registry) -> None:
    sweep = new_sweep(registry)
    (trial,) = registry.trials.record(sweep, [trial_result("k", state=RunState.FAILED)])
    assert registry.run(trial).finished_at is not None
    registry.trials.start(sweep, key="k", number=0, parameters={"learning_rate": 1e-4}, seed=0)
    assert (registry.run(trial).state, registry.run(trial).finished_at) == ("RUNNING", None)


def test_runs_can_be_listed_without_trials(registry: Registry) -> None:
    sweep = new_sweep(registry)
    registry.trials.record(sweep, [scored("a", 0.9), scored("b", 0.8)])
    assert len(registry.runs()) == 3
    assert list(registry.runs(trials=False).id) == [sweep]


def test_the_leaderboard_takes_seeds_together_and_ranks_by_their_mean(registry: Registry) -> None:
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
    board = registry.leaderboard("sst2")
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


def test_each_score_of_a_task_has_a_first_place(registry: Registry) -> None:
    for metric in ("accuracy", "f1"):
        sweep = new_sweep(registry)
        registry.trials.set_metric(sweep, "sst2", metric)
        registry.trials.record(sweep, [trial_result("k", metrics={metric: 0.9})])
    board = registry.leaderboard("sst2")
    assert list(zip(board["metric"], board["rank"], strict=True)) == [("accuracy", 1), ("f1", 1)]


def test_a_seed_tried_in_two_sweeps_counts_once(registry: Registry) -> None:
    for score in (0.7, 0.9):
        registry.trials.record(new_sweep(registry), [scored("k", score, seed=4)])
    (line,) = registry.leaderboard().to_dict("records")
    assert (line["n"], line["mean"]) == (1, 0.9)


def test_trials_on_other_data_are_no_group(registry: Registry) -> None:
    for size in (100, 200):
        registry.trials.record(new_sweep(registry, max_train_examples=size), [scored("k", size / 1000)])
    assert list(registry.leaderboard()["mean"]) == [0.2, 0.1]


def test_an_empty_leaderboard_has_its_columns(registry: Registry) -> None:
    board = registry.leaderboard("sst2")
    assert board.empty
    assert {"task", "mean", "sd", "n", "baseline", "model"} <= set(board.columns)
