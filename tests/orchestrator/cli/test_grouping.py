"""Groups of runs at the command line: `--group-by`, `--agg`, `--pivot`, beside `--where`, `--since` and `--sort`.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_grouping.py
"""

import csv
import io
import json

import pytest

from tests.orchestrator.cli.laboratory import Command, RecordedSweep


def _rows(command: Command, *words: str) -> list[dict[str, object]]:
    outcome = command(*words, "-f", "json")
    assert outcome.status == 0, outcome.err
    rows: list[dict[str, object]] = json.loads(outcome.out)
    return rows


def test_trials_are_grouped_by_what_varied(command: Command, recorded_sweep: RecordedSweep) -> None:
    for words in (["query", "kind = 'trial'"], ["runs", "list", "--trials", "--where", "kind = 'trial'"]):
        rows = _rows(command, *words, "--group-by", "params.learning_rate", "--agg", "count,max", "--sort", "-max")
        assert sum(int(str(row["count"])) for row in rows) == len(recorded_sweep.trial_ids)
        scores = [row["max"] for row in rows if row["max"] is not None]
        assert scores == sorted(scores, reverse=True)  # type: ignore[type-var]
        assert scores[0] == 0.85


def test_groups_are_a_table_and_csv_as_runs_are(command: Command, recorded_sweep: RecordedSweep) -> None:
    words = ["query", "kind = 'trial'", "--group-by", "params.learning_rate", "--pivot", "seed"]
    header, *lines = command(*words).out.splitlines()
    assert header.split()[0] == "learning_rate"
    rows = list(csv.DictReader(io.StringIO(command(*words, "-f", "csv").out)))
    assert len(rows) == len(lines)
    assert all(name.startswith("seed=") for name in list(rows[0])[1:])


def test_an_option_of_groups_needs_groups(command: Command, recorded_sweep: RecordedSweep) -> None:
    for option in (["--agg", "mean"], ["--pivot", "seed"]):
        outcome = command("runs", "list", *option)
        assert outcome.status == 2
        assert f"{option[0]} is about groups" in outcome.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--group-by", "tusk"], "task"),
        (["--group-by", "task", "--agg", "avg"], "avg"),
        (["--where", "state = 'done'"], "done"),
        (["--since", "soon"], "--since"),
    ],
)
def test_what_is_wrong_is_told(command: Command, recorded_sweep: RecordedSweep, words: list[str], message: str) -> None:
    outcome = command("runs", "list", *words)
    assert (outcome.status, outcome.out) == (2, "")
    assert message in outcome.err


def test_a_condition_joins_the_other_options(command: Command, recorded_sweep: RecordedSweep) -> None:
    ids = [row["id"] for row in _rows(command, "runs", "list", "--trials", "--where", "score > 0.8 or seed = 77")]
    assert recorded_sweep.trial_ids[3] in ids
    narrowed = ["runs", "list", "--trials", "--where", "score > 0.8 or seed = 77", "--kind", "trial", "--since", "2w"]
    assert [row["id"] for row in _rows(command, *narrowed)] == [i for i in ids if i in recorded_sweep.trial_ids]
    assert _rows(command, "query", "kind = 'trial'", "--since", "2999-01-01") == []
