"""Flags reach trials, stages and their trials. Alone: pytest tests/orchestrator/registry/test_run_flags.py"""

from orchestrator.registry import Registry
from orchestrator.registry.run_flags import Flag
from tests.orchestrator.registry.samples import new_run, trial_result

SHOWN = {"task": "sst2", "metric": "accuracy"}


def pipeline(registry: Registry, run_id: str) -> str:
    return new_run(registry, kind="pipeline", run_id=run_id)


def stage(registry: Registry, run_id: str, *pipelines: str) -> str:
    return new_run(registry, kind="sweep", run_id=run_id, tags=[f"pipeline:{one}" for one in pipelines], **SHOWN)


def trial_of(registry: Registry, sweep: str) -> str:
    (trial,) = registry.trials.record(sweep, [trial_result(metrics={"accuracy": 0.9})])
    return trial


def listed(registry: Registry) -> set[str]:
    """Runs and trials that lists show; counted the same, and no archived one among them."""
    found = set(registry.run_table(archived=False).values("id"))
    assert registry.num_runs(archived=False) == len(found)
    assert found == set(registry.run_table().values("id")) - registry.annotations.flagged("archived")
    return found


def test_a_pipeline_is_archived_with_its_stages_and_their_trials_and_brings_them_back(registry: Registry) -> None:
    whole, other = pipeline(registry, "p"), new_run(registry)
    words, tuning = stage(registry, "s1", whole), stage(registry, "s2", whole)
    trial = trial_of(registry, tuning)
    registry.annotations.set_flag(whole, "archived")
    assert listed(registry) == {other}
    assert registry.leaderboard_table().records == []
    assert registry.num_ranked_archived() == 1
    later = stage(registry, "s3", whole)  # a pipeline that was archived while it was at work
    assert listed(registry) == {other}
    registry.annotations.clear_flag(whole, "archived")
    assert listed(registry) == {whole, words, tuning, trial, later, other}
    assert [row["run"] for row in registry.leaderboard_table().records] == [trial]


def test_a_stage_that_was_archived_by_itself_stays_archived(registry: Registry) -> None:
    whole = pipeline(registry, "p")
    words, tuning = stage(registry, "s1", whole), stage(registry, "s2", whole)
    for run_id in (words, whole):
        registry.annotations.set_flag(run_id, "archived")
    registry.annotations.clear_flag(whole, "archived")
    assert listed(registry) == {whole, tuning}


def test_a_stage_that_another_pipeline_uses_is_put_away_with_the_last_of_them(registry: Registry) -> None:
    first, second = pipeline(registry, "p1"), pipeline(registry, "p2")
    shared, own = stage(registry, "s1", first, second), stage(registry, "s2", first)
    registry.annotations.set_flag(first, "archived")
    assert listed(registry) == {second, shared}
    registry.annotations.set_flag(second, "archived")
    assert listed(registry) == set()
    registry.annotations.clear_flag(first, "archived")
    assert listed(registry) == {first, own, shared}


def test_a_stage_is_pinned_with_the_first_of_its_pipelines(registry: Registry) -> None:
    first, second = pipeline(registry, "p1"), pipeline(registry, "p2")
    shared, own = stage(registry, "s1", first, second), stage(registry, "s2", second)
    trial = trial_of(registry, shared)
    registry.annotations.set_flag(first, "pinned")
    assert registry.annotations.flagged("pinned") == {first, shared, trial}
    registry.annotations.set_flag(second, "pinned")
    assert registry.annotations.flagged("pinned") == {first, second, shared, trial, own}


def test_who_bears_a_flag_is_told_the_run_itself_first(registry: Registry) -> None:
    first, second = pipeline(registry, "p1"), pipeline(registry, "p2")
    shared = stage(registry, "s1", first, second)
    trial = trial_of(registry, shared)

    def bearers(run_id: str, flag: Flag = "archived") -> list[str]:
        return registry.annotations.flag_bearers(run_id, flag)

    assert bearers(trial) == bearers("nobody") == []
    registry.annotations.set_flag(first, "archived")
    assert bearers(shared) == [], "the second pipeline uses it"
    registry.annotations.set_flag(second, "archived")
    assert bearers(shared) == bearers(trial) == [first, second]
    registry.annotations.set_flag(shared, "archived")
    assert bearers(shared) == [shared, first, second]
    assert bearers(trial) == [shared, first, second]
    assert bearers(trial, "pinned") == []
