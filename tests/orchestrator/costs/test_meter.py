"""Meter of an attempt: what is measured, what is derived of resources, trials and workers.

Alone: .venv/bin/pytest tests/orchestrator/costs/test_meter.py
"""

from pathlib import Path

import pytest

from orchestrator.cluster.processes import Processes
from orchestrator.costs.energy import Energy
from orchestrator.costs.meter import Meter
from orchestrator.costs.processor_time import ProcessorTime
from orchestrator.kinds.base import Resources
from orchestrator.registry import Registry
from orchestrator.results import TrialStart, WorkersEvent
from tests.orchestrator.costs.processes import TICKS, write_process
from tests.orchestrator.registry.samples import new_run, trial_result

ONE = Resources({"CPU": 2.0, "GPU": 1.0}, [Processes(1, {"CPU": 2.0, "GPU": 1.0})])


class Clock:
    """A clock that the test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def started(registry: Registry) -> str:
    run_id = new_run(registry)
    registry.lifecycle.start_attempt(run_id)
    return run_id


def test_what_nothing_measures_is_derived_of_what_is_held(registry: Registry) -> None:
    clock = Clock()
    meter = Meter(registry, started(registry), 1, ONE, gpu_type="H200", clock=clock)
    clock.now += 30
    cost = meter.read()
    assert (cost.seconds, cost.cpu_seconds, cost.cpu_measured) == (30.0, 60.0, False)
    assert (cost.gpu_seconds, cost.gpu_type, cost.energy_joules) == (30.0, "H200", None)


def test_processor_time_below_the_driver_is_measured(registry: Registry, tmp_path: Path) -> None:
    write_process(tmp_path, 10, 1, 0)
    clock = Clock()
    used = ProcessorTime(root=10, proc=tmp_path)
    meter = Meter(registry, started(registry), 1, ONE, processor_time=used, clock=clock)
    write_process(tmp_path, 11, 10, 5 * TICKS)
    meter.look()
    (tmp_path / "11" / "stat").unlink()
    clock.now += 30
    cost = meter.read()
    assert (cost.cpu_seconds, cost.cpu_measured, cost.gpu_seconds) == (5.0, True, 30.0)


def test_energy_is_the_hosts(registry: Registry) -> None:
    class Rising:
        value = 0.0

        def joules(self) -> float:
            self.value += 2.0
            return self.value

    meter = Meter(registry, started(registry), 1, ONE, energy=Energy([Rising(), Rising()]), clock=Clock())
    meter.look()
    assert meter.read().energy_joules == 8.0


def test_a_sweep_holds_what_its_trials_hold(registry: Registry) -> None:
    sweep, clock = started(registry), Clock()
    meter = Meter(registry, sweep, 1, ONE, clock=clock)
    clock.now += 1000
    registry.trials.record(sweep, [TrialStart(f"k{number}", number, {}, number) for number in range(2)])
    registry.trials.record(sweep, [trial_result(f"k{number}", number=number, seconds=0.0) for number in range(2)])
    assert meter.read().gpu_seconds == pytest.approx(0.0, abs=1.0)
    assert meter.read().seconds == 1000.0


def test_a_range_of_workers_holds_as_many_as_there_are(registry: Registry) -> None:
    run_id, clock = started(registry), Clock()
    two = Resources({"CPU": 4.0}, [Processes(2, {"CPU": 2.0})], up_to=4.0)
    meter = Meter(registry, run_id, 1, two, clock=clock)
    meter.read()
    clock.now += 10
    registry.lifecycle.record_workers(run_id, 1, [WorkersEvent(0, ("a", "b", "c", "d"))])
    assert meter.read().cpu_seconds == 80.0
    clock.now += 10
    registry.lifecycle.record_workers(run_id, 1, [WorkersEvent(5, ("a", "b"))])
    assert meter.read().cpu_seconds == 80.0 + 40.0
