"""Costs of attempts, and the time of trials. Alone: pytest tests/orchestrator/registry/test_run_costs.py"""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from orchestrator.base.results import TrialStart
from orchestrator.base.run_states import RunState
from orchestrator.registry import Registry
from orchestrator.registry.records import AttemptCostRecord
from orchestrator.registry.tables import ALL_RUNS, ATTEMPTS
from tests.orchestrator.registry.samples import new_run, trial_result


def test_the_newest_word_on_an_attempt_stands(registry: Registry) -> None:
    run_id, other = new_run(registry), new_run(registry)
    for run in (run_id, other):
        registry.lifecycle.start_attempt(run)
    first = AttemptCostRecord(run_id, 1, 10.0, 8.0, 10.0, "H200")
    registry.costs.record(first)
    registry.costs.record(replace(first, seconds=20.0))
    registry.lifecycle.start_attempt(run_id)
    second = AttemptCostRecord(run_id, 2, 5.0, 4.0, 0.0)
    registry.costs.record(second)
    assert registry.costs.of_runs([run_id, other]) == [replace(first, seconds=20.0), second]
    assert registry.costs.of_runs([]) == []


def test_costs_go_with_their_run(registry: Registry) -> None:
    run_id = new_run(registry)
    number = registry.lifecycle.start_attempt(run_id)
    registry.costs.record(AttemptCostRecord(run_id, number, 1.0, 1.0, 0.0))
    registry.lifecycle.finish(run_id, RunState.COMPLETED)
    registry.lifecycle.remove(run_id)
    assert registry.costs.of_runs([run_id]) == []


def test_trials_count_by_their_own_clock_and_those_that_run_until_now(registry: Registry) -> None:
    sweep = new_run(registry, kind="sweep")
    first = registry.lifecycle.start_attempt(sweep)
    assert registry.costs.trial_seconds(sweep, first) is None
    registry.trials.record(sweep, [TrialStart("k0", 0, {}, 0), TrialStart("k1", 1, {}, 1)])
    registry.trials.record(sweep, [trial_result("k0", seconds=0.001)])
    assert registry.costs.trial_seconds(sweep, first) == pytest.approx(0.0, abs=5.0)


def move(registry: Registry, hours: float) -> None:
    """Put all that was recorded so far this many hours into the past."""
    with registry._database.connection(writing=True) as connection:
        for table, keys in ((ALL_RUNS, ["id"]), (ATTEMPTS, ["run_id", "number"])):
            for row in connection.execute(select(table)).mappings().all():
                times = [name for name in ("started_at", "finished_at", "heartbeat_at") if row.get(name) is not None]
                earlier = {name: row[name] - timedelta(hours=hours) for name in times}
                its = [table.c[key] == row[key] for key in keys]
                connection.execute(update(table).where(*its).values(earlier or {keys[0]: row[keys[0]]}))


def test_trials_of_a_killed_driver_stopped_when_it_was_last_heard_of(registry: Registry) -> None:
    sweep = new_run(registry, kind="sweep")
    registry.lifecycle.start_attempt(sweep)
    trial, again = registry.trials.record(sweep, [TrialStart(key, n, {}, n) for n, key in enumerate(("k0", "k1"))])
    move(registry, 2)
    second = registry.lifecycle.start_attempt(sweep)
    stopped = registry.run(trial)
    assert (stopped.state, stopped.finished_at) == (RunState.STOPPED, stopped.heartbeat_at)
    registry.trials.record(sweep, [TrialStart("k1", 1, {}, 1)])
    assert registry.run(again).finished_at is None
    move(registry, 1)
    assert registry.costs.trial_seconds(sweep, second) == pytest.approx(3600, abs=60), "the one that began again"
    begun_at = registry.run(again).started_at
    registry.trials.record(sweep, [TrialStart("k1", 1, {}, 1)])
    assert registry.run(again).started_at == begun_at, "it only says again that it runs"


def test_a_trial_that_begins_again_is_timed_anew(registry: Registry) -> None:
    sweep = new_run(registry, kind="sweep")
    first = registry.lifecycle.start_attempt(sweep)
    start, failed = TrialStart("k0", 0, {}, 0), trial_result("k0", state=RunState.FAILED, seconds=5.0)
    for change in (start, failed):
        registry.trials.record(sweep, [change])
    move(registry, 2)
    registry.trials.record(sweep, [start])
    (trial,) = registry.trials.table(sweep).values("id")
    assert registry.run(str(trial)).seconds is None
    assert registry.costs.trial_seconds(sweep, first) == pytest.approx(0, abs=60)


def test_a_trial_without_a_start_counts_for_the_attempt_that_it_ended_in(registry: Registry) -> None:
    sweep = new_run(registry, kind="sweep")
    first = registry.lifecycle.start_attempt(sweep)
    registry.trials.record(sweep, [trial_result("k0", seconds=50.0)])
    assert registry.costs.trial_seconds(sweep, first) == 50.0
    registry.lifecycle.finish(sweep, RunState.STOPPED)
    move(registry, 1)
    assert registry.costs.trial_seconds(sweep, registry.lifecycle.start_attempt(sweep)) == 0.0
