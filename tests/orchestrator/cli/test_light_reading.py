"""Commands that only read, in fresh processes: what they leave unloaded, so that they answer at once.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_light_reading.py
"""

import pytest

from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder
from orchestrator.registry.records import AttemptCostRecord
from orchestrator.settings import Settings
from tests.contracts.walls import EVERYTHING_HEAVY
from tests.orchestrator.cli.fresh_process import loaded_by_each
from tests.orchestrator.cli.laboratory import RecordedSweep

NOT_FOR_READING = {"pandas", "numpy", "ray", "torch", "alembic", "matplotlib", "pyarrow", "tokenizers", "fsspec"}
FOR_FILES = {"fsspec"}
"""Libraries that a run's own files need: its log, and where it is asked to stop."""


@pytest.mark.heavy
def test_reading_the_registry_loads_nothing_heavy(recorded_sweep: RecordedSweep) -> None:
    sweep, trial = recorded_sweep.run_id, recorded_sweep.trial_ids[3]
    commands = [
        ["runs", "list"],
        ["runs", "list", "-f", "json"],
        ["runs", "trials", sweep],
        ["runs", "metrics", trial],
        ["models", "list"],
        ["leaderboard"],
        ["query", "metrics.accuracy > 0.5"],
    ]
    for command, (status, loaded) in loaded_by_each(commands).items():
        assert status == 0, command
        assert not loaded & NOT_FOR_READING, command


@pytest.mark.heavy
def test_what_asks_about_one_run_loads_nothing_heavy(recorded_sweep: RecordedSweep) -> None:
    sweep, trials = recorded_sweep.run_id, recorded_sweep.trial_ids
    with Registry(Settings.from_options().registry) as registry:
        registry.costs.record(AttemptCostRecord(sweep, 1, 60.0, 50.0, gpu_seconds=0.0))
    commands = [
        ["wait", sweep],
        ["cost", sweep],
        ["check", sweep],
        ["runs", "diff", trials[0], trials[2]],
        ["runs", "diff", sweep, trials[3]],
        ["stop", sweep],
        ["runs", "logs", "-f", sweep],
    ]
    for command, (status, loaded) in loaded_by_each(commands).items():
        assert status == 0, command
        assert not loaded & (NOT_FOR_READING - FOR_FILES), command


@pytest.mark.heavy
def test_a_run_is_shown_beside_the_defaults_of_its_own_kind_of_spec(recorded_sweep: RecordedSweep) -> None:
    sweep, trial = recorded_sweep.run_id, recorded_sweep.trial_ids[3]
    of_trial, of_sweep = loaded_by_each([["runs", "show", trial], ["runs", "show", sweep]]).values()
    assert of_trial[0] == of_sweep[0] == 0
    assert not (of_trial[1] | of_sweep[1]) & NOT_FOR_READING


@pytest.mark.heavy
def test_lists_and_boards_need_neither_the_query_parser_nor_specs(recorded_sweep: RecordedSweep) -> None:
    with Registry(Settings.from_options().registry) as registry:
        pipeline = Recorder(registry).start({"kind": "pipeline", "name": "all", "stages": {}}, "f").id
    commands = [["runs", "list"], ["leaderboard"], ["groups", "list"], ["runs", "show", pipeline]]
    for command, (status, loaded) in loaded_by_each(commands).items():
        assert status == 0, command
        assert not loaded & {"lark", "pydantic"}, command


def test_an_error_in_a_spec_is_told_before_anything_heavy_is_loaded(home: object) -> None:
    commands = [["run", "nothere.yaml"], ["plan", "nothere.yaml"], ["run", "nothere.yaml", "--dry-run"]]
    for command, (status, loaded) in loaded_by_each(commands).items():
        assert status == 2, command
        assert not loaded & EVERYTHING_HEAVY, command
