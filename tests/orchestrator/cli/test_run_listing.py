"""`runs list`: which runs it lists, and what it says of those that did not complete.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_run_listing.py
"""

import csv
import io
import json
from pathlib import Path

import pytest

from orchestrator.base.results import MetricEvent, ModelResult
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder
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


def test_a_run_that_failed_says_at_which_step_and_why(
    command: Command, recorded_sweep: RecordedSweep, failed_run: str
) -> None:
    assert "step 1,200: the loss is not finite\n" in command("runs", "list").out
    (row,) = json.loads(command("runs", "list", "--state", "failed", "-f", "json").out)
    assert (row["step"], row["error"]) == (1200, "the loss is not finite\nlower learning_rate")


def test_a_wide_list_leaves_out_what_is_empty_or_a_parameter_that_never_differs(
    command: Command, recorded_sweep: RecordedSweep
) -> None:
    words = ["query", "kind = 'trial' and params.recipe.dropout is null"]
    shown = command(*words, "--wide").out.splitlines()[0].split()
    assert {"parent", "accuracy", "learning_rate", "dropout"} <= set(shown)
    assert "batch_size" not in shown
    assert "params.batch_size" in _rows(command, *words)[0]


@pytest.mark.parametrize("width", [80, 60])
def test_a_narrow_list_keeps_the_state_and_has_the_progress_below(
    command: Command,
    recorded_sweep: RecordedSweep,
    failed_run: str,
    monkeypatch: pytest.MonkeyPatch,
    width: int,
) -> None:
    monkeypatch.setattr("orchestrator.cli.output._terminal_width", lambda output: width)
    heading, first, below, second = command("runs", "list").out.splitlines()
    assert {"id", "name", "state", "score"} <= set(heading.split())
    assert ("FAILED" in first, below.split()[:2], "COMPLETED" in second) == (True, ["progress", "step"], True)


def test_pages_of_runs_follow_one_another(command: Command, recorded_sweep: RecordedSweep, failed_run: str) -> None:
    assert _ids(command, "--limit", "1") + _ids(command, "--limit", "1", "--offset", "1") == _ids(command)
    assert command("runs", "list", "--trials", "--limit", "1", "--offset", "1").err.endswith("--offset 2\n")
    assert command("runs", "list", "--offset", "2").err == "there are 2, and --offset 2 skips all of them\n"


@pytest.mark.parametrize(
    ("words", "num"), [(["runs", "list"], 40), (["models", "list"], 40), (["query", "kind = 'pretrain'"], 40)]
)
@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_pipe_gets_all_that_is_there(
    command: Command, home: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], num: int, form: str
) -> None:
    with Registry(Settings.from_options().registry) as registry:
        for number in range(num):
            run_id = registry.lifecycle.create(kind="pretrain", name=f"n{number}", fingerprint="f", spec={})
            registry.models.register("words", ModelResult(f"m/{number}", f"{number:064x}", 1, "mlm"), run_id)
    outcome = command(*words, "-f", form)
    assert len(json.loads(outcome.out) if form == "json" else outcome.out.splitlines()[1:]) == num
    assert len(command(*words, "--limit", "all").out.splitlines()) == num + 1
    assert command(*words, "--limit", "10", "-f", form).err == "10 of 40 are shown; all of them: --limit all\n"
    assert command(*words, "--limit", str(10**20)).status == 2


def test_a_column_that_could_be_several_is_refused_with_all(command: Command, home: Path) -> None:
    with Registry(Settings.from_options().registry) as registry:
        spec = {"model": {"size": "tiny"}, "recipe": {"size": "base"}}
        registry.lifecycle.create(kind="pretrain", name="n", fingerprint="f", spec=spec)
    outcome = command("query", "kind = 'pretrain'", "--columns", "params.size")
    assert (outcome.status, outcome.out) == (2, "")
    assert "params.model.size or params.recipe.size" in outcome.err
    assert command("query", "params.recipe.size = 'base'", "--columns", "recipe.size").out.split() == [
        "recipe.size",
        "base",
    ]
    assert "recipe.size" in command("query", "params.recipe.size = 'base'").out


def test_runs_of_several_states_are_listed(command: Command, recorded_sweep: RecordedSweep, failed_run: str) -> None:
    assert _ids(command, "--state", "completed", "--state", "FAILED") == [failed_run, recorded_sweep.run_id]


def test_notes_are_a_column_that_can_be_asked_for(
    command: Command, recorded_sweep: RecordedSweep, failed_run: str
) -> None:
    command("runs", "edit", failed_run, "--note", "too high")
    for words in (["runs", "list"], ["query", "kind != 'trial'"]):
        assert f"{failed_run}  too high" in command(*words, "--columns", "id,note").out


def _rows(command: Command, *words: str) -> list[dict[str, object]]:
    outcome = command(*words, "-f", "json")
    assert outcome.status == 0, outcome.err
    rows: list[dict[str, object]] = json.loads(outcome.out)
    return rows


def test_trials_are_grouped_by_what_varied(command: Command, recorded_sweep: RecordedSweep) -> None:
    for words in (["query", "kind = 'trial'"], ["runs", "list", "--trials", "kind = 'trial'"]):
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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--kind sweeep", "sweep"),
        ("--group-by tusk", "task"),
        ("--group-by task --agg avg", "avg"),
        ("--agg mean", "--agg"),
        ("--since soon", "--since"),
        ("--state lots", "lots"),
    ],
)
def test_what_is_wrong_is_told(command: Command, recorded_sweep: RecordedSweep, words: str, message: str) -> None:
    outcome = command("runs", "list", *words.split())
    assert (outcome.status, outcome.out) == (2, "")
    assert message in outcome.err


def test_a_condition_joins_the_other_options(command: Command, recorded_sweep: RecordedSweep) -> None:
    ids = [row["id"] for row in _rows(command, "runs", "list", "--trials", "score > 0.8 or seed = 77")]
    assert recorded_sweep.trial_ids[3] in ids
    narrowed = ["runs", "list", "--trials", "score > 0.8 or seed = 77", "--kind", "trial", "--since", "2w"]
    assert [row["id"] for row in _rows(command, *narrowed)] == [i for i in ids if i in recorded_sweep.trial_ids]
    assert _rows(command, "query", "kind = 'trial'", "--since", "2999-01-01") == []
