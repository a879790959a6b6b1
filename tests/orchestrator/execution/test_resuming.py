"""Going on with a run from the shell, without Ray: what is refused, and what another attempt may change.

Alone: .venv/bin/pytest tests/orchestrator/execution/test_resuming.py
"""

import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.results import CheckpointEvent
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.cli.entry import run_command_line
from orchestrator.execution import runner
from orchestrator.kinds.base import RunContext
from orchestrator.kinds.corpus import CorpusKind
from orchestrator.kinds.resolved import Resolved
from orchestrator.kinds.sweep import SweepKind
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.specs import CorpusSpec
from orchestrator.specs.loading import parse_spec, spec_values
from orchestrator.storage import delete, read_json
from orchestrator.training.checkpoints import accept_drift
from tests.orchestrator.small_specs import SWEEP

SPEC = "kind: corpus\ncorpus: {files: [text.txt]}\ntokenizer: words\n"
Outcome = tuple[int, str]
Run = Callable[..., Outcome]


class Laboratory:
    """Commands in this process, on runs whose work is a function."""

    def __init__(self, settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.work: Callable[[CorpusSpec, RunContext], None] = lambda spec, context: None
        self.settings = settings
        self.left: list[Sequence[str]] = []
        """Folders whose files were counted as written, of each check of the disk."""

    def command(self, *arguments: str) -> Outcome:
        """Status of a command, and what it said on stderr."""
        status = run_command_line(arguments)
        return status, self._capsys.readouterr().err

    def start(self, work: Callable[[CorpusSpec, RunContext], None]) -> str:
        """Id of a new run that does some work."""
        self.work = work
        run_command_line(["run", "words.yaml"])
        return self._capsys.readouterr().out.strip()

    def log(self, run_id: str) -> str:
        return (Path(self.settings.storage) / "runs" / run_id / "log.txt").read_text()


def fail(spec: CorpusSpec, context: RunContext) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def laboratory(
    settings: Settings,
    no_cluster: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Laboratory:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.yaml").write_text(SPEC)
    (tmp_path / "text.txt").write_text("Some words.\n")
    made = Laboratory(settings, capsys)

    def run(kind: CorpusKind, spec: CorpusSpec, inputs: Any, context: RunContext) -> None:
        made.work(spec, context)

    def count_left(spec: Any, inputs: Any, left: Sequence[str] = ()) -> None:
        made.left.append(left)

    monkeypatch.setattr(CorpusKind, "preflight", lambda kind, spec, inputs: None)
    monkeypatch.setattr(runner, "check_storage", count_left)
    monkeypatch.setattr(runner, "check_disk", count_left)
    monkeypatch.setattr(CorpusKind, "run", run)
    monkeypatch.setattr(CorpusKind, "record", lambda kind, result, run_id, recorder: RunOutcome())
    monkeypatch.setattr(Resolved, "pin", lambda inputs, spec: spec)
    monkeypatch.setattr(Resolved, "fetch", lambda inputs, spec: None)
    return made


def test_an_attempt_changes_execution_fields_and_the_runs_spec_stays(laboratory: Laboratory) -> None:
    run_id = laboratory.start(fail)
    seen: list[int | None] = []
    laboratory.work = lambda spec, context: seen.append(spec.num_cpus)
    assert laboratory.command("resume", run_id, "num_cpus=3")[0] == 0
    assert seen == [3]
    assert "this attempt changes num_cpus: nothing → 3" in laboratory.log(run_id)
    with Registry(laboratory.settings.registry) as registry:
        record = registry.run(run_id)
    assert (record.state, record.attempt, record.spec["num_cpus"]) == (RunState.COMPLETED, 2, None)


def test_the_disk_is_checked_with_what_the_run_has_left(laboratory: Laboratory) -> None:
    run_id = laboratory.start(fail)
    with Registry(laboratory.settings.registry) as registry:
        recorder, stage = Recorder(registry), {"kind": "corpus", "tags": [f"pipeline:{run_id}"]}
        recorder.complete(recorder.start(stage, "f", storage_path="/completed").id, RunOutcome())
        recorder.fail(recorder.start(stage, "f", storage_path="/failed").id, KeyboardInterrupt())
    laboratory.work = lambda spec, context: None
    assert laboratory.command("resume", run_id)[0] == 0
    assert laboratory.left == [(), [f"{laboratory.settings.storage}/runs/{run_id}", "/failed"]]


def test_a_field_that_shapes_the_result_starts_no_attempt(laboratory: Laboratory) -> None:
    run_id = laboratory.start(fail)
    status, said = laboratory.command("resume", run_id, "shard_bytes=5000")
    assert status == 2
    assert "shard_bytes: " in said
    with Registry(laboratory.settings.registry) as registry:
        assert registry.run(run_id).attempt == 1


def test_a_completed_run_stays_as_it_is(laboratory: Laboratory) -> None:
    run_id = laboratory.start(lambda spec, context: None)
    laboratory.work = fail
    status, said = laboratory.command("resume", run_id)
    assert status == 0
    assert "has completed; there is nothing to resume" in said


def test_an_unknown_run_is_status_3(laboratory: Laboratory) -> None:
    assert laboratory.command("resume", "zzz")[0] == 3


@pytest.mark.parametrize(("host", "pid"), [("elsewhere", 77), (socket.gethostname(), os.getppid())])
def test_a_run_at_work_is_named_with_its_host_and_process(laboratory: Laboratory, host: str, pid: int) -> None:
    run_id = laboratory.start(fail)
    with Registry(laboratory.settings.registry) as registry:
        registry.lifecycle.start_attempt(run_id, host=host, pid=pid)
    status, said = laboratory.command("resume", run_id)
    assert status == 2
    assert f"still running on {host}, process {pid}; " in said
    assert f"orchestrator stop {run_id}" in said


def test_a_storage_that_is_gone_is_named(laboratory: Laboratory) -> None:
    run_id = laboratory.start(fail)
    with Registry(laboratory.settings.registry) as registry:
        registry.checkpoints.record(run_id, [CheckpointEvent(5, "p", "d", 1)])
    delete(f"{laboratory.settings.storage}/runs/{run_id}")
    status, said = laboratory.command("resume", run_id)
    assert status == 2
    assert f"runs/{run_id}, which is not there; mount that storage again" in said


def test_a_run_that_was_killed_before_it_left_anything_begins_anew(laboratory: Laboratory) -> None:
    run_id = laboratory.start(fail)
    delete(f"{laboratory.settings.storage}/runs")
    laboratory.work = lambda spec, context: None
    assert laboratory.command("resume", run_id)[0] == 0


def test_a_storage_that_cannot_be_written_is_named(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, data: bytes) -> None:
        raise OSError(30, "Read-only file system")

    run_id = laboratory.start(fail)
    monkeypatch.setattr("orchestrator.kinds.preflight.write_bytes", refuse)
    status, said = laboratory.command("resume", run_id)
    assert status == 2
    assert "cannot be written: Read-only file system; mount it writable" in said


def test_a_drift_is_refused_until_it_is_allowed_and_then_tagged(laboratory: Laboratory) -> None:
    def go_on(spec: CorpusSpec, context: RunContext) -> None:
        for drift in accept_drift(["corpus.text.txt: 12 bytes → 13 bytes"], 5, allowed=context.allow_drift):
            context.mark_drift(drift.step, drift.differences)

    run_id = laboratory.start(fail)
    laboratory.work = go_on
    status, said = laboratory.command("resume", run_id)
    assert status == 2
    assert "corpus.text.txt: 12 bytes → 13 bytes" in said
    status, said = laboratory.command("resume", run_id, "--allow-drift")
    assert status == 0
    warning = "warning: goes on from step 5 although this has changed: corpus.text.txt: 12 bytes → 13 bytes"
    assert warning in laboratory.log(run_id)
    with Registry(laboratory.settings.registry) as registry:
        assert registry.annotations.tags(run_id) == ["drift"]


def test_a_run_goes_on_in_the_folder_that_its_paths_are_meant_from(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = laboratory.start(fail)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    found: list[bool] = []
    laboratory.work = lambda spec, context: found.append(Path(spec.corpus.files[0]).is_file())
    status, said = laboratory.command("resume", run_id, "--registry", "../home/registry.sqlite")
    assert status == 0, said
    assert found == [True]
    assert Path.cwd() == tmp_path / "elsewhere"
    origin = read_json(f"{laboratory.settings.storage}/runs/{run_id}/origin.json")
    assert origin["folder"] == str(tmp_path)
    assert origin["spec"]["corpus"]["files"] == [f"{tmp_path}/text.txt"]


@pytest.mark.parametrize(
    ("text", "said"),
    [('{"folder": "/so', "origin.json is damaged"), ('{"folder": "/gone"}', "was started in /gone, which is gone")],
)
def test_an_origin_that_is_damaged_or_gone_is_told(laboratory: Laboratory, text: str, said: str) -> None:
    run_id = laboratory.start(fail)
    Path(f"{laboratory.settings.storage}/runs/{run_id}/origin.json").write_text(text)
    status, told = laboratory.command("resume", run_id)
    assert said in told
    assert status == 2 or "gone" in text


SEARCH = {
    **SWEEP,
    "name": "search",
    "search": "random",
    "trials": 2,
    "space": {"dropout": {"uniform": [0.0, 0.5]}},
    "execution": {"gpus_per_trial": 0},
}


@pytest.fixture
def search(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[int | None]]:
    """Id of a sweep of two points that has completed, and the points of each of its further attempts."""
    seen: list[int | None] = []
    monkeypatch.setattr(SweepKind, "run", lambda kind, spec, inputs, context: seen.append(spec.trials))
    monkeypatch.setattr(SweepKind, "record", lambda kind, result, run_id, recorder: RunOutcome())
    monkeypatch.setattr(SweepKind, "check_resume", lambda *arguments: None)
    spec = parse_spec(SEARCH)
    with Registry(laboratory.settings.registry) as registry:
        recorder = Recorder(registry)
        folder = f"{laboratory.settings.storage}/runs/r"
        run = recorder.start(spec_values(spec), spec.fingerprint(), metric="accuracy", storage_path=folder)
        Path(folder).mkdir(parents=True)
        recorder.complete(run.id, RunOutcome())
    return run.id, seen


def test_a_search_that_has_completed_goes_on_with_more_points(
    laboratory: Laboratory, search: tuple[str, list[int | None]]
) -> None:
    run_id, seen = search
    assert laboratory.command("resume", run_id, "trials=5")[0] == 0
    assert laboratory.command("resume", run_id)[0] == 0
    assert seen == [5]
    with Registry(laboratory.settings.registry) as registry:
        record = registry.run(run_id)
        assert (record.state, record.attempt, record.spec["trials"]) == (RunState.COMPLETED, 2, 5)
        assert record.fingerprint == parse_spec({**SEARCH, "trials": 5}).fingerprint()
        assert ["2 → 5" in note.text for note in registry.annotations.notes(run_id)] == [True]
        assert registry.attempts(run_id)[1].overrides == ["trials=5"]


@pytest.mark.parametrize(
    ("words", "tag", "named"),
    [
        (["trials=1"], "", "the sweep has 2 points"),
        (["trials=5"], "pipeline:aaaaaaaaaaaa", "is a stage of a pipeline"),
        (["execution.max_failures=3"], "", "has completed"),
        (["trials=2"], "", "has completed"),
        (["space.dropout=[0.1]"], "", "space.dropout"),
    ],
)
def test_a_wish_that_no_attempt_can_follow_is_refused(
    laboratory: Laboratory, search: tuple[str, list[int | None]], words: list[str], tag: str, named: str
) -> None:
    run_id, seen = search
    with Registry(laboratory.settings.registry) as registry:
        registry.annotations.tag(run_id, [*filter(None, [tag])], reserved=True)
    status, said = laboratory.command("resume", run_id, *words)
    assert (status, seen) == (2, [])
    assert named in " ".join(said.split())
