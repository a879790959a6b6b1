"""`runs edit`, `rm`, `restore`, `list --removed`, and aliases and cards of models.

pytest tests/orchestrator/cli/test_run_keeping.py
"""

import json
import re
from pathlib import Path

import pytest

from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.registry import Registry
from orchestrator.registry.model_names import resolve_model
from orchestrator.registry.recorder import Recorder
from tests.orchestrator.cli.laboratory import Command, RecordedSweep


def test_a_note_is_written_shown_and_removed(command: Command, recorded_sweep: RecordedSweep) -> None:
    run_id = recorded_sweep.run_id
    assert command("runs", "edit", run_id).status == 2, "nothing to change"
    assert command("runs", "edit", run_id[:6], "--note", "too high").status == 0
    assert command("runs", "edit", run_id, "--note", "too\x1b[31m low").status == 0
    shown = command("runs", "show", run_id).out
    assert "too high" in shown
    assert "\x1b" not in shown
    whole = json.loads(command("runs", "show", run_id, "-f", "json").out)
    assert [note["text"] for note in whole["notes"]] == ["too high", "too\x1b[31m low"]
    assert "removed from" in command("runs", "edit", run_id, "--rm-note", "1").err
    assert command("runs", "edit", run_id, "--rm-note", "2").status == 3


def test_tags_are_added_and_taken(command: Command, recorded_sweep: RecordedSweep) -> None:
    run_id = recorded_sweep.run_id
    assert f"tags of {run_id}: paper, tried" in command("runs", "edit", run_id, "--tag", "paper").err
    assert run_id in command("query", "tag = 'paper'", "-f", "json").out
    outcome = command("runs", "edit", run_id, "--tag", "-tried,-never,+third")
    assert f"tags of {run_id}: paper, third" in outcome.err
    assert "has no tag 'never'" in outcome.err
    for wrong in ("pipeline:x", "two\nlines", " "):
        assert command("runs", "edit", run_id, "--tag", wrong).status == 2


def test_an_archived_run_is_not_listed_and_that_is_said(command: Command, recorded_sweep: RecordedSweep) -> None:
    run_id = recorded_sweep.run_id
    assert command("runs", "edit", run_id, "--unarchive").err.startswith("not archived: sweep")
    assert command("runs", "edit", run_id, "--archive").err.startswith("archived: sweep")
    for arguments in (("runs", "list"), ("query", "task = 'sst2'")):
        hidden = command(*arguments)
        assert run_id not in hidden.out
        assert "not shown; --archived shows them" in hidden.err
        assert run_id in command(*arguments, "--archived").out
    assert "sst2" not in command("leaderboard").out
    assert "sst2" in command("leaderboard", "--archived").out
    assert command("runs", "edit", run_id, "--unarchive").status == 0
    assert run_id in command("runs", "list").out


@pytest.mark.heavy
def test_a_pinned_run_is_left_alone_by_gc_and_rm(command: Command, recorded_sweep: RecordedSweep, home: Path) -> None:
    run_id = recorded_sweep.run_id
    left = home / "storage" / "runs" / "r" / "checkpoints"
    left.mkdir()
    assert str(left) in command("gc", "--dry-run").out
    command("runs", "edit", run_id, "--pin")
    assert str(left) not in command("gc", "--dry-run").out
    command("gc", "--yes")
    assert left.exists()
    with (
        Registry(Settings.from_options().registry) as registry,
        registry._database.connection(writing=True) as connection,
    ):
        connection.exec_driver_sql(f"UPDATE all_runs SET storage_path = '/lab/{run_id}' WHERE id = '{run_id}'")
    refused = command("runs", "rm", run_id, "--yes", "--force").err
    assert f"is pinned; orchestrator runs edit {run_id} --unpin" in refused
    place = ("--registry", str(home / "registry.sqlite"))
    named = command("runs", "rm", run_id, "--yes", "--force", *place).err
    assert f"is pinned; orchestrator {' '.join(place)} runs edit {run_id} --unpin" in named
    command("runs", "edit", run_id, "--unpin")
    assert command("runs", "rm", run_id, "--yes", "--force").status == 0


@pytest.fixture
def removable(recorded_sweep: RecordedSweep, home: Path) -> Path:
    """Folder of the recorded sweep, under its id, with a file of 100 kB."""
    folder = home / "storage" / "runs" / recorded_sweep.run_id
    (home / "storage" / "runs" / "r").rename(folder)
    (folder / "log.txt").write_bytes(b"1" * 100_000)
    with (
        Registry(Settings.from_options().registry) as registry,
        registry._database.connection(writing=True) as connection,
    ):
        connection.exec_driver_sql(f"UPDATE all_runs SET storage_path = '{folder}' WHERE parent_id IS NULL")
    return folder


def test_a_removed_run_is_restored_as_it_was(command: Command, recorded_sweep: RecordedSweep, removable: Path) -> None:
    run_id = recorded_sweep.run_id
    before = command("runs", "show", run_id, "-f", "json").out, command("models", "list", "-f", "json").out
    outcome = command("runs", "rm", run_id, "--yes", "--force")
    assert outcome.status == 0
    assert re.search(r"removed 1 run, [\d.]+ kB", outcome.err)
    assert f"runs restore {run_id}" in outcome.err
    assert command("runs", "show", run_id).status == 3
    removed = command("runs", "list", "--removed")
    assert run_id in removed.out
    assert re.search(r"1 run, [\d.]+ kB; `orchestrator gc` deletes them for good", removed.err)
    assert "restored sweep" in command("runs", "restore", run_id[:5]).err
    assert (command("runs", "show", run_id, "-f", "json").out, command("models", "list", "-f", "json").out) == before
    assert "no run is removed" in command("runs", "list", "--removed").err
    assert command("runs", "list", "--removed", "--task", "sst2").status == 2


def test_the_run_of_a_name_is_removed_and_no_other_whose_id_begins_so(command: Command, home: Path) -> None:
    with Registry(Settings.from_options().registry) as registry:
        recorder = Recorder(registry)
        for name, run_id in (("c4", "a" * 12), ("wiki", "c4" * 6), ("c4c4", "b" * 12)):
            recorder.start({"kind": "corpus", "name": name}, "f", run_id=run_id)
            registry.lifecycle.finish(run_id, RunState.COMPLETED)
    assert command("runs", "rm", "c4", "--yes").status == 0
    assert command("runs", "restore", "wiki").status == 3
    assert command("runs", "show", "wiki").status == 0
    assert command("runs", "restore", "c4").status == 0
    refused = command("runs", "rm", "c4c4", "--yes")
    assert refused.status == 3
    assert "b" * 12 in refused.err
    assert "c4" * 6 in refused.err


@pytest.mark.heavy
def test_gc_empties_the_trash(command: Command, recorded_sweep: RecordedSweep, removable: Path) -> None:
    command("runs", "rm", recorded_sweep.run_id, "--yes", "--force")
    assert removable.exists()
    assert str(removable) in command("gc", "--dry-run").out
    assert command("gc", "--yes").status == 0
    assert not removable.exists()
    assert command("runs", "restore", recorded_sweep.run_id).status == 3


def test_a_mistyped_registry_frees_nothing_and_is_not_made(command: Command, home: Path, tmp_path: Path) -> None:
    store = home / "storage" / "corpora" / "words"
    store.mkdir(parents=True)
    for arguments in (("gc", "--older-than", "0d", "--yes"), ("runs", "restore", "7f3a")):
        outcome = command(*arguments, "--registry", "typo.sqlite")
        assert outcome.status == 4
        assert "There is no registry at" in outcome.err
    for arguments in (
        ("runs", "edit", "7f3a", "--pin"),
        ("models", "alias", "words", "best"),
        ("db", "check", "--mend"),
    ):
        assert command(*arguments).status == 4, "the home has none yet"
    assert store.exists()
    assert [path.name for path in (*tmp_path.iterdir(), *home.iterdir())] == ["home", "storage"]


def test_a_run_is_removed_for_good_where_asked(
    command: Command, recorded_sweep: RecordedSweep, removable: Path
) -> None:
    assert "removed 1 run, " in command("runs", "rm", recorded_sweep.run_id, "--yes", "--force", "--now").err
    assert not removable.exists()
    assert "no run is removed" in command("runs", "list", "--removed").err


def model_name() -> str:
    """Name of the recorded sweep's model."""
    with Registry(Settings.from_options().registry, read_only=True) as registry:
        return str(registry.models.table().records[0]["name"])


def test_an_alias_means_a_version_wherever_a_model_is_named(command: Command, recorded_sweep: RecordedSweep) -> None:
    name = model_name()
    assert f"{name}@production is {name}@1" in command("models", "alias", name, "production").err
    shown = json.loads(command("models", "show", f"{name}@production", "-f", "json").out)
    assert (shown["version"], shown["aliases"]) == (1, ["production"])
    assert "production" in command("models", "list").out
    settings = Settings.from_options()
    assert resolve_model(f"{name}@production", settings) == resolve_model(f"{name}@1", settings)
    outcome = command("models", "show", f"{name}@staging")
    assert outcome.status == 3
    assert f"{name}@1, {name}@production" in outcome.err
    assert f"{name}@1, {name}@production" in command("models", "show", f"{name}@7").err
    for wrong in ("3", "a b", "-x", "a" * 61):
        assert command("models", "alias", "--", name, wrong).status == 2
    assert command("models", "alias", f"{name}@production", "--rm").status == 0
    assert command("models", "alias", f"{name}@production", "--rm").status == 3


def test_a_card_says_what_is_known_and_what_is_not(
    command: Command, recorded_sweep: RecordedSweep, tmp_path: Path
) -> None:
    outcome = command("models", "show", model_name(), "-o", "README.md")
    card = (tmp_path / "README.md").read_text()
    assert (outcome.status, outcome.out) == (0, "")
    assert f"# {model_name()}@1" in card
    assert "| accuracy | 0.8500 | 0.5000 |" in card
    assert "95 % interval 0.7174 to 0.9326" in card  # 0.825 ± 4.303 · 0.0354 / √2, of two groups
    assert "| test.accuracy | 0.8000 |" in card
    assert command("models", "show", "nobody", "-o", "README.md").status == 3
