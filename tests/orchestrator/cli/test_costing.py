"""Command `cost`, and the cost of a run in `runs show`.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_costing.py
"""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.registry import Registry
from orchestrator.registry.records import AttemptCostRecord
from orchestrator.results import DatasetResult, ModelResult
from orchestrator.run_states import RunState
from orchestrator.settings import Settings
from orchestrator.specs.loading import parse_spec, spec_values
from tests.orchestrator.cli.laboratory import Command, RecordedSweep
from tests.orchestrator.registry.samples import new_run
from tests.orchestrator.small_specs import PRETRAIN, STORE, SWEEP, TOKENIZER

PRICES = "currency: EUR\ncpu_hour: 0.5\ngpu_hour: {H200: 4}\n"
HOUR_S = 3600.0


def ended(registry: Registry, values: dict[str, Any], cpu_hours: float, gpu_hours: float = 0.0) -> str:
    """A run that took an hour and so much processor time, which was measured."""
    spec = spec_values(parse_spec(values))
    task = (spec.get("task") or {}).get("id")
    run_id = new_run(registry, kind=spec["kind"], name=spec["kind"], spec=spec, task=task)
    registry.lifecycle.start_attempt(run_id)
    cost = AttemptCostRecord(run_id, 1, HOUR_S, cpu_hours * HOUR_S, True, gpu_hours * HOUR_S, "H200", 7.2e6)
    registry.costs.record(cost)
    registry.lifecycle.finish(run_id, RunState.COMPLETED, attempt=1, seconds=HOUR_S)
    return run_id


@pytest.fixture
def lineage(command: Command) -> tuple[str, str, str, str]:
    """Runs of a tokenizer, a token store, a pretraining of both, and a sweep of its model, `small@1`."""
    with Registry(Settings.from_options().registry) as registry:
        words = ended(registry, TOKENIZER, 1.0)
        store = ended(registry, STORE, 2.0)
        data = DatasetResult("corpus", "corpus", "e" * 64, "/stores/e", {"num_tokens": 9})
        registry.datasets.record(store, data)
        pretrained = ended(registry, {**PRETRAIN, "tokenizer": f"/storage/runs/{words}/tokenizer"}, 4.0, 8.0)
        registry.datasets.record(pretrained, data)
        registry.models.register("small", ModelResult("/m", "d" * 64, 1, "pretraining"), pretrained)
        recipe = {"init_from": "small@1"}
        tuned = ended(registry, {**SWEEP, "recipe": recipe}, 16.0)
        registry.models.register("tuned", ModelResult("/t", "e" * 64, 1, "classification"), tuned)
        ended(registry, TOKENIZER, 100.0)
    return words, store, pretrained, tuned


def test_a_model_costs_what_it_is_made_of(command: Command, lineage: tuple[str, ...]) -> None:
    outcome = command("cost", "tuned@1", "-f", "json")
    rows = json.loads(outcome.out)
    assert [row["run"] for row in rows] == list(lineage)
    assert [row["cpu_seconds"] / HOUR_S for row in rows] == [1.0, 2.0, 4.0, 16.0]
    assert rows[2]["gpu_seconds"] == {"H200": 8 * HOUR_S}
    assert {row["is_known"] for row in rows} == {True}
    said = command("cost", "tuned").err
    assert said == "in all: 4:00 h; 23 CPU h (measured); 8 H200 h; 8 kWh\n"


def test_prices_make_money_of_it(command: Command, lineage: tuple[str, ...], tmp_path: Path) -> None:
    Settings.from_options().home.joinpath("prices.yaml").write_text(PRICES)
    outcome = command("cost", lineage[2])
    assert "34" in outcome.out.splitlines()[1]
    assert outcome.err == "in all: 1:00 h; 4 CPU h (measured); 8 H200 h; 2 kWh; 34 EUR\n"
    assert "4 CPU h (measured); 8 H200 h; 2 kWh; 34 EUR" in command("runs", "show", lineage[2]).out


def test_a_time_at_work_that_is_not_the_time_taken_says_what_it_is(command: Command, home: Path) -> None:
    with Registry(Settings.from_options().registry) as registry:
        run_id = new_run(registry)
        registry.lifecycle.start_attempt(run_id)
        registry.costs.record(AttemptCostRecord(run_id, 1, 18.0, 36.0, True, 0.0, None, None))
        registry.lifecycle.finish(run_id, RunState.COMPLETED, attempt=1, seconds=19.0)
    shown = " ".join(command("runs", "show", run_id).out.split())
    assert "took 19 s cost 18 s at work; 0.01 CPU h (measured)" in shown


def test_no_prices_no_money(command: Command, lineage: tuple[str, ...]) -> None:
    outcome = command("cost", lineage[2])
    assert "price" not in outcome.out.splitlines()[0]
    assert json.loads(command("cost", lineage[2], "-f", "json").out)[0]["price"] is None


def test_a_task_and_a_time_stand_for_their_runs(command: Command, lineage: tuple[str, ...]) -> None:
    assert [row["run"] for row in json.loads(command("cost", "own", "-f", "json").out)] == [lineage[3]]
    since = json.loads(command("cost", "--since", "1h", "-f", "json").out)
    assert len(since) == 5
    assert {row["run"] for row in since} >= set(lineage)
    assert json.loads(command("cost", "--since", "2099-01-01", "-f", "json").out) == []


def test_the_trials_of_a_task_are_those_of_its_sweeps(command: Command, recorded_sweep: RecordedSweep) -> None:
    of_sweep = command("cost", recorded_sweep.run_id, "--trials", "-f", "json")
    of_task = command("cost", "sst2", "--trials", "-f", "json")
    assert json.loads(of_task.out) == json.loads(of_sweep.out)
    assert len(json.loads(of_task.out)) > 1


def test_a_sweep_of_before_is_derived_and_so_is_each_trial(command: Command, recorded_sweep: RecordedSweep) -> None:
    (row,) = json.loads(command("cost", recorded_sweep.run_id, "-f", "json").out)
    assert (row["measured_cpu_seconds"], row["is_known"]) == (0.0, True)
    trials = json.loads(command("cost", recorded_sweep.run_id, "--trials", "-f", "json").out)
    assert [trial["run"] for trial in trials] == list(recorded_sweep.trial_ids)
    assert sum(trial["cpu_seconds"] for trial in trials) == pytest.approx(row["cpu_seconds"])
    assert "\ncost " not in command("runs", "show", recorded_sweep.run_id).out


@pytest.mark.parametrize(
    ("arguments", "status", "problem"),
    [
        ([], 2, "name a run, a model or a task, or give --since"),
        (["7f3a", "--since", "7d"], 2, "name a run, a model or a task, or give --since"),
        (["--since", "soon"], 2, "--since is soon; give an age"),
        (["nothing"], 3, "'nothing' is no run, model or task here"),
    ],
)
def test_what_names_nothing_is_refused(command: Command, arguments: list[str], status: int, problem: str) -> None:
    outcome = command("cost", *arguments)
    assert outcome.status == status
    assert problem in outcome.err


def test_a_price_table_that_is_wrong_is_told(command: Command, lineage: tuple[str, ...]) -> None:
    Settings.from_options().home.joinpath("prices.yaml").write_text("cpu_hour: 1\n")
    outcome = command("cost", lineage[0])
    assert outcome.status == 2
    assert "prices.yaml: currency is None; give a word" in outcome.err


def test_the_cost_since_a_day_reads_no_measurements(
    command: Command, lineage: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor parameters: they would be as many as the registry has."""
    whole = Registry.run_table
    limits: list[object] = []

    def table(registry: Registry, *given: Any, **options: Any) -> Any:
        limits.append(options.get("limit"))
        return whole(registry, *given, **options)

    monkeypatch.setattr(Registry, "run_table", table)
    rows = json.loads(command("cost", "--since", "7d", "-f", "json").out)
    assert {row["run"] for row in rows} >= {*lineage}
    assert set(limits) <= {1}


@pytest.mark.parametrize("arguments", [["cost", "sst"], ["check", "sst"], ["report", "sst", "-o", "report.html"]])
def test_a_misspelt_task_is_suggested(command: Command, recorded_sweep: RecordedSweep, arguments: list[str]) -> None:
    outcome = command(*arguments)
    assert outcome.status == 3
    assert "did you mean sst2?" in outcome.err
