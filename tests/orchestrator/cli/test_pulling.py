"""`cluster pull`, the whole way without Ray: the head is a home of its own on this machine, its jobs are processes.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_pulling.py
"""

import json
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import ClusterError
from orchestrator.execution import run_bundle
from orchestrator.execution.pulling import bring_runs
from orchestrator.execution.run_bundle import Wanted, open_bundle, write_bundle
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.results import MetricEvent
from orchestrator.settings import Settings
from tests.orchestrator.cli.laboratory import Command
from tests.orchestrator.execution.job_cluster import JobCluster
from tests.orchestrator.registry.samples import everything, model_result, new_run

ADDRESS = "http://127.0.0.1:8265"
AT = ("--address", ADDRESS)
DONE, STARTED = "aaaaaaaaaaaa", "bbbbbbbbbbbb"


@pytest.fixture
def there(cluster: JobCluster) -> Settings:
    """Settings of the head."""
    return Settings.from_options(cluster.folder / ".orchestrator", environ={})


@pytest.fixture
def head(there: Settings) -> Iterator[Recorder]:
    """A recorder of the head's registry, with a run that has completed some time ago and one that goes on."""
    with Registry(there.registry) as registry:
        recorder = Recorder(registry)
        for run_id, name in ((DONE, "done"), (STARTED, "started")):
            folder = there.home / "storage" / "runs" / run_id
            spec = {"kind": "pretrain", "name": name, "tags": ["tried"]}
            recorder.start(spec, "f" * 64, storage_path=str(folder), run_id=run_id)
            (folder / "workers").mkdir(parents=True)
            (folder / "log.txt").write_text(f"{name}: step 1\n")
            (folder / "workers" / "attempt-1-rank-0.txt").write_text("a worker\n")
        registry.metrics.record(DONE, [MetricEvent(step, "train", {"loss": 1 / step}) for step in (1, 2)])
        recorder.record_model(DONE, model_result())
        recorder.complete(DONE, RunOutcome())
        with sqlite3.connect(there.home / "registry.sqlite") as connection:
            connection.execute(f"UPDATE runs SET finished_at = '2026-11-01 10:00:00.000000' WHERE id = '{DONE}'")
        yield recorder


def rows_of(out: str) -> dict[str, str]:
    """Changes that a pull reports for its runs, such as `new`."""
    return {row["id"]: row["change"] for row in json.loads(out)} if out else {}


def test_a_clusters_runs_come_home_with_their_logs(command: Command, head: Recorder) -> None:
    done = command("cluster", "pull", *AT, "-f", "json")
    assert done.status == 0, done.err
    assert rows_of(done.out) == {DONE: "new", STARTED: "new"}
    assert re.search(r"2 new; \d\.\d kB; weights and checkpoints stay there", done.err)
    assert "1 run had not ended: here such runs read as LOST until the next pull" in done.err
    assert command("runs", "logs", DONE).out == "done: step 1\n"
    assert "a worker\n" in command("runs", "logs", DONE, "--worker").out
    assert "train,loss,2" in command("runs", "metrics", DONE, "-f", "csv").out
    assert "done@1" in command("models", "list", "-f", "csv").out


def test_the_home_that_is_typed_is_this_machines(command: Command, head: Recorder, tmp_path: Path) -> None:
    laptop = str(tmp_path / "laptop")
    assert rows_of(command("--home", laptop, "cluster", "pull", *AT, "-f", "json").out) == {DONE: "new", STARTED: "new"}
    assert command("--home", laptop, "runs", "logs", DONE).out == "done: step 1\n"


def test_another_pull_brings_what_has_changed_since(command: Command, head: Recorder, there: Settings) -> None:
    command("cluster", "pull", *AT)
    head.registry.metrics.record(STARTED, [MetricEvent(7, "train", {"loss": 0.5})])
    (there.home / "storage" / "runs" / STARTED / "log.txt").write_text("started: step 1\nstep 7\n")
    again = command("cluster", "pull", *AT, "-f", "json")
    assert rows_of(again.out) == {STARTED: "updated"}
    assert "1 updated, 1 unchanged" in again.err
    assert command("runs", "logs", STARTED).out == "started: step 1\nstep 7\n"


def test_a_dry_run_tells_and_changes_nothing(command: Command, head: Recorder, home: Path) -> None:
    told = command("cluster", "pull", *AT, "--dry-run", "-f", "json")
    assert (told.status, rows_of(told.out)) == (0, {DONE: "new", STARTED: "new"})
    (done, _) = json.loads(told.out)
    assert (done["measurements"], done["trials"], done["log_bytes"]) == (2, 0, len("done: step 1\na worker\n"))
    assert "would pull" in told.err
    assert not home.exists()


def test_a_dry_run_foretells_what_a_pull_then_does(command: Command, head: Recorder, there: Settings) -> None:
    command("cluster", "pull", STARTED, *AT)
    with Registry(Settings.from_options().registry) as registry:
        new_run(registry, run_id=DONE, name="mine")
    foretold = command("cluster", "pull", *AT, "--dry-run", "-f", "json")
    assert rows_of(foretold.out) == {DONE: "refused", STARTED: "updated"}
    head.registry.metrics.record(STARTED, [MetricEvent(8, "train", {"loss": 0.5})])
    assert rows_of(command("cluster", "pull", *AT, "-f", "json").out) == rows_of(foretold.out)


@pytest.mark.parametrize(
    ("words", "ids"),
    [(("aaaa",), {DONE}), (("--since", "2026-11-02"), {DONE, STARTED}), (("--since", "2999-01-01"), set())],
)
def test_runs_are_chosen(command: Command, head: Recorder, words: tuple[str, ...], ids: set[str]) -> None:
    assert set(rows_of(command("cluster", "pull", *words, *AT, "-f", "json").out)) == ids


def test_a_pipeline_comes_with_its_stages(command: Command, head: Recorder) -> None:
    head.registry.tag(STARTED, f"pipeline:{DONE}")
    assert set(rows_of(command("cluster", "pull", DONE, *AT, "-f", "json").out)) == {DONE, STARTED}


def test_a_run_that_is_not_there_is_named_by_the_head(command: Command, head: Recorder, home: Path) -> None:
    failed = command("cluster", "pull", "zzzz", *AT)
    assert failed.status == 3
    assert "No run's id begins with 'zzzz'" in failed.err
    assert failed.err.endswith("nothing was pulled, and nothing changed here\n")
    assert not home.exists()


def test_another_run_of_that_id_here_is_refused_and_the_others_come(command: Command, head: Recorder) -> None:
    with Registry(Settings.from_options().registry) as registry:
        new_run(registry, run_id=DONE, name="mine")
        before = everything(registry)
    done = command("cluster", "pull", *AT, "-f", "json")
    assert (done.status, rows_of(done.out)) == (4, {DONE: "refused", STARTED: "new"})
    assert "here it is pretrain mine" in done.err
    assert "it is pretrain done" in done.err
    with Registry(Settings.from_options().registry) as registry:
        assert all(row in everything(registry)["runs"] for row in before["runs"])


def test_a_pulled_run_is_neither_resumed_nor_stopped_here(command: Command, head: Recorder) -> None:
    command("cluster", "pull", *AT)
    for words in (("resume", STARTED), ("stop", STARTED)):
        refused = command(*words)
        assert refused.status == 2
        assert f"run {STARTED} was pulled from" in refused.err
        assert f"orchestrator submit --resume {STARTED}" in refused.err


def test_files_of_pulled_runs_are_no_garbage_here(command: Command, head: Recorder, there: Settings) -> None:
    """The storage of the cluster may be reached from here, as a bucket is."""
    (there.home / "storage" / "runs" / DONE / "checkpoints.json").write_text("{}")
    command("cluster", "pull", *AT)
    assert "nothing to delete" in command("gc", "--dry-run").err
    assert "checkpoints" in command("gc", "--dry-run", "--home", str(there.home)).out


def test_a_registry_that_is_reached_from_here_is_asked_without_a_cluster(
    command: Command, head: Recorder, there: Settings, cluster: JobCluster
) -> None:
    done = command("cluster", "pull", "--registry", there.registry, "-f", "json")
    assert rows_of(done.out) == {DONE: "new", STARTED: "new"}
    assert cluster.submitted == {}
    assert command("runs", "logs", DONE).out == "done: step 1\n"


def test_logs_that_are_not_reached_are_told(command: Command, head: Recorder, there: Settings) -> None:
    (there.home / "storage").rename(there.home / "unmounted")
    done = command("cluster", "pull", "--registry", there.registry)
    assert done.status == 0
    assert f"no log was found for {DONE}, {STARTED}" in done.err


def test_ones_own_registry_is_no_place_to_pull_from(command: Command) -> None:
    refused = command("cluster", "pull", "--registry", Settings.from_options().registry)
    assert refused.status == 2
    assert "is this machine's own registry" in refused.err


def test_a_head_of_another_version_is_told_apart(command: Command, cluster: JobCluster, tmp_path: Path) -> None:
    """One that can relay a command, and does not know this one."""
    old = tmp_path / "old" / "orchestrator"
    old.parent.mkdir()
    relay = "from orchestrator.execution import relay as r; import sys; words = sys.argv[1:]"
    relay += "; r.relay_command(words[1], ['cluster', 'bundel'], terminals={})"
    old.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{relay}" "$@"\n')
    old.chmod(0o755)
    cluster.path = f"{old.parent}:/usr/bin:/bin"
    failed = command("cluster", "pull", *AT)
    assert failed.status == 5
    assert "No such command 'bundel'" in failed.err
    assert "install there the one that is here" in failed.err


def test_without_an_address_it_is_asked_for(command: Command) -> None:
    refused = command("cluster", "pull")
    assert refused.status == 5
    assert "--address http://127.0.0.1:8265" in refused.err


def open_whole(bundle: Path, registry: Registry, home: Path) -> None:
    with open_bundle(bundle) as opened:
        list(bring_runs(opened, registry, home))


def test_a_bundle_names_no_place_to_write(head: Recorder, there: Settings, home: Path, tmp_path: Path) -> None:
    with Registry(Settings.from_options().registry) as registry:
        write_bundle(tmp_path / "bundle", there, Wanted())
        with open_bundle(tmp_path / "bundle") as opened:
            with closing(sqlite3.connect(opened.file)) as connection, connection:
                connection.execute("UPDATE bundle_logs SET name = '../../../canary.txt' WHERE name = 'log.txt'")
            odd = replace(opened.contents.runs[0], id="../canary")
            list(bring_runs(opened, registry, home))
            hostile = replace(opened, contents=replace(opened.contents, runs=(odd,)))
            assert [each.change for each in bring_runs(hostile, registry, home)] == ["refused"]
    assert not list(tmp_path.rglob("canary*"))


def test_a_bundle_that_is_cut_off_anywhere_changes_nothing(
    head: Recorder, there: Settings, home: Path, tmp_path: Path
) -> None:
    bundle, cut = tmp_path / "bundle", tmp_path / "cut"
    write_bundle(bundle, there, Wanted())
    data = bundle.read_bytes()
    with Registry(Settings.from_options().registry) as registry:
        for length in range(0, len(data), len(data) // 20):
            cut.write_bytes(data[:length])
            with pytest.raises(ClusterError, match="cut off or damaged, and nothing was changed here"):
                open_whole(cut, registry, home)
        assert registry.transfers.begun_since(None) == []
    assert not (home / "pulled").exists()


def test_a_pull_that_is_interrupted_between_two_runs_goes_on_with_the_next_one(
    command: Command, head: Recorder, there: Settings, home: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle"
    write_bundle(bundle, there, Wanted())
    with Registry(Settings.from_options().registry) as registry:
        with open_bundle(bundle) as opened:
            first = next(bring_runs(opened, registry, home))
        assert registry.transfers.begun_since(None) == [first.run.id]
    assert rows_of(command("cluster", "pull", *AT, "-f", "json").out) == {STARTED: "new"}


def test_a_run_that_has_just_ended_comes_again(
    command: Command, head: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log may not have had its last line."""
    assert run_bundle._SETTLED.total_seconds() > 10
    head.complete(STARTED, RunOutcome())
    command("cluster", "pull", *AT)
    assert set(rows_of(command("cluster", "pull", *AT, "-f", "json").out)) == {STARTED}
