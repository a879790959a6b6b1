"""Trials, recorded as they end. Alone: pytest tests/orchestrator/registry/test_trials.py"""

from itertools import product

import pytest

from orchestrator.base.results import MetricEvent, TrialChange, TrialEvents, TrialStart
from orchestrator.base.run_states import RunState
from orchestrator.registry import Registry
from orchestrator.registry.parameters import trial_id
from tests.orchestrator.registry import group_samples as samples
from tests.orchestrator.registry.group_samples import RECIPE, scored
from tests.orchestrator.registry.samples import everything, model_result, trial_result


def new_sweep(registry: Registry) -> str:
    sweep = samples.new_sweep(registry)
    registry.lifecycle.start_attempt(sweep)
    return sweep


def test_a_trial_has_the_sweeps_recipe_with_its_own_values(registry: Registry) -> None:
    sweep = new_sweep(registry)
    (trial,) = registry.trials.record(sweep, [scored("k", 0.9, seed=3, number=4, parameters={"learning_rate": 2e-5})])
    run = registry.run(trial)
    assert (run.parent_id, run.kind, run.number, run.seed, run.task) == (sweep, "trial", 4, 3, "sst2")
    changed = {"learning_rate": 2e-5, "seed": 3}
    assert registry.parameters(trial) == {f"recipe.{name}": value for name, value in (RECIPE | changed).items()}
    assert registry.metrics.latest(trial) == {"accuracy": 0.9, "baseline.accuracy": 0.5}
    assert list(registry.runs("params.learning_rate < 5e-5 and metrics.accuracy > 0.8").id) == [trial]
    assert registry.trials.table(sweep).values("params.learning_rate") == [2e-5]


def test_a_trial_is_one_row_from_its_start_to_its_end(registry: Registry) -> None:
    sweep = new_sweep(registry)
    started = registry.trials.record(sweep, [TrialStart("k", 0, {"learning_rate": 1e-4}, 0)])[0]
    assert started == trial_id(sweep, "k")
    assert registry.run(started).state == "RUNNING"
    registry.metrics.record(started, [MetricEvent(step, "validation", {"accuracy": step / 10}) for step in (7, 9)])
    assert registry.trials.record(sweep, [scored("k", 0.7)]) == [started]
    assert registry.run(started).state == "COMPLETED"
    assert registry.metrics.latest(started)["accuracy"] == 0.7, "the best step's score, not the last one's"
    assert len(registry.trials.table(sweep).records) == 1
    assert (len(registry.runs()), list(registry.runs(trials=False).id)) == (2, [sweep])


def test_what_becomes_of_many_trials_at_a_time_is_what_becomes_of_each(registry: Registry) -> None:
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
            assert registry.metrics.history(trial, "validation.accuracy").values("step") == [7, 9]


def test_an_end_that_does_not_count_changes_no_score(registry: Registry) -> None:
    sweep = new_sweep(registry)
    (trial,) = registry.trials.record(sweep, [scored("k", 0.9)])
    registry.trials.record(sweep, [scored("k", 0.2, state=RunState.PRUNED)])
    assert registry.metrics.latest(trial)["accuracy"] == 0.9


@pytest.mark.parametrize("first", [RunState.FAILED, RunState.COMPLETED])
def test_two_results_of_a_trial_in_one_call_are_what_they_are_in_two(registry: Registry, first: RunState) -> None:
    results = [
        trial_result("k", state=first, metrics={"accuracy": 0.2}, best_step=9, error="first"),
        trial_result("k", metrics={"accuracy": 0.7}, best_step=7),
    ]
    together, one_by_one = new_sweep(registry), new_sweep(registry)
    registry.trials.record(together, results)
    for result in results:
        registry.trials.record(one_by_one, [result])
    runs = [registry.run(trial_id(sweep, "k")) for sweep in (together, one_by_one)]
    expected = 0.7 if first is RunState.FAILED else 0.2
    assert [registry.metrics.latest(run.id)["accuracy"] for run in runs] == [expected] * 2
    assert len({(run.state, run.error) for run in runs}) == 1
    assert len({len(registry.metrics.history(run.id).records) for run in runs}) == 1


TRIAL_STATES = (RunState.RUNNING, RunState.COMPLETED, RunState.FAILED, RunState.PRUNED)


def put_trial(registry: Registry, sweep: str, state: RunState) -> str:
    """Record that the sweep's trial is in this state, and return its id."""
    if state is RunState.RUNNING:
        return registry.trials.record(sweep, [TrialStart("k", 0, {"learning_rate": 1e-4}, 0)])[0]
    if state is RunState.STOPPED:
        trial = put_trial(registry, sweep, RunState.RUNNING)
        registry.lifecycle.finish(sweep, RunState.STOPPED)
        return trial
    (trial,) = registry.trials.record(sweep, [trial_result("k", state=state)])
    return trial


@pytest.mark.parametrize(("old", "new"), list(product((*TRIAL_STATES, RunState.STOPPED), TRIAL_STATES)))
def test_a_trial_changes_its_state_as_that_allows(registry: Registry, old: RunState, new: RunState) -> None:
    sweep = new_sweep(registry)
    trial = put_trial(registry, sweep, old)
    assert registry.run(trial).state is old
    assert put_trial(registry, sweep, new) == trial
    run = registry.run(trial)
    assert run.state is (new if old.may_become(new) else old)
    assert (run.finished_at is None) == (run.state is RunState.RUNNING)


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


def test_a_trial_that_was_dropped_is_measured_anew(registry: Registry) -> None:
    sweep = new_sweep(registry)
    changes = [TrialStart("k", 0, {}, 0), TrialEvents("k", [MetricEvent(1, "train", {"loss": 0.5})])]
    for _ in range(2):
        (trial, _) = registry.trials.record(sweep, changes)
        assert registry.metrics.history(trial, "train.loss").values("value") == [0.5]
        registry.trials.drop(sweep)
        assert registry.metrics.history(trial).records == []
