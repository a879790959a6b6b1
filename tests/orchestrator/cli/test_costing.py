"""Command `cost`, and the cost of a run in `runs show`.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_costing.py
"""

import json

import pytest

from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.registry import Registry
from orchestrator.registry.records import AttemptCostRecord
from orchestrator.specs.loading import parse_spec, spec_values
from tests.orchestrator.cli.laboratory import Command, RecordedSweep
from tests.orchestrator.registry.samples import new_run
from tests.orchestrator.small_specs import PRETRAIN, SWEEP

HOUR_S = 3600.0


@pytest.fixture
def runs(command: Command) -> tuple[str, str]:
    """A pretraining that held a GPU, and a sweep of a task, an hour each."""
    found = []
    with Registry(Settings.from_options().registry) as registry:
        for values in (PRETRAIN, SWEEP):
            spec = spec_values(parse_spec(values))
            run_id = new_run(registry, kind=spec["kind"], spec=spec, task=(spec.get("task") or {}).get("id"))
            registry.lifecycle.start_attempt(run_id)
            gpu = (2 * HOUR_S, "H200") if values is PRETRAIN else (0.0, None)
            registry.costs.record(AttemptCostRecord(run_id, 1, HOUR_S, 4 * HOUR_S, *gpu))
            registry.lifecycle.finish(run_id, RunState.COMPLETED, attempt=1, seconds=HOUR_S)
            found.append(run_id)
    return found[0], found[1]


def test_a_run_a_task_and_a_time_stand_for_their_runs(command: Command, runs: tuple[str, str]) -> None:
    (row,) = json.loads(command("cost", runs[0], "-f", "json").out)
    assert (row["run"], row["cpu_seconds"], row["gpu_seconds"]) == (runs[0], 4 * HOUR_S, {"H200": 2 * HOUR_S})
    assert row["price"] is None
    assert [row["run"] for row in json.loads(command("cost", "own", "-f", "json").out)] == [runs[1]]
    since = command("cost", "--since", "1h")
    assert set(runs) <= set(since.out.split())
    assert since.err == "in all: 2:00 h; 8 CPU h; 2 H200 h\n"
    assert json.loads(command("cost", "--since", "2099-01-01", "-f", "json").out) == []


def test_prices_make_money_of_it(command: Command, runs: tuple[str, str]) -> None:
    Settings.from_options().home.joinpath("prices.yaml").write_text("currency: EUR\ncpu_hour: 0.5\ngpu_hour: 16\n")
    outcome = command("cost", runs[0])
    assert "34" in outcome.out.splitlines()[1]
    assert outcome.err.endswith("; 34 EUR\n")
    assert "4 CPU h; 2 H200 h; 34 EUR" in command("runs", "show", runs[0]).out


def test_a_run_of_which_nothing_is_recorded_says_so(command: Command, recorded_sweep: RecordedSweep) -> None:
    (row,) = json.loads(command("cost", recorded_sweep.run_id, "-f", "json").out)
    assert (row["seconds"], row["cpu_seconds"]) == (None, None)
    assert "not recorded" in command("cost", recorded_sweep.run_id).out
    assert "\ncost " not in command("runs", "show", recorded_sweep.run_id).out


@pytest.mark.parametrize(
    ("arguments", "status"), [([], 2), (["7f3a", "--since", "7d"], 2), (["--since", "soon"], 2), (["nothing"], 3)]
)
def test_what_names_nothing_is_refused(command: Command, arguments: list[str], status: int) -> None:
    assert command("cost", *arguments).status == status
