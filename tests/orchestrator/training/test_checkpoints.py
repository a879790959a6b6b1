"""Checkpoints that cannot be written, deleted or read, those of a newer version, and those written in the background.

pytest tests/orchestrator/training/test_checkpoints.py
"""

import errno
import os
import pathlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bert_core.checkpoints import tensor_files, training_state
from bert_core.checkpoints.training_state import contents_of
from bert_core.errors import CheckpointError, NewerFormatError
from orchestrator.base.errors import RunStoppedError
from orchestrator.base.results import CheckpointEvent, DriftEvent
from orchestrator.base.settings import ASKED_AT_VARIABLE
from orchestrator.storage import delete, exists, join, read_bytes
from orchestrator.storage.attempts import how_to_go_on
from orchestrator.training import checkpoints
from orchestrator.training.checkpoints import (
    Checkpoints,
    CheckpointSaver,
    accept_drift,
    check_drift,
    delete_checkpoints,
)
from orchestrator.training.snapshots import Snapshots, snapshot_folders
from tests.waiting import PATIENCE_S


@pytest.fixture
def model() -> nn.Linear:
    return nn.Linear(2, 2)


@pytest.fixture
def optimizer(model: nn.Linear) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters())


@pytest.fixture
def stubborn(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Folders that cannot be deleted, as on NFS where a file in them is open; undoing the patch lets them go."""

    def refuse(path: str) -> None:
        raise OSError(errno.ENOTEMPTY, "Directory not empty", path)

    monkeypatch.setattr(checkpoints, "delete", refuse)
    return monkeypatch


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def test_an_old_checkpoint_that_cannot_be_deleted_is_a_warning_and_goes_at_the_next_start(
    tmp_path: Path, model: nn.Linear, optimizer: torch.optim.AdamW, stubborn: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    saved = Checkpoints(str(tmp_path), keep=1)
    for step in (1, 2):
        event = saved.write(step, contents_of(model, optimizer, {"step": step}), warnings.append)
    assert [event] == saved.newest_first()
    (warning,) = warnings
    assert "step-00000001-attempt-1" in warning
    assert "Directory not empty" in warning
    assert names(tmp_path) == ["step-00000001-attempt-1", "step-00000002-attempt-1"]

    again = Checkpoints(str(tmp_path), attempt=2, keep=1)
    again.tidy(warnings.append)  # it still cannot be deleted
    assert len(warnings) == 2
    stubborn.setattr(checkpoints, "delete", delete)
    again.tidy(warnings.append)
    assert names(tmp_path) == ["step-00000002-attempt-1"]
    found = again.read_newest(warnings.append)
    assert found is not None
    assert found[1].extra == {"step": 2}
    assert len(warnings) == 2


def test_a_run_that_has_ended_stays_so_where_its_checkpoints_cannot_be_deleted(
    tmp_path: Path,
    model: nn.Linear,
    optimizer: torch.optim.AdamW,
    stubborn: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    Checkpoints(str(tmp_path)).save(1, model, optimizer, {})
    delete_checkpoints(str(tmp_path))
    assert "cannot be deleted" in caplog.text


def test_a_checkpoint_of_a_newer_version_is_not_passed_over_for_an_older_one(
    tmp_path: Path, model: nn.Linear, optimizer: torch.optim.AdamW, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    saved = Checkpoints(str(tmp_path))
    saved.save(1, model, optimizer, {})
    with monkeypatch.context() as newer:
        newer.setattr(training_state, "_FORMAT", 2)
        saved.save(2, model, optimizer, {})
    with pytest.raises(NewerFormatError, match="step-00000002"):
        saved.read_newest(warnings.append)
    assert warnings == []


@pytest.mark.parametrize("is_older_one_damaged", [False, True])
def test_checkpoints_that_the_storage_does_not_give_just_now_are_not_called_damaged(
    tmp_path: Path,
    model: nn.Linear,
    optimizer: torch.optim.AdamW,
    monkeypatch: pytest.MonkeyPatch,
    is_older_one_damaged: bool,
) -> None:
    saved = Checkpoints(str(tmp_path))
    for step in (1, 2):
        saved.save(step, model, optimizer, {})

    def fail(path: str) -> Path:
        if is_older_one_damaged and "step-00000001" in path:
            raise CheckpointError(f"{path} is altered")
        raise OSError(errno.ESTALE, "Stale file handle", path)

    monkeypatch.setattr(checkpoints, "local_copy", fail)
    warnings: list[str] = []
    with pytest.raises(OSError, match=r"Stale file handle.*step-00000002"):
        saved.read_newest(warnings.append)
    assert [warning.split(" is ")[0] for warning in warnings] == ["checkpoint of step 2", "checkpoint of step 1"]


class Training:
    """A model of four numbers that changes with each step."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(2, 2)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.step()

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.ones(1, 2)).square().sum().backward()
        self.optimizer.step()


class HeldWriter(Checkpoints):
    """Checkpoints whose writer waits to be let go."""

    may_write = threading.Event()

    def write(self, *arguments: Any) -> CheckpointEvent:
        assert self.may_write.wait(PATIENCE_S)
        return super().write(*arguments)


@pytest.fixture
def held(tmp_path: Path) -> HeldWriter:
    HeldWriter.may_write.clear()
    return HeldWriter(str(tmp_path / "run"))


def ignore(event: CheckpointEvent) -> None:
    """A listener of complete checkpoints."""


def test_a_checkpoint_is_that_of_its_step_and_named_when_it_is_complete(tmp_path: Path, held: HeldWriter) -> None:
    events: list[CheckpointEvent] = []
    training, saver = Training(), CheckpointSaver(held, in_background=True, on_saved=events.append)
    extra = {"sizes": [3, 4]}
    at_once = Checkpoints(str(tmp_path / "at_once")).save(1, training.model, training.optimizer, extra)
    saver.save(1, training.model, training.optimizer, extra)
    training.step()
    saver.raise_failure()
    assert held.newest_first() == events == []
    held.may_write.set()
    saver.wait()
    assert events == held.newest_first()
    assert events[0].digest == at_once.digest


def test_a_write_that_fails_is_raised_when_it_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> CheckpointEvent:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Checkpoints, "write", fail)
    training = Training()
    saver = CheckpointSaver(Checkpoints(str(tmp_path)), True, ignore)
    saver.save(1, training.model, training.optimizer, {})
    with pytest.raises(OSError, match="No space left"):
        saver.wait()
    saver.wait()  # which is raised once
    at_once = CheckpointSaver(Checkpoints(str(tmp_path)), False, ignore)
    with pytest.raises(OSError, match="No space left"):
        at_once.save(1, training.model, training.optimizer, {})


def test_a_failure_beside_another_error_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> CheckpointEvent:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Checkpoints, "write", fail)
    training = Training()
    saver = CheckpointSaver(Checkpoints(str(tmp_path)), True, ignore)
    saver.save(1, training.model, training.optimizer, {})
    saver.settle()
    assert "the checkpoint that was being written failed: [Errno 5]" in caplog.text


STEP_BEFORE, STEP = 5, 10


def trained(num_updates: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(num_updates):
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    return model, optimizer


class FailingDisk:
    """Calls to the system that write, of which the n-th one fails."""

    def __init__(self, patched: pytest.MonkeyPatch, fail_at: int, code: int) -> None:
        self.num_calls, self._fail_at, self._code = 0, fail_at, code
        for owner, name in (
            (os, "fsync"),
            (pathlib.Path, "replace"),
            (pathlib.Path, "rename"),
            (pathlib.Path, "mkdir"),
            (pathlib.Path, "write_bytes"),
            (pathlib.Path, "touch"),
            (tensor_files, "save_file"),
        ):
            patched.setattr(owner, name, self._wrap(getattr(owner, name)))

    def _wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.num_calls += 1
            if self.num_calls == self._fail_at:
                raise OSError(self._code, os.strerror(self._code))
            return function(*args, **options)

        return call


def weights(run_folder: Path) -> tuple[int, list[float]]:
    """The step of the newest good checkpoint and its weights; no checkpoint is passed over."""
    model, optimizer = trained(0)
    warnings: list[str] = []
    loaded = Checkpoints(str(run_folder), attempt=9).read_newest(warnings.append)
    assert loaded is not None
    loaded[1].load_into(model, optimizer)
    assert warnings == []
    return loaded[0].step, [float(value) for parameter in model.parameters() for value in parameter.detach().flatten()]


@pytest.mark.parametrize("in_background", [False, True])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
@pytest.mark.heavy
@pytest.mark.core
def test_a_disk_that_fails_anywhere_leaves_a_good_checkpoint(code: int, in_background: bool, tmp_path: Path) -> None:
    """Fail the n-th call, n = 1, 2, 3 … until the checkpoint is saved."""
    expected = {}
    for step, num_updates in ((STEP_BEFORE, 1), (STEP, 2)):
        Checkpoints(str(tmp_path / f"{step}")).save(step, *trained(num_updates), {})
        expected[step] = weights(tmp_path / f"{step}")[1]
    outcomes = []
    for fail_at in range(1, 200):
        run_folder = tmp_path / f"run-{fail_at}"
        checkpoints = Checkpoints(str(run_folder), keep=1)
        checkpoints.save(STEP_BEFORE, *trained(1), {})
        model, optimizer = trained(2)
        with pytest.MonkeyPatch.context() as patched:
            disk = FailingDisk(patched, fail_at, code)
            try:
                saver = CheckpointSaver(checkpoints, in_background, ignore)
                saver.save(STEP, model, optimizer, {})
                saver.wait()
                outcomes.append("saved")
            except OSError as error:
                outcomes.append("failed" if error.errno == code else f"another error: {error}")
        step, found = weights(run_folder)
        assert found == expected[step]
        assert step == STEP or outcomes[-1] == "failed"
        checkpoints.tidy()
        assert [path.name for path in run_folder.rglob("*.tmp*")] == [], "nothing half written stays"
        assert len(list((run_folder / "checkpoints").iterdir())) == 1
        if disk.num_calls < fail_at:
            break
    assert set(outcomes) == {"failed", "saved"}
    assert outcomes[-1] == "saved"
    assert outcomes.count("failed") >= 8


def writer_of(text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "model.safetensors").write_text(text)

    return write


def contents(run_folder: str) -> dict[int, bytes]:
    return {
        step: read_bytes(join(folder, "model.safetensors")) for step, folder in snapshot_folders(run_folder).items()
    }


@pytest.fixture(params=["local", "memory"])
def run_folder(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    return str(tmp_path) if request.param == "local" else f"memory://{tmp_path}"


def test_snapshots_are_found_in_the_order_of_their_steps(run_folder: str) -> None:
    assert snapshot_folders(run_folder) == {}
    snapshots = Snapshots(run_folder)
    for step in (9, 10, 0):
        snapshots.save(step, writer_of(str(step)))
    assert list(contents(run_folder).items()) == [(0, b"0"), (9, b"9"), (10, b"10")]


def test_a_claim_keeps_what_comes_before_its_step_and_deletes_the_rest(run_folder: str) -> None:
    for step in (0, 5, 10):
        Snapshots(run_folder).save(step, writer_of("first"))
    left = snapshot_folders(run_folder)[10]
    Snapshots(run_folder, attempt=2).claim(5)
    assert contents(run_folder) == {0: b"first", 5: b"first"}
    assert not exists(left)
    Snapshots(run_folder, attempt=2).save(10, writer_of("second"))
    assert contents(run_folder)[10] == b"second"


def test_a_claim_deletes_what_a_killed_process_left(tmp_path: Path) -> None:
    Snapshots(str(tmp_path)).save(5, writer_of("5"))
    for name in ("step-00000010-attempt-1", ".step-00000010-attempt-1.1a2b.tmp"):
        (tmp_path / "snapshots" / name).mkdir()
    Snapshots(str(tmp_path), attempt=2).claim(7)
    assert [path.name for path in (tmp_path / "snapshots").iterdir()] == ["step-00000005-attempt-1"]


def test_a_superseded_attempt_leaves_no_snapshot(run_folder: str) -> None:
    older, newer = Snapshots(run_folder), Snapshots(run_folder, attempt=2)

    def overtaken(folder: Path) -> None:
        writer_of("older")(folder)
        newer.claim(0)

    with pytest.raises(RunStoppedError, match="attempt 2"):
        older.save(5, overtaken)
    assert not exists(join(run_folder, "snapshots", "step-00000005-attempt-1"))
    with pytest.raises(RunStoppedError):
        older.save(10, writer_of("older"))
    with pytest.raises(RunStoppedError):
        older.claim(0)
    assert contents(run_folder) == {}


@pytest.mark.parametrize("text", ["", '{"attempt": 1, "snapshots": [{"step": 1}]}'])
def test_a_damaged_manifest_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "snapshots.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"snapshots\.json"):
        snapshot_folders(str(tmp_path))


OLD, NEW = "a" * 64, "b" * 64
SAVED: dict[str, Any] = {
    "identity": {"spec": OLD, "corpus": OLD, "torch": "2.12"},
    "details": {"spec": {"steps": 10, "model": {"size": "tiny"}}, "corpus": {"a.txt": "7 bytes"}},
}


@pytest.mark.parametrize(
    ("identity", "details", "lines"),
    [
        ({"spec": OLD, "corpus": OLD, "torch": "2.12"}, {"spec": {"steps": 11}}, []),
        ({"torch": "2.13"}, {}, ["torch: 2.12 → 2.13"]),
        ({"corpus": NEW}, {"corpus": {"a.txt": "9 bytes"}}, ["corpus.a.txt: 7 bytes → 9 bytes"]),
        ({"corpus": NEW}, {"corpus": {"a.txt": "7 bytes"}}, [f"corpus: {OLD[:12]}… → {NEW[:12]}…"]),
        (
            {"spec": NEW},
            {"spec": {"steps": 10, "model": {"size": "base"}, "seed": 1}},
            ["spec.model.size: tiny → base", "spec.seed: nothing → 1"],
        ),
        ({"teacher": NEW}, {}, []),
    ],
    ids=["equal", "version", "file", "content of a file", "spec", "not recorded then"],
)
def test_what_has_changed_is_named_by_field(
    identity: dict[str, str], details: dict[str, Any], lines: list[str]
) -> None:
    assert check_drift(SAVED, identity, details) == lines


def test_a_long_list_of_changes_is_cut() -> None:
    was, now = ({"corpus": {f"{number}.txt": size for number in range(20)}} for size in ("1 bytes", "2 bytes"))
    lines = check_drift({"identity": {"corpus": OLD}, "details": was}, {"corpus": NEW}, now)
    assert (len(lines), lines[-1]) == (9, "and 12 more")


def test_a_change_is_refused_with_the_way_out_unless_it_is_allowed() -> None:
    with pytest.raises(CheckpointError, match=r"from step 5, .*: torch: 1 → 2\. Put the old state back.*--allow-drift"):
        accept_drift(["torch: 1 → 2"], 5, allowed=False)
    assert accept_drift(["torch: 1 → 2"], 5, allowed=True) == [DriftEvent(5, ("torch: 1 → 2",))]
    assert accept_drift([], 5, allowed=False) == []


@pytest.mark.parametrize(
    ("asked_at", "command"),
    [("", "orchestrator resume 7f3a"), ("http://a:8265", "orchestrator --address http://a:8265 submit --resume 7f3a")],
)
def test_a_run_is_resumed_where_it_was_asked_for(asked_at: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ASKED_AT_VARIABLE, asked_at)
    assert how_to_go_on("7f3a") == f"go on with: {command}"
