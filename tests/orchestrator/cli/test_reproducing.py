"""Command `runs reproduce`. Alone: pytest tests/orchestrator/cli/test_reproducing.py"""

from tests.orchestrator.cli.laboratory import Command, RecordedSweep


def test_the_command_prints_facts_and_the_spec(command: Command, recorded_sweep: RecordedSweep) -> None:
    shown = command("runs", "reproduce", recorded_sweep.trial_ids[0])
    assert (shown.status, f"run       {recorded_sweep.run_id}" in shown.out) == (0, True)
    assert "kind: sweep" in command("runs", "reproduce", recorded_sweep.run_id, "--show", "spec").out
    assert command("runs", "reproduce", recorded_sweep.run_id, "--show", "diff").status == 3
