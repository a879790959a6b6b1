"""Cost of a run before it starts, and its time by recorded runs like it.

Alone: .venv/bin/pytest tests/orchestrator/planning/test_run_cost.py
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.kinds import kind_of, resolved_inputs
from orchestrator.planning.plan import plan_rows
from orchestrator.planning.run_time import ExpectedTime, cost_fact, expected_time
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.registry.records import AttemptCostRecord
from orchestrator.results import MetricEvent, TrialStart
from orchestrator.run_states import RunState
from orchestrator.settings import Settings
from orchestrator.specs.loading import parse_spec, spec_values
from tests.orchestrator.registry.samples import trial_result
from tests.orchestrator.small_specs import PRETRAIN, STORE, SWEEP

SHORT = {**PRETRAIN, "model": {"size": "tiny"}, "steps": 100, "execution": {"device": "cpu"}}
TRIALS = {**SWEEP, "recipe": {"tokenizer": "words", "size": "tiny"}, "seeds": [0, 1, 2]}


@pytest.fixture
def recorder(settings: Settings) -> Iterator[Recorder]:
    """A recorder of runs in the registry that plans look into."""
    settings.home.mkdir()
    with Registry(settings.registry) as registry:
        yield Recorder(registry)


def record(recorder: Recorder, values: dict[str, Any], seconds: float, steps: int = 0) -> str:
    """A completed run of a spec."""
    spec = parse_spec(values)
    run_id = recorder.start(spec_values(spec), spec.fingerprint(), storage_path="runs/r").id
    if steps:
        recorder.record_events(run_id, [MetricEvent(steps, "train", {"loss": 1.0})])
    recorder.registry.costs.record(AttemptCostRecord(run_id, 1, seconds, seconds / 2, 0.0))
    recorder.registry.lifecycle.finish(run_id, RunState.COMPLETED, attempt=1, seconds=seconds)
    return run_id


def expected(settings: Settings, values: dict[str, Any]) -> ExpectedTime | None:
    spec = parse_spec(values)
    return expected_time(kind_of(spec), spec, resolved_inputs(spec, settings))


def cost(settings: Settings, values: dict[str, Any], time: ExpectedTime) -> str:
    spec = parse_spec(values)
    return cost_fact(kind_of(spec), spec, resolved_inputs(spec, settings), time)[1]


def test_a_spec_that_ran_before_costs_as_much_again(settings: Settings, recorder: Recorder) -> None:
    run_id = record(recorder, STORE, 7200.0)
    recorder.start(spec_values(parse_spec(STORE)), parse_spec(STORE).fingerprint())  # it has not completed
    time = expected(settings, STORE)
    assert time is not None
    assert time.earlier is not None
    assert time.earlier.id == run_id
    assert f"as run {run_id} took on " in time.text
    assert cost(settings, STORE, time) == "about 1 CPU h"
    (settings.home / "prices.yaml").write_text("currency: EUR\ncpu_hour: 3\n")
    rows = {
        row.what: row.value
        for row in plan_rows(parse_spec(STORE), resolved_inputs(parse_spec(STORE), settings), with_time=True)
    }
    assert rows["cost"] == "about 1 CPU h; 3 EUR"


def test_steps_of_a_recorded_pretraining_tell_the_time_of_more_of_them(settings: Settings, recorder: Recorder) -> None:
    run_id = record(recorder, SHORT, 50.0, steps=100)
    time = expected(settings, {**SHORT, "steps": 1000, "learning_rate": 0.5, "seed": 3})
    assert time is not None
    assert time.seconds == pytest.approx(500.0)
    assert time.text.startswith(f"about 8:20 min for 1,000 steps, by 0.5 s a step of run {run_id} on ")
    assert cost(settings, SHORT, time) == "about 0.278 CPU h", "a worker and its data"


@pytest.mark.parametrize(
    ("recorded", "steps", "changes"),
    [
        (SHORT, 100, {"model": {"size": "mini"}}),
        (SHORT, 100, {"global_batch_size": 8}),
        (SHORT, 100, {"execution": {"num_workers": 2, "device": "cpu"}}),
        (SHORT, 10, {}),
        (STORE, 0, {}),
        (STORE, 0, TRIALS),
    ],
    ids=["size", "batch", "workers", "few steps", "another kind", "another kind than a sweep"],
)
def test_runs_of_other_or_few_steps_tell_nothing(
    settings: Settings, recorder: Recorder, recorded: dict[str, Any], steps: int, changes: dict[str, Any]
) -> None:
    record(recorder, recorded, 50.0, steps)
    spec = parse_spec(changes if "kind" in changes else {**SHORT, "steps": 1000, **changes})
    assert kind_of(spec).recorded_time(spec, recorder.registry) is None


def test_recorded_trials_tell_the_time_of_more_of_them(settings: Settings, recorder: Recorder) -> None:
    spec = parse_spec({**TRIALS, "seeds": [7]})
    run_id = recorder.start(spec_values(spec), spec.fingerprint(), metric="accuracy", storage_path="runs/r").id
    for number, seconds in enumerate((10.0, 20.0)):
        start = TrialStart(f"k{number}", number, {"learning_rate": 1e-4}, number)
        recorder.record_trials(run_id, [start])
        result = trial_result(start.key, number=number, parameters=start.parameters, seed=number, seconds=seconds)
        recorder.record_trials(run_id, [result])
    recorder.complete(run_id, RunOutcome())
    more = parse_spec({**TRIALS, "execution": {"max_concurrent_trials": 2, "cpus_per_trial": 1, "gpus_per_trial": 1}})
    time = kind_of(more).recorded_time(more, recorder.registry)
    assert time is not None
    assert (time.seconds, time.of_what) == (30.0, "3 trials, 2 at a time")
    assert time.by == "15 s a trial, the mean of 2 recorded trials"
    cpus = min(2, max(1, os.cpu_count() or 1))
    told = cost(settings, spec_values(more), ExpectedTime(3600.0, ""))
    assert told == f"about {cpus} CPU h; 2 GPU h"
    other = parse_spec({**TRIALS, "recipe": {"tokenizer": "words", "size": "mini"}})
    assert kind_of(other).recorded_time(other, recorder.registry) is None
