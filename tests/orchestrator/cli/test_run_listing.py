"""`runs list`: which runs it lists, and what it says of those that did not complete.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_run_listing.py
"""

import json
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder
from orchestrator.results import MetricEvent
from orchestrator.run_states import RunState
from orchestrator.settings import Settings
from tests.orchestrator.cli.laboratory import Command, RecordedSweep


@pytest.fixture
def failed_run(recorded_sweep: RecordedSweep) -> str:
    """A pretraining that failed after step 1,200, beside the sweep."""
    with Registry(Settings.from_options().registry) as registry:
        run = Recorder(registry).start({"kind": "pretrain", "name": "words"}, "f", run_id="7f3a90b1c2d4")
        registry.metrics.record(run.id, [MetricEvent(1200, "train", {"mlm_loss": 5.0})])
        registry.lifecycle.finish(run.id, RunState.FAILED, error="the loss is not finite\nlower learning_rate")
    return run.id


def _ids(command: Command, *options: str) -> list[str]:
    return [row["id"] for row in json.loads(command("runs", "list", "-f", "json", *options).out)]


def test_a_task_and_a_kind_choose_runs(command: Command, recorded_sweep: RecordedSweep, failed_run: str) -> None:
    assert _ids(command, "--task", "sst2") == [recorded_sweep.run_id]
    assert _ids(command, "--kind", "pretrain") == [failed_run]
    assert _ids(command, "--task", "it's") == []


def test_an_age_chooses_runs(command: Command, recorded_sweep: RecordedSweep) -> None:
    assert _ids(command, "--since", "1h") == [recorded_sweep.run_id]
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    assert _ids(command, "--since", f"{tomorrow:%Y-%m-%d}") == []


def test_an_unknown_kind_is_answered_with_the_nearest(command: Command, recorded_sweep: RecordedSweep) -> None:
    assert "'sweeep' is no kind of run; did you mean sweep?" in command("runs", "list", "--kind", "sweeep").err


def test_a_run_that_failed_says_at_which_step_and_why(
    command: Command, recorded_sweep: RecordedSweep, failed_run: str
) -> None:
    assert "step 1,200: the loss is not finite\n" in command("runs", "list").out
    (row,) = json.loads(command("runs", "list", "--state", "failed", "-f", "json").out)
    assert (row["step"], row["error"]) == (1200, "the loss is not finite\nlower learning_rate")


def test_pages_of_runs_follow_one_another(command: Command, recorded_sweep: RecordedSweep, failed_run: str) -> None:
    def page(*options: str) -> list[str]:
        return [row["id"] for row in json.loads(command("runs", "list", "-f", "json", *options).out)]

    assert page("--limit", "1") + page("--limit", "1", "--offset", "1") == page()
    assert command("runs", "list", "--trials", "--limit", "1", "--offset", "1").err.endswith("--offset 2\n")
    assert command("runs", "list", "--offset", "2").err == "there are 2 runs\n"


def test_several_states_may_stand_in_one_option(
    command: Command, recorded_sweep: RecordedSweep, failed_run: str
) -> None:
    assert _ids(command, "--state", "completed,FAILED") == [failed_run, recorded_sweep.run_id]
    assert _ids(command, "--state", "failed, lost") == [failed_run]
    assert "'lots' is not one of" in command("runs", "list", "--state", "failed,lots").err


def test_notes_are_a_column_that_can_be_asked_for(
    command: Command, recorded_sweep: RecordedSweep, failed_run: str
) -> None:
    command("runs", "note", failed_run, "too high")
    for words in (["runs", "list"], ["query", "kind != 'trial'"]):
        assert f"{failed_run}  too high" in command(*words, "--columns", "id,note").out
