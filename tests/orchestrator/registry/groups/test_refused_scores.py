"""Test scores of models that were chosen on the test data: refused of trials, sweeps and evaluations alike.

pytest tests/orchestrator/registry/groups/test_refused_scores.py
"""

from orchestrator.registry import Registry
from orchestrator.results import MetricEvent
from orchestrator.run_states import RunState
from tests.orchestrator.registry.samples import model_result, new_run, trial_result


def sweep_on(registry: Registry, **data: str) -> str:
    """A sweep of a task with published numbers, on data of these digests."""
    sweep = new_run(registry, kind="sweep", task="sst2", metric="accuracy")
    registry.trials.set_data(sweep, data)
    return sweep


def evaluation_on(registry: Registry, test: str, **data: str) -> str:
    """An evaluation of a registered model on test data."""
    run_id = new_run(registry, kind="evaluate", spec={"model": "m@1", "split": "test"}, task="sst2", metric="accuracy")
    registry.trials.set_data(run_id, {"test": test, "model": "d" * 16} | data)
    registry.metrics.record(run_id, [MetricEvent(0, "test", {"accuracy": 0.9})], final=True)
    return run_id


def test_a_sweep_and_its_trial_are_refused_and_who_has_no_test_score_is_not(registry: Registry) -> None:
    sweep = sweep_on(registry, validation="v", test="v")
    results = [trial_result(f"{score}", metrics={"accuracy": score}) for score in (0.8, 0.7)]
    best, _ = registry.trials.record(sweep, results)
    for run_id in (sweep, best):
        registry.metrics.record(run_id, [MetricEvent(7, "test", {"accuracy": 0.77})], final=True)
    everyone = list(registry.runs()["id"])
    assert registry.test_refusals(everyone) == dict.fromkeys((sweep, best), "the model was chosen on the test data")


def test_a_sweep_that_chose_on_the_beginning_of_its_test_file_is_refused(registry: Registry) -> None:
    """And so is its trial; one of before the whole was recorded is not known to be."""
    whole = {"validation": "first 50", "validation_whole": "t", "validation_file": "f", "test": "t", "test_file": "f"}
    known, of_before = sweep_on(registry, **whole), sweep_on(registry, validation="first 50", test="t")
    (trial,) = registry.trials.record(known, [trial_result("k", metrics={"accuracy": 0.8})])
    for run_id in (known, trial, of_before):
        registry.metrics.record(run_id, [MetricEvent(7, "test", {"accuracy": 0.77})], final=True)
    reason = "the model was chosen on at least some of the test data"
    assert registry.test_refusals([known, trial, of_before]) == dict.fromkeys((known, trial), reason)


def test_a_group_of_evaluations_is_refused_where_one_of_them_is(registry: Registry) -> None:
    """An evaluation by an earlier version recorded no digest of the whole: of itself nothing is known."""
    sweep = sweep_on(registry, train="first 100", train_whole="w", validation="v")
    registry.models.register("m", model_result("d" * 64), sweep)
    now, before = (evaluation_on(registry, "first 50", **whole) for whole in ({"test_whole": "w"}, {}))
    for run in (now, before):
        registry.lifecycle.finish(run, RunState.COMPLETED)
    reason = "the model was trained on at least some of the test data"
    assert registry.test_refusals([now, before]) == {now: reason}
    (row,) = registry.leaderboard_table().records
    assert (row["mean"], row["completed"], row["rank"]) == (None, 2, None)
    assert row["notes"] == f"score refused: {reason}"
