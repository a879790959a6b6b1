"""Trials: runs with a parent, recorded as they end, ranked with their seeds taken together.

pytest tests/orchestrator/registry/test_trials.py
"""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.registry import Registry, leaderboard, trials
from orchestrator.registry.trials import trial_id
from orchestrator.results import MetricEvent, TrialChange, TrialEvents, TrialResult, TrialStart
from orchestrator.run_states import RunState
from orchestrator.specs import RecipeSpec
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
    started = registry.trials.record(sweep, [TrialStart("k", 0, {"learning_rate": 1e-4}, 0)])[0]
    assert started == trial_id(sweep, "k")
    assert registry.run(started).state == "RUNNING"
    registry.metrics.record(started, [MetricEvent(step, "validation", {"accuracy": step / 10}) for step in (7, 9)])
    assert registry.trials.record(sweep, [scored("k", 0.7)]) == [started]
    assert registry.run(started).state == "COMPLETED"
    assert registry.metrics.latest(started)["accuracy"] == 0.7, "the best step's score, not the last one's"
    assert len(registry.trials.frame(sweep)) == 1


def test_what_becomes_of_many_trials_at_a_time_is_what_becomes_of_each(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "_CHANGES_PER_STATEMENT", 4)
    changes: list[TrialChange] = []
    for number in range(5):
        rates = {"learning_rate": number * 1e-5}
        start = TrialStart(f"k{number}", number, rates, 0)
        events = [MetricEvent(step, "validation", {"accuracy": step / 10}) for step in (7, 9)]
        changes += [start, TrialEvents(start.key, events), start, TrialEvents(start.key, events)]
        if number != 3:
            changes.append(scored(start.key, 0.7, number=number, parameters=rates))
    together, one_by_one = new_sweep(registry), new_sweep(registry)
    registry.trials.record(together, changes)
    for change in changes:
        registry.trials.record(one_by_one, [change])
    for sweep in (together, one_by_one):
        assert list(registry.trials.states(sweep).values()).count(RunState.RUNNING) == 1
        for number in range(5):
            trial = trial_id(sweep, f"k{number}")
            assert registry.run(trial).state == ("RUNNING" if number == 3 else "COMPLETED")
            assert registry.parameters(trial) == registry.parameters(trial_id(one_by_one, f"k{number}"))
            assert registry.parameters(trial)["recipe.learning_rate"] == number * 1e-5
            assert registry.metrics.latest(trial)["accuracy"] == (0.9 if number == 3 else 0.7)
            assert list(registry.metrics.history(trial, "validation.accuracy")["step"]) == [7, 9]


def test_an_end_that_does_not_count_changes_no_score(registry: Registry) -> None:
    sweep = new_sweep(registry)
    (trial,) = registry.trials.record(sweep, [scored("k", 0.9)])
    registry.trials.record(sweep, [scored("k", 0.2, state=RunState.PRUNED)])
    assert registry.metrics.latest(trial)["accuracy"] == 0.9


TRIAL_STATES = (RunState.RUNNING, RunState.COMPLETED, RunState.FAILED, RunState.PRUNED)


def put_trial(registry: Registry, sweep: str, state: RunState) -> str:
    """Record that the sweep's trial is in this state, and return its id."""
    if state is RunState.RUNNING:
        return registry.trials.record(sweep, [TrialStart("k", 0, {"learning_rate": 1e-4}, 0)])[0]
    (trial,) = registry.trials.record(sweep, [trial_result("k", state=state)])
    return trial


@pytest.mark.parametrize(("old", "new"), list(product(TRIAL_STATES, TRIAL_STATES)))
def test_a_trial_changes_its_state_as_that_allows(registry: Registry, old: RunState, new: RunState) -> None:
    sweep = new_sweep(registry)
    trial = put_trial(registry, sweep, old)
    assert registry.run(trial).state is old
    assert put_trial(registry, sweep, new) == trial
    assert registry.run(trial).state is (new if old.may_become(new) else old)


def test_a_trial_that_its_sweep_stopped_may_run_again_or_turn_out_to_have_ended(registry: Registry) -> None:
    for new in (RunState.FAILED, RunState.PRUNED, RunState.RUNNING, RunState.COMPLETED):
        sweep = new_sweep(registry)
        trial = put_trial(registry, sweep, RunState.RUNNING)
        registry.lifecycle.finish(sweep, RunState.STOPPED)
        assert registry.run(trial).state is RunState.STOPPED
        put_trial(registry, sweep, new)
        assert registry.run(trial).state is (new if RunState.STOPPED.may_become(new) else RunState.STOPPED)


def test_a_trial_that_its_scheduler_ended_while_the_registry_was_away_is_pruned_with_its_scores(
    registry: Registry,
) -> None:
    sweep = new_sweep(registry)
    trial = put_trial(registry, sweep, RunState.RUNNING)
    registry.lifecycle.finish(sweep, RunState.STOPPED)
    registry.trials.record(sweep, [scored("k", 0.4, state=RunState.PRUNED)])  # as the resumed sweep's journal has it
    assert (registry.run(trial).state, registry.run(trial).error) == (RunState.PRUNED, None)
    assert registry.metrics.latest(trial)["accuracy"] == 0.4


def test_a_trial_that_runs_again_after_its_end_changes_nothing(registry: Registry) -> None:
    sweep = new_sweep(registry)
    registry.trials.record(sweep, [scored("k", 0.9)])
    before = everything(registry)
    registry.trials.record(sweep, [TrialStart("k", 0, {"learning_rate": 1e-4}, 0)])
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
    registry.trials.record(sweep, [TrialStart("k", 0, {"learning_rate": 1e-4}, 0)])
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


def test_trials_of_before_a_field_was_added_are_in_the_group_of_those_that_leave_it_alone(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = new_sweep(registry)
    registry.trials.record(old, [scored("old", 0.6)])
    added = {"role": "identity", "unit": None, "before": 0.01}
    monkeypatch.setattr(RecipeSpec.model_fields["weight_decay"], "json_schema_extra", added)
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
    monkeypatch.setattr(leaderboard, "_IDS_PER_STATEMENT", 2)
    sweep = new_sweep(registry)
    rates = [1e-5, 2e-5, 3e-5, 4e-5, 5e-5]
    registry.trials.record(sweep, [scored(f"{rate}", rate * 1e4, parameters={"learning_rate": rate}) for rate in rates])
    board = registry.leaderboard("sst2")
    assert list(board["recipe"]) == [f"learning_rate={rate}" for rate in reversed(rates)]


VALUES = st.one_of(st.none(), st.booleans(), st.sampled_from([0, 1, 1.0, 16, 16.0, "a", "", "1"]), st.just([1, 2.0]))


@given(st.lists(st.dictionaries(st.sampled_from("abc"), VALUES), max_size=6))
def test_varying_paths_are_those_in_which_any_two_recipes_differ(recipes: list[dict[str, Any]]) -> None:
    paths = {path for recipe in recipes for path in recipe}
    by_pairs = {path for path in paths if any(a.get(path) != b.get(path) for a, b in product(recipes, recipes))}
    assert leaderboard.varying_paths(recipes) == by_pairs


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
        leaderboard.varying_paths(recipes)
        counts.append(Counted.num_comparisons)
    assert counts[1] <= 2.5 * counts[0]


def test_an_empty_leaderboard_has_its_columns(registry: Registry) -> None:
    board = registry.leaderboard("sst2")
    assert board.empty
    assert {"task", "mean", "sd", "n", "baseline", "model"} <= set(board.columns)
