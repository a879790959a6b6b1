"""Snapshots of a run: found by their manifest, kept from the claim of an attempt on, never left by a superseded one.

pytest tests/orchestrator/training/test_snapshots.py
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from bert_core.errors import CheckpointError
from orchestrator.errors import RunStoppedError
from orchestrator.storage import exists, join, read_bytes
from orchestrator.training.snapshots import Snapshots, snapshot_folders


def weights(text: str) -> Callable[[Path], None]:
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
        snapshots.save(step, weights(str(step)))
    assert list(contents(run_folder).items()) == [(0, b"0"), (9, b"9"), (10, b"10")]


def test_a_claim_keeps_what_comes_before_its_step_and_deletes_the_rest(run_folder: str) -> None:
    for step in (0, 5, 10):
        Snapshots(run_folder).save(step, weights("first"))
    left = snapshot_folders(run_folder)[10]
    Snapshots(run_folder, attempt=2).claim(5)
    assert contents(run_folder) == {0: b"first", 5: b"first"}
    assert not exists(left)
    Snapshots(run_folder, attempt=2).save(10, weights("second"))
    assert contents(run_folder)[10] == b"second"


def test_a_claim_deletes_what_a_killed_process_left(tmp_path: Path) -> None:
    Snapshots(str(tmp_path)).save(5, weights("5"))
    for name in ("step-00000010-attempt-1", ".step-00000010-attempt-1.1a2b.tmp"):
        (tmp_path / "snapshots" / name).mkdir()
    Snapshots(str(tmp_path), attempt=2).claim(7)
    assert [path.name for path in (tmp_path / "snapshots").iterdir()] == ["step-00000005-attempt-1"]


def test_a_superseded_attempt_leaves_no_snapshot(run_folder: str) -> None:
    older, newer = Snapshots(run_folder), Snapshots(run_folder, attempt=2)

    def overtaken(folder: Path) -> None:
        weights("older")(folder)
        newer.claim(0)

    with pytest.raises(RunStoppedError, match="attempt 2"):
        older.save(5, overtaken)
    assert not exists(join(run_folder, "snapshots", "step-00000005-attempt-1"))
    with pytest.raises(RunStoppedError):
        older.save(10, weights("older"))
    with pytest.raises(RunStoppedError):
        older.claim(0)
    assert contents(run_folder) == {}


@pytest.mark.parametrize("text", ["", '{"attempt": 1, "snapshots": [{"step": 1}]}'])
def test_a_damaged_manifest_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "snapshots.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"snapshots\.json"):
        snapshot_folders(str(tmp_path))
