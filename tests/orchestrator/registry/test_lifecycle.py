"""States, attempts, fencing, heartbeats. Alone: pytest tests/orchestrator/registry/test_lifecycle.py"""

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from sqlalchemy import update

from orchestrator.base.errors import InputError, NotFoundError
from orchestrator.base.results import TrialStart
from orchestrator.base.run_states import RunState
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.registry.tables import ALL_RUNS, ATTEMPTS
from tests.orchestrator.registry.samples import everything, new_run, trial_result

CLOCK = "orchestrator.registry.lifecycle.utc_now"


def test_a_new_run_is_pending_and_has_its_spec_as_parameters(registry: Registry) -> None:
    spec = {"kind": "pretrain", "optimizer": {"learning_rate": 1e-4}, "phases": [{"share": 1.0}], "a": None}
    run = registry.run(new_run(registry, spec=spec, seed=7, tags=("first", "second")))
    assert (run.state, run.attempt, run.seed) == ("PENDING", 0, 7)
    assert run.spec == spec
    assert registry.parameters(run.id) == {"optimizer.learning_rate": 1e-4, "phases.0.share": 1.0, "a": None}
    assert registry.annotations.tags(run.id) == ["first", "second"]
    assert run.created_at.utcoffset() is not None


@pytest.mark.parametrize("state", [RunState.COMPLETED, RunState.FAILED, RunState.STOPPED])
def test_an_attempt_runs_and_ends_the_run(registry: Registry, state: RunState) -> None:
    run_id = new_run(registry)
    attempt = registry.lifecycle.start_attempt(run_id, host="node", pid=12)
    assert registry.run(run_id).state == "RUNNING"
    assert registry.lifecycle.finish(run_id, state, error="because", attempt=attempt)
    run, (only,) = registry.run(run_id), registry.attempts(run_id)
    assert (run.state, run.error) == (state, "because")
    assert (only.state, only.error, only.host, only.pid) == (state, "because", "node", 12)
    assert run.started_at is not None
    assert run.finished_at is not None
    assert run.started_at <= run.finished_at


def test_seconds_of_all_attempts_count_whether_their_clock_is_their_own_or_the_databases(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = new_run(registry)
    registry.lifecycle.start_attempt(run_id)
    started_at = registry.attempts(run_id)[0].started_at
    with monkeypatch.context() as patched:
        patched.setattr(CLOCK, lambda: started_at + timedelta(seconds=40))
        registry.lifecycle.heartbeat(run_id)
    registry.lifecycle.start_attempt(run_id)  # the first one died, 40 s after its start
    for _ in range(2):  # a report that is repeated
        registry.lifecycle.finish(run_id, RunState.FAILED, seconds=5.0)
    registry.lifecycle.finish(run_id, RunState.COMPLETED, seconds=6.0)  # of an attempt that has ended
    assert registry.run(run_id).seconds == pytest.approx(45.0)


def test_an_attempt_that_died_silently_ended_at_its_last_heartbeat(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = new_run(registry)
    registry.lifecycle.start_attempt(run_id)
    last = registry.run(run_id).heartbeat_at
    assert last is not None
    monkeypatch.setattr(CLOCK, lambda: last + timedelta(hours=1))
    registry.lifecycle.start_attempt(run_id)
    assert registry.attempts(run_id)[0].finished_at == last


def test_ending_twice_changes_nothing(registry: Registry) -> None:
    run_id = new_run(registry)
    attempt = registry.lifecycle.start_attempt(run_id)
    registry.lifecycle.finish(run_id, RunState.COMPLETED, attempt=attempt)
    before = everything(registry)
    assert registry.lifecycle.finish(run_id, RunState.COMPLETED, attempt=attempt)
    assert everything(registry) == before


def test_an_older_attempt_ends_itself_only(registry: Registry) -> None:
    run_id = new_run(registry)
    old, new = registry.lifecycle.start_attempt(run_id), registry.lifecycle.start_attempt(run_id)
    assert not registry.lifecycle.finish(run_id, RunState.FAILED, error="woke up late", attempt=old)
    assert registry.run(run_id).state == "RUNNING"
    assert registry.lifecycle.finish(run_id, RunState.COMPLETED, attempt=new)
    assert not registry.lifecycle.finish(run_id, RunState.FAILED, attempt=old)
    assert registry.run(run_id).state == "COMPLETED"
    assert [attempt.state for attempt in registry.attempts(run_id)] == ["LOST", "COMPLETED"]


RUN_STATES = [state for state in RunState if not state.is_derived and state is not RunState.PRUNED]
RUN_ENDS = [state for state in RUN_STATES if state.is_final]


def run_in(registry: Registry, state: RunState) -> str:
    """Id of a new run that is in this state."""
    run_id = new_run(registry)
    if state != RunState.PENDING:
        registry.lifecycle.start_attempt(run_id)
    if state.is_final:
        registry.lifecycle.finish(run_id, state, error="the first end")
    assert registry.run(run_id).state is state
    return run_id


@pytest.mark.parametrize(("old", "new"), list(product(RUN_STATES, RUN_ENDS)))
@pytest.mark.heavy
def test_a_run_ends_as_its_state_allows(registry: Registry, old: RunState, new: RunState) -> None:
    run_id = run_in(registry, old)
    before = everything(registry)
    assert registry.lifecycle.finish(run_id, new, error="the second end") == (old.may_become(new) or old is new)
    assert registry.run(run_id).state is (new if old.may_become(new) else old)
    assert (everything(registry) == before) != old.may_become(new)


@pytest.mark.parametrize("old", RUN_STATES)
def test_a_run_starts_again_as_its_state_allows(registry: Registry, old: RunState) -> None:
    run_id = run_in(registry, old)
    if old.may_become(RunState.RUNNING):
        registry.lifecycle.start_attempt(run_id)
        run = registry.run(run_id)
        assert (run.state, run.error, run.finished_at) == (RunState.RUNNING, None, None)
    else:
        with pytest.raises(InputError, match=f"has ended as {old}"):
            registry.lifecycle.start_attempt(run_id)
        assert registry.run(run_id).state is old


def test_an_attempt_announced_twice_is_one_attempt(registry: Registry) -> None:
    run_id = new_run(registry)
    assert [registry.lifecycle.start_attempt(run_id, number=1) for _ in range(2)] == [1, 1]
    assert len(registry.attempts(run_id)) == 1


def test_a_silent_run_reads_as_lost_until_its_next_heartbeat(location: str) -> None:
    with Registry(location) as patient, Registry(location, lost_after_s=-1.0) as impatient:
        run_id = new_run(patient)
        attempt = patient.lifecycle.start_attempt(run_id)
        assert (patient.run(run_id).state, impatient.run(run_id).state) == ("RUNNING", "LOST")
        assert list(impatient.runs("state = 'LOST'").id) == [run_id]
        assert patient.runs("state = 'LOST'").empty
        assert patient.lifecycle.heartbeat(run_id, attempt)
        assert patient.lifecycle.finish(run_id, RunState.COMPLETED, attempt=attempt)
        assert impatient.run(run_id).state == "COMPLETED"


def test_a_heartbeat_keeps_the_trials_alive_too(registry: Registry) -> None:
    sweep = new_run(registry, kind="sweep")
    registry.lifecycle.start_attempt(sweep)
    trial = registry.trials.record(sweep, [TrialStart("k", 0, {}, 0)])[0]
    registry.lifecycle.heartbeat(sweep)
    assert registry.run(trial).heartbeat_at == registry.run(sweep).heartbeat_at


def test_trials_that_are_open_when_the_sweep_ends_are_stopped(registry: Registry) -> None:
    sweep = new_run(registry, kind="sweep")
    registry.lifecycle.start_attempt(sweep)
    trial = registry.trials.record(sweep, [TrialStart("k", 0, {}, 0)])[0]
    registry.lifecycle.finish(sweep, RunState.FAILED, error="x")
    assert registry.run(trial).state == "STOPPED"
    registry.lifecycle.start_attempt(sweep)
    assert registry.trials.record(sweep, [TrialStart("k", 0, {}, 0)])[0] == trial
    assert registry.run(trial).state == "RUNNING"


def test_what_is_not_there_cannot_start_or_end(registry: Registry) -> None:
    for act in (registry.lifecycle.start_attempt, lambda run_id: registry.lifecycle.finish(run_id, RunState.FAILED)):
        with pytest.raises(NotFoundError, match="No run nothing"):
            act("nothing")
    with pytest.raises(NotFoundError, match="No run nothing"):
        registry.trials.record("nothing", [TrialStart("k", 0, {}, 0)])


def test_a_lost_run_that_is_stopped_has_taken_time_up_to_its_last_heartbeat(registry: Registry) -> None:
    hours_ago = datetime.now(UTC) - timedelta(hours=3)
    seconds = []
    for beats in (True, False):
        run_id = new_run(registry)
        registry.lifecycle.start_attempt(run_id)
        times = {"started_at": hours_ago, **({} if beats else {"heartbeat_at": hours_ago + timedelta(seconds=60)})}
        with registry._database.connection(writing=True) as connection:
            connection.execute(update(ATTEMPTS).where(ATTEMPTS.c.run_id == run_id).values(started_at=hours_ago))
            connection.execute(update(ALL_RUNS).where(ALL_RUNS.c.id == run_id).values(**times))
        registry.lifecycle.finish(run_id, RunState.STOPPED)
        seconds.append(registry.run(run_id).seconds)
    assert seconds == [pytest.approx(3 * 3600, abs=60), pytest.approx(60)]


def test_a_sweep_that_is_given_more_points_goes_on_under_its_id(registry: Registry) -> None:
    recorder = Recorder(registry)
    spec = {"kind": "sweep", "name": "search", "trials": 2, "recipe": {"epochs": 1.0}}
    run = recorder.start(spec, "2" * 64)
    (trial,) = recorder.registry.trials.record(run.id, [trial_result()])
    recorder.complete(run.id, RunOutcome())
    registry.lifecycle.replace_spec(run.id, {**spec, "trials": 4}, "4" * 64, after=1)
    resumed = recorder.resume(run.id)
    assert (resumed.state, resumed.attempt, resumed.spec["trials"]) == (RunState.RUNNING, 2, 4)
    assert [registry.run(one).fingerprint for one in (run.id, trial)] == ["4" * 64] * 2
    assert registry.parameters(run.id)["trials"] == 4
    assert resumed.group_key == recorder.start({**spec, "trials": 4}, "4" * 64).group_key
    assert list(registry.runs("params.trials = 4", trials=False)["id"]).count(run.id) == 1
    with pytest.raises(InputError, match="resumed by another process"):
        registry.lifecycle.replace_spec(run.id, {**spec, "trials": 9}, "9" * 64, after=1)
    assert registry.run(run.id).spec["trials"] == 4
