"""`compare`, `runs reproduce`, and what `runs show` tells of what a run was made with.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_run_comparing.py
"""

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.base.results import DatasetResult, MetricEvent
from orchestrator.base.settings import Settings
from orchestrator.provenance.capture import Provenance
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.reports.run_facts import code_line, machine_line
from tests.orchestrator.cli.laboratory import Command, RecordedSweep
from tests.orchestrator.registry.samples import made_with

FIRST, SECOND = "7f3a90b1c2d4", "9c2190b1c2d4"
MACHINE = {
    "hostname": "node-1", "user": "lab", "processor": "AMD EPYC", "num_cores": 64, "memory_bytes": 2**38,
    "gpus": ["NVIDIA H200", "NVIDIA H200"], "gpu_driver": "570.1",
    "versions": {"python": "3.11.7", "torch": "2.13.0", "cuda": "12.8", "ray": "2.60.0", "numpy": "2.4.6"},
}  # fmt: skip


def record(run_id: str, make: Provenance, spec: dict[str, Any], loss: float, digest: str) -> None:
    with Registry(Settings.from_options().registry) as registry:
        recorder = Recorder(registry, made_with=make)
        recorder.start({"kind": "pretrain", "name": "words", **spec}, "f", run_id=run_id)
        data = DatasetResult("text", "corpus", digest, "/c", {"num_tokens": 5})
        recorder.registry.datasets.record(run_id, data)
        recorder.record_events(run_id, [MetricEvent(10, "validation", {"mlm_loss": loss})])
        recorder.complete(run_id, RunOutcome())


@pytest.fixture
def two_runs(recorded_sweep: RecordedSweep) -> None:
    make = replace(made_with("a" * 40), environment=MACHINE)
    other = replace(made_with("b" * 40, "+x = 1"), command="orchestrator run " + "long/" * 30 + "name.yaml")
    record(FIRST, make, {"steps": 10, "files": "data/" + "x" * 60}, 2.0, "1" * 64)
    record(SECOND, other, {"steps": 20, "files": "data/" + "y" * 60}, 1.5, "2" * 64)


@pytest.mark.usefixtures("two_runs")
def test_two_runs_are_compared_in_sections(command: Command) -> None:
    out = command("compare", "7f3a90b1", "9c2190b1").out
    lines = out.splitlines()
    assert lines[0].startswith(f"first   {FIRST}  pretrain words, COMPLETED, 20")
    assert lines[1].startswith(f"second  {SECOND}  pretrain words, COMPLETED, 20")
    titles = [line for line in lines[2:] if line and not line.startswith(" ")]
    assert titles[:5] == ["Spec", "Data", "Code", "Environment", "Scores"]
    assert titles[-1] == "The same in both: kind and state."
    assert "  steps: 10 → 20" in lines
    assert "  corpus text: 111111111111 → 222222222222" in lines
    assert "  commit: aaaaaaaaaaaa → bbbbbbbbbbbb" in lines
    assert "  see: git diff aaaaaaaaaaaa bbbbbbbbbbbb" in lines
    assert "  mlm_loss: 2 → 1.5000 (-0.5)" in lines
    assert "  python: 3.11.7 → 3.11" in lines
    assert "    first   data/" + "x" * 60 in lines
    assert all(len(line) <= 80 or "long/" in line for line in lines)
    (found,) = json.loads(command("compare", "7f3a90b1", "9c2190b1", "-f", "json").out)
    assert found["differences"]["spec"]["steps"] == {"first": 10, "second": 20}
    rows = list(csv.DictReader(io.StringIO(command("compare", "7f3a90b1", "9c2190b1", "-f", "csv").out)))
    step = {"section": "spec", "field": "steps", "first": "10", "second": "20"}
    assert {"a": "7f3a90b1", "b": "9c2190b1", **step} in rows


@pytest.mark.usefixtures("recorded_sweep")
def test_values_that_a_table_would_round_to_the_same_are_told_apart(command: Command) -> None:
    record(FIRST, made_with("a" * 40), {"x": 0.5, "y": 1}, 0.123456789, "1" * 64)
    record(SECOND, made_with("a" * 40), {"x": 0.50000001, "y": "1"}, 0.123456780, "1" * 64)
    lines = command("compare", FIRST, SECOND).out.splitlines()
    assert "  x: 0.5 → 0.50000001" in lines
    assert '  y: 1 → "1"' in lines
    assert "  mlm_loss: 0.123456789 → 0.12345678 (-9e-09)" in lines


@pytest.mark.heavy
def test_unknown_runs_are_not_found(command: Command, recorded_sweep: RecordedSweep) -> None:
    outcome = command("compare", "zzzz", recorded_sweep.run_id)
    assert (outcome.status, outcome.out) == (3, "")


@pytest.mark.usefixtures("two_runs")
def test_a_run_is_shown_with_its_code_command_and_machine(command: Command) -> None:
    brief = command("runs", "show", "9c2190b1").out
    assert "0.1.0, commit bbbbbbbbbbbb and uncommitted changes of 1 file (bert_core/a.py)" in brief
    assert "long/name.yaml" in command("runs", "show", "9c2190b1", "--all").out
    whole = command("runs", "show", "7f3a90b1", "--all").out
    assert "2 × NVIDIA H200, driver 570.1" in whole
    assert "made_with.versions.numpy" in whole
    assert "made_with.code.commit" in whole
    (start,) = json.loads(command("runs", "show", "7f3a90b1", "-f", "json").out)["starts"]
    assert start["environment"]["versions"]["numpy"] == "2.4.6"


def test_code_and_machines_are_told_in_a_line() -> None:
    code = {"version": "0.1.0", "commit": "a" * 40, "diff_digest": None, "changed_files": []}
    many = code | {"diff_digest": "1" * 64, "changed_files": list("abcd")}
    assert code_line(many) == "0.1.0, commit aaaaaaaaaaaa and uncommitted changes of 4 files (a, b, c and 1 more)"
    assert machine_line({}) is None
    assert machine_line(MACHINE) == (
        "AMD EPYC, 64 cores, 256 GiB, 2 × NVIDIA H200, driver 570.1, lab on node-1, python 3.11.7, torch 2.13.0, "
        "cuda 12.8, ray 2.60.0"
    )


def test_the_command_prints_facts_and_the_spec(command: Command, recorded_sweep: RecordedSweep) -> None:
    shown = command("runs", "reproduce", recorded_sweep.trial_ids[0])
    assert (shown.status, f"run       {recorded_sweep.run_id}" in shown.out) == (0, True)
    named = command("--registry", Settings.from_options().registry, "runs", "reproduce", recorded_sweep.run_id)
    assert "spec      orchestrator --registry " in named.out
    assert "kind: sweep" in command("runs", "reproduce", recorded_sweep.run_id, "--show", "spec").out
    assert command("runs", "reproduce", recorded_sweep.run_id, "--show", "diff").status == 3
