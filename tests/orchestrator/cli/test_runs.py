"""Commands that read the record, on a registry with one sweep.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_runs.py
"""

import csv
import json
import os
import socket
from dataclasses import asdict
from pathlib import Path

import pandas
import pytest

from orchestrator.base.results import DatasetResult, FileCount
from orchestrator.base.settings import Settings
from orchestrator.registry import Registry
from orchestrator.registry.model_names import read_recorded_task, resolve_model
from orchestrator.registry.recorder import Recorder
from tests.orchestrator.cli.laboratory import Command, RecordedSweep
from tests.orchestrator.registry.samples import new_run


def test_runs_list_has_runs_and_trials_on_request(command: Command, recorded_sweep: RecordedSweep) -> None:
    rows = json.loads(command("runs", "list", "-f", "json").out)
    assert [(row["id"], row["state"], row["score"]) for row in rows] == [(recorded_sweep.run_id, "COMPLETED", 0.85)]
    with_trials = json.loads(command("runs", "list", "--trials", "-f", "json").out)
    assert {row["id"] for row in with_trials} == {recorded_sweep.run_id, *recorded_sweep.trial_ids}


READING = [["runs", "list"], ["query", "task = 'sst2'"], ["leaderboard"], ["models", "list"]]


@pytest.mark.parametrize("arguments", READING)
def test_an_empty_registry_is_no_error(command: Command, arguments: list[str]) -> None:
    outcome = command(*arguments)
    assert (outcome.status, outcome.out) == (0, "")
    assert outcome.err
    assert json.loads(command(*arguments, "-f", "json").out) == []


@pytest.mark.parametrize("arguments", READING)
@pytest.mark.parametrize("given_by", ["option", "environment"])
def test_a_registry_that_was_named_and_is_not_there_is_registry_trouble(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], given_by: str
) -> None:
    path = tmp_path / "typo" / "registry.sqlite"
    if given_by == "environment":
        monkeypatch.setenv("ORCHESTRATOR_REGISTRY", str(path))
    outcome = command(*arguments, *(["--registry", str(path)] if given_by == "option" else []))
    assert (outcome.status, outcome.out) == (4, "")
    assert str(path) in outcome.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [["runs", "list"], ["leaderboard"], ["models", "show", "m"], ["db", "check"], ["runs", "show", "7"]]
)
def test_reading_before_the_first_run_makes_nothing(command: Command, tmp_path: Path, arguments: list[str]) -> None:
    assert command(*arguments).status in (0, 3)
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_shown_by_the_beginning_of_its_id(command: Command, recorded_sweep: RecordedSweep) -> None:
    outcome = command("runs", "show", recorded_sweep.run_id[:6], "-f", "json")
    record = json.loads(outcome.out)
    assert record["id"] == recorded_sweep.run_id
    assert record["tags"] == ["tried"]
    assert record["models"] == ["first@1"]
    assert record["metrics.test.accuracy"] == 0.8
    assert record["spec"]["space"] == {"learning_rate": [1e-4, 3e-4]}
    assert "params.task.id" in command("runs", "show", recorded_sweep.run_id, "--all").out


def test_a_runs_attempts_are_shown_with_their_jobs(command: Command, recorded_sweep: RecordedSweep) -> None:
    with Registry(Settings.from_options().registry) as registry:
        run = Recorder(registry).start({"kind": "tokenizer", "name": "words"}, "f", run_id="7f3a90b1c2d4")
        registry.lifecycle.start_attempt(run.id, host="head", pid=7, job_id="7f3a90b1c2d4-2")
    table = command("runs", "show", "7f3a").out
    assert f"LOST: process {os.getpid()} on {socket.gethostname()}; began 20" in table
    assert "RUNNING: process 7 on head, job 7f3a90b1c2d4-2; began 20" in table
    starts = json.loads(command("runs", "show", "7f3a", "-f", "json").out)["starts"]
    assert [(start["number"], start["job_id"]) for start in starts] == [(1, None), (2, "7f3a90b1c2d4-2")]


def test_a_runs_data_is_shown_with_its_counts(command: Command, recorded_sweep: RecordedSweep) -> None:
    counts = {"num_documents": 1200, "num_tokens": 56789, "num_bad_records": 1, "num_train_tokens": 5}
    file = FileCount("a.txt", num_bytes=9, num_documents=1200, num_bad_records=1)
    with Registry(Settings.from_options().registry) as registry:
        registry.datasets.record(recorded_sweep.run_id, DatasetResult("a.txt", "corpus", "f", "/c", counts, [file]))
    table = command("runs", "show", recorded_sweep.run_id).out
    assert "a.txt: 1,200 documents, 56,789 tokens, 1 bad records; at /c\n" in table
    (corpus,) = json.loads(command("runs", "show", recorded_sweep.run_id, "-f", "json").out)["data"]
    assert (corpus["counts"], corpus["files"]) == (counts, [asdict(file)])


def test_an_unknown_run_is_not_found_and_the_latest_are_named(command: Command, recorded_sweep: RecordedSweep) -> None:
    for subcommand in ("show", "trials", "metrics", "logs"):
        outcome = command("runs", subcommand, "zzzz")
        assert (outcome.status, outcome.out) == (3, "")
        assert recorded_sweep.run_id in outcome.err


def test_trials_show_what_varied(command: Command, recorded_sweep: RecordedSweep) -> None:
    table = command("runs", "trials", recorded_sweep.run_id).out.splitlines()
    assert table[0].split() == ["number", "id", "state", "seed", "learning_rate", "accuracy", "seconds"]
    assert len(table) == 6
    rows = list(csv.DictReader(command("runs", "trials", recorded_sweep.run_id, "-f", "csv").out.splitlines()))
    assert [row["metrics.accuracy"] for row in rows] == ["0.7", "0.75", "0.8", "0.85", ""]
    assert "without trials" in command("runs", "trials", recorded_sweep.trial_ids[0]).err


def test_metrics_over_steps_can_be_one_of_them(command: Command, recorded_sweep: RecordedSweep) -> None:
    trial = recorded_sweep.trial_ids[3]
    rows = json.loads(command("runs", "metrics", trial, "train.loss", "-f", "json").out)
    assert [(row["step"], row["value"]) for row in rows] == [(1, 1.0), (2, 0.5), (4, 0.25)]
    assert "it has: accuracy" in command("runs", "metrics", trial, "lss").err


def test_logs_are_the_runs_own(command: Command, recorded_sweep: RecordedSweep, home: Path) -> None:
    assert command("runs", "logs", recorded_sweep.run_id).out == "trial 3: accuracy 0.85\n"
    (home / "storage" / "runs" / "r" / "log.txt").unlink()
    outcome = command("runs", "logs", recorded_sweep.run_id)
    assert outcome.status == 3
    assert "--storage" in outcome.err


def test_logs_of_workers_are_shown_by_rank(command: Command, recorded_sweep: RecordedSweep, home: Path) -> None:
    folder = home / "storage" / "runs" / "r" / "workers"
    outcome = command("runs", "logs", recorded_sweep.run_id, "--worker")
    assert (outcome.status, outcome.out) == (3, "")
    folder.mkdir()
    for rank in (0, 1):
        (folder / f"attempt-2-rank-{rank}.txt").write_text(f"traceback of rank {rank}\n")
    every = command("runs", "logs", recorded_sweep.run_id, "--worker")
    assert [line for line in every.out.splitlines() if line.startswith("traceback")] == [
        "traceback of rank 0",
        "traceback of rank 1",
    ]
    one = command("runs", "logs", recorded_sweep.run_id, "--worker", "1")
    assert "rank 1" in one.out
    assert "rank 0" not in one.out
    assert command("runs", "logs", recorded_sweep.run_id, "--worker", "2").status == 3
    assert command("runs", "logs", recorded_sweep.run_id, "--worker", "north").status == 2


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_an_export_has_a_row_for_each_run_and_trial(
    command: Command, recorded_sweep: RecordedSweep, tmp_path: Path, ending: str
) -> None:
    target = tmp_path / f"runs.{ending}"
    outcome = command("runs", "export", "-o", str(target))
    assert (outcome.status, outcome.out) == (0, "")
    readers = {"csv": pandas.read_csv, "json": pandas.read_json, "parquet": pandas.read_parquet}
    frame = readers[ending](target)
    assert set(frame["id"]) == {recorded_sweep.run_id, *recorded_sweep.trial_ids}
    assert frame["metrics.accuracy"].max() == 0.85


def test_a_query_filters_sorts_and_shows_what_it_names(command: Command, recorded_sweep: RecordedSweep) -> None:
    arguments = ["query", "metrics.accuracy > 0.72 and params.learning_rate > 2e-4 and kind = 'trial'"]
    table = command(*arguments, "--sort", "-metrics.accuracy").out.splitlines()
    assert table[0].split()[-2:] == ["accuracy", "learning_rate"]
    assert [line.split()[0] for line in table[1:]] == [recorded_sweep.trial_ids[3], recorded_sweep.trial_ids[2]]
    assert len(command(*arguments, "--limit", "1").out.splitlines()) == 2


def test_a_broken_query_points_at_what_is_wrong(command: Command, recorded_sweep: RecordedSweep) -> None:
    outcome = command("query", "metrics.accuracy >")
    assert (outcome.status, outcome.out) == (2, "")
    assert "^" in outcome.err


def test_a_failed_trials_message_cannot_drive_the_terminal(command: Command, recorded_sweep: RecordedSweep) -> None:
    outcome = command("runs", "show", recorded_sweep.trial_ids[4])
    assert "diverged�[31m at step 7" in outcome.out
    assert "\x1b" not in outcome.out


def test_models_are_listed_and_shown(command: Command, recorded_sweep: RecordedSweep) -> None:
    (row,) = json.loads(command("models", "list", "-f", "json").out)
    assert (row["model"], row["task"], row["num_parameters"]) == ("first@1", "sst2", 4_385_920)
    shown = command("models", "show", "first")
    assert "first" in shown.out
    assert "is gone" in shown.err
    assert command("models", "show", "second").status == 3


def test_db_check_and_upgrade_say_the_revision(command: Command) -> None:
    assert "registry is empty" in command("db", "check").err
    revision = command("db", "upgrade").out.strip()
    assert revision
    assert f"at revision {revision}; its statistics follow from the runs" in command("db", "check").err


def test_a_pipeline_is_shown_by_its_stages_and_stands_for_the_last_model_of_one(
    command: Command, recorded_sweep: RecordedSweep
) -> None:
    settings = Settings.from_options()
    with Registry(settings.registry) as registry:
        whole = new_run(registry, kind="pipeline", name="whole", spec={"kind": "pipeline"})
        registry.annotations.tag(recorded_sweep.run_id, [f"pipeline:{whole}"], reserved=True)
        model_folder = registry.run(recorded_sweep.run_id).model_folder
    shown = command("runs", "show", whole).out
    assert f"{recorded_sweep.run_id} sweep COMPLETED, accuracy 0.8500" in shown
    assert "runs plot" not in shown
    assert f"its stages have them: {recorded_sweep.run_id}" in command("runs", "trials", whole).err
    assert f"its stages have them: {recorded_sweep.run_id}" in command("runs", "metrics", whole).err
    assert resolve_model(whole, settings) == model_folder
    assert (read_recorded_task(whole, settings) or {}).get("id") == "sst2"


@pytest.mark.heavy
def test_a_run_is_shown_by_its_name(command: Command, recorded_sweep: RecordedSweep) -> None:
    shown = command("runs", "show", "first")
    assert shown.out == command("runs", "show", recorded_sweep.run_id).out
    assert "this is the newest" not in shown.err
    asking = (["runs", "trials"], ["runs", "metrics"], ["runs", "logs"], ["runs", "logs", "--follow"])
    for words in (*asking, ["stop"], ["wait"], ["resume", "--check"]):
        by_name, by_id = (command(*words, run) for run in ("first", recorded_sweep.run_id))
        assert (by_name.status, by_name.out) == (by_id.status, by_id.out)


def test_of_several_runs_of_a_name_the_newest_is_shown_and_an_id_goes_first(
    command: Command, recorded_sweep: RecordedSweep
) -> None:
    with Registry(Settings.from_options().registry) as registry:
        recorder = Recorder(registry)
        recorder.start({"kind": "sweep", "name": "first"}, "f", run_id="a" * 12)
        recorder.start({"kind": "sweep", "name": "a" * 12}, "f", run_id="b" * 12)
    shown = command("runs", "show", "first", "-f", "json")
    assert json.loads(shown.out)["id"] == "a" * 12
    assert f"2 runs are called first; this is the newest, {'a' * 12}" in shown.err
    assert json.loads(command("runs", "show", "a" * 12, "-f", "json").out)["id"] == "a" * 12


def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(
    command: Command, recorded_sweep: RecordedSweep
) -> None:
    outcome = command("runs", "show", "frist")
    assert outcome.status == 3
    assert outcome.err.strip().endswith("; did you mean first?")
    outcome = command("runs", "show", "it's")
    assert outcome.status == 3
    assert "the latest are" in outcome.err
