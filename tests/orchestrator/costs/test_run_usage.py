"""Usage of recorded runs: recorded, derived from their specs, or not known.

Alone: .venv/bin/pytest tests/orchestrator/costs/test_run_usage.py
"""

from typing import Any

import pytest

from orchestrator.costs import held
from orchestrator.costs.run_usage import own_stages, usage_of, usages_of
from orchestrator.costs.usage import Usage
from orchestrator.registry import Registry
from orchestrator.registry.records import AttemptCostRecord
from orchestrator.results import MetricEvent, WorkersEvent
from orchestrator.run_states import RunState
from orchestrator.specs.loading import parse_spec, spec_values
from tests.orchestrator.registry.samples import new_run, trial_result
from tests.orchestrator.small_specs import PRETRAIN, SWEEP, TOKENIZER


def ended(registry: Registry, values: dict[str, Any], *attempt_seconds: float, **changes: Any) -> str:
    """A run of a spec that has ended, after attempts of these lengths."""
    spec = spec_values(parse_spec(values))
    run_id = new_run(registry, kind=spec["kind"], spec=spec, **changes)
    for seconds in attempt_seconds:
        number = registry.lifecycle.start_attempt(run_id)
        registry.lifecycle.finish(run_id, RunState.STOPPED, attempt=number, seconds=seconds)
    return run_id


def usage(registry: Registry, run_id: str) -> Usage:
    return usage_of(registry.run(run_id), registry)


def test_attempts_add_up(registry: Registry) -> None:
    run_id = ended(registry, PRETRAIN, 10.0, 20.0)
    registry.costs.record(AttemptCostRecord(run_id, 1, 10.0, 7.0, True, 0.0, None, 2.0))
    registry.costs.record(AttemptCostRecord(run_id, 2, 20.0, 40.0, False, 20.0, "H200"))
    assert usage(registry, run_id) == Usage(30.0, 7.0, 40.0, {"H200": 20.0}, 2.0)


def test_a_run_of_before_is_derived_of_what_its_spec_holds(registry: Registry) -> None:
    values = {**PRETRAIN, "execution": {"num_workers": 2, "cpus_per_worker": 3, "data_cpus": 1}}
    run_id = ended(registry, values, 10.0, 20.0)
    assert usage(registry, run_id) == Usage(30.0, derived_cpu_seconds=30 * 2 * 4.0)
    registry.tag(run_id, "device:gpu")
    assert usage(registry, run_id).gpu_seconds == {"GPU": 60.0}


def test_an_attempt_of_which_nothing_is_recorded_is_derived_beside_the_others(registry: Registry) -> None:
    run_id = ended(registry, TOKENIZER, 10.0, 20.0)
    registry.costs.record(AttemptCostRecord(run_id, 2, 20.0, 15.0, True, 0.0))
    assert usage(registry, run_id) == Usage(30.0, 15.0, derived_cpu_seconds=10.0)


def test_a_width_that_changed_counts_by_its_steps(registry: Registry) -> None:
    values = {**PRETRAIN, "execution": {"num_workers": {"min": 1, "max": 4}, "cpus_per_worker": 1, "data_cpus": 1}}
    run_id = ended(registry, values, 100.0)
    events = [WorkersEvent(0, ("a", "b", "c", "d")), WorkersEvent(25, ("a", "b"))]
    registry.lifecycle.record_workers(run_id, 1, events)
    registry.metrics.record(run_id, [MetricEvent(100, "train", {"loss": 1.0})])
    assert usage(registry, run_id).derived_cpu_seconds == pytest.approx(100 * 2 * (4 * 0.25 + 2 * 0.75))


def test_a_sweep_of_before_is_derived_of_its_trials_and_a_trial_by_itself(registry: Registry) -> None:
    sweep = ended(registry, {**SWEEP, "execution": {"cpus_per_trial": 3, "gpus_per_trial": 0.5}}, 10.0)
    trials = registry.trials.record(sweep, [trial_result(f"k{n}", number=n, seconds=8.0) for n in range(2)])
    assert usage(registry, sweep) == Usage(10.0, derived_cpu_seconds=16 * 3.0, gpu_seconds={"GPU": 8.0})
    assert usage(registry, trials[0]) == Usage(8.0, derived_cpu_seconds=24.0, gpu_seconds={"GPU": 4.0})


def test_what_is_not_known_is_said(registry: Registry) -> None:
    unreadable, never_ended = new_run(registry, spec={"kind": "juggle"}), new_run(registry)
    registry.lifecycle.start_attempt(unreadable)
    registry.lifecycle.finish(unreadable, RunState.FAILED, seconds=5.0)
    assert usage(registry, unreadable) == Usage(5.0, num_unknown=1)
    assert str(usage(registry, never_ended)) == "0 s; 0 CPU h (none)"


def test_a_run_at_work_has_taken_what_was_recorded_last(registry: Registry) -> None:
    run_id = new_run(registry, spec=spec_values(parse_spec(TOKENIZER)))
    registry.lifecycle.start_attempt(run_id)
    assert usage(registry, run_id) == Usage()
    registry.costs.record(AttemptCostRecord(run_id, 1, 5.0, 4.0, True, 0.0))
    assert usage(registry, run_id) == Usage(5.0, 4.0)


def test_a_pipeline_is_the_sum_of_its_own_stages(registry: Registry) -> None:
    before = ended(registry, TOKENIZER, 100.0)
    whole = new_run(registry, kind="pipeline", spec={"kind": "pipeline"})
    stages = [ended(registry, TOKENIZER, 10.0), ended(registry, TOKENIZER, 20.0)]
    for stage in (before, *stages):
        registry.tag(stage, f"pipeline:{whole}")
    registry.lifecycle.start_attempt(whole)
    registry.lifecycle.finish(whole, RunState.COMPLETED, seconds=31.0)
    assert [stage.id for stage in own_stages(registry.run(whole), registry)] == stages
    assert usage(registry, whole) == Usage(31.0, derived_cpu_seconds=30.0)


def test_many_runs_are_asked_for_at_once(registry: Registry) -> None:
    runs = [registry.run(ended(registry, TOKENIZER, float(n))) for n in (1, 2)]
    assert [usages_of(runs, registry)[run.id].seconds for run in runs] == [1.0, 2.0]


def test_runs_of_every_sort_are_derived_together_as_each_by_itself(registry: Registry) -> None:
    """Runs of all sorts: trials, on GPUs, with groups of workers, recorded in part, with unreadable specs."""
    sweep = ended(registry, {**SWEEP, "execution": {"cpus_per_trial": 3, "gpus_per_trial": 0.5}}, 10.0)
    trials = registry.trials.record(sweep, [trial_result(f"k{n}", number=n, seconds=8.0 + n) for n in range(3)])
    wide = ended(registry, {**PRETRAIN, "execution": {"num_workers": {"min": 1, "max": 4}}}, 50.0, 100.0)
    for attempt in (1, 2):
        registry.lifecycle.record_workers(wide, attempt, [WorkersEvent(20 * attempt, ("a", "b"))])
    registry.metrics.record(wide, [MetricEvent(100, "train", {"loss": 1.0})])
    on_gpus, in_part, unreadable = (
        ended(registry, PRETRAIN, 5.0),
        ended(registry, TOKENIZER, 10.0, 20.0),
        new_run(registry, spec={"kind": "juggle"}),
    )
    registry.tag(on_gpus, "device:gpu")
    registry.costs.record(AttemptCostRecord(in_part, 2, 20.0, 15.0, True, 0.0))
    registry.lifecycle.start_attempt(unreadable)
    registry.lifecycle.finish(unreadable, RunState.FAILED, seconds=5.0)
    ids = [sweep, *trials, wide, on_gpus, in_part, unreadable, new_run(registry)]
    runs = [registry.run(run_id) for run_id in ids]
    together = usages_of(runs, registry)
    assert list(together) == ids
    assert together == {run.id: usage_of(run, registry) for run in runs}
    assert len(set(map(str, together.values()))) > 5


def test_a_spec_that_many_runs_have_is_read_once(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [registry.run(ended(registry, TOKENIZER, 10.0)) for _ in range(3)]
    read = []
    monkeypatch.setattr(held, "parse_spec", lambda values: read.append(values) or parse_spec(values))
    held._parsed.cache_clear()
    assert [one.derived_cpu_seconds for one in usages_of(runs, registry).values()] == [10.0] * 3
    assert len(read) == 1
