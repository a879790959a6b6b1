"""What a worker's process writes is kept with the run, however it ends. Real processes, no Ray.

Run alone: pytest tests/orchestrator/training/test_worker_log.py
"""

import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.storage import read_bytes
from orchestrator.training.worker_log import worker_logs
from tests.waiting import PATIENCE_S

OPEN = """
import os, signal, sys
from orchestrator.training.worker_log import kept_output
with kept_output(sys.argv[1], 2, 1):
"""
BEGIN = f"""{OPEN}
    print("a warning", file=sys.stderr)
    os.write(1, b"from below Python\\n")
"""


def work(folder: Path, how_it_ends: str) -> str:
    """Let a worker write and end; returns the text of its log."""
    code = BEGIN + f"    {how_it_ends}\n"
    subprocess.run([sys.executable, "-c", code, str(folder)], timeout=PATIENCE_S, check=False, capture_output=True)
    ((attempt, rank, path),) = worker_logs(str(folder))
    assert (attempt, rank) == (2, 1)
    return read_bytes(path).decode()


def test_words_and_tracebacks_are_kept(tmp_path: Path) -> None:
    text = work(tmp_path, "raise RuntimeError('no room')")
    assert "rank 1, attempt 2, process " in text
    for line in ("a warning", "from below Python", "Traceback (most recent call last)", "RuntimeError: no room"):
        assert line in text


def test_the_last_words_of_a_killed_process_are_kept_by_the_one_that_begins_again(tmp_path: Path) -> None:
    text = work(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")
    assert text.endswith("a warning\nfrom below Python\n")
    text = work(tmp_path, "pass")
    assert text.count("a warning") == 2
    assert text.endswith("ended\n")


def test_an_object_store_gets_the_log_at_the_end(tmp_path: Path) -> None:
    code = (
        BEGIN.replace("sys.argv[1]", "'memory://run'")
        + """
from orchestrator.storage import read_bytes
from orchestrator.training.worker_log import worker_logs
print(read_bytes(worker_logs("memory://run")[0][2]).decode())
"""
    )
    found = subprocess.run([sys.executable, "-c", code], timeout=PATIENCE_S, check=True, capture_output=True, text=True)
    assert "a warning\nfrom below Python\n" in found.stdout
    assert found.stdout.endswith("ended\n\n")


def test_a_log_that_cannot_be_written_ends_no_run(tmp_path: Path) -> None:
    (tmp_path / "workers").write_text("in the way")
    found = subprocess.run(
        [sys.executable, "-c", BEGIN, str(tmp_path)], timeout=PATIENCE_S, check=True, capture_output=True, text=True
    )
    assert found.stdout == "from below Python\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize(("how_it_ends", "last_words"), [("pass", ""), ("raise RuntimeError('no room')", "no room")])
def test_a_full_disk_under_the_log_changes_nothing_of_how_the_work_ends(
    tmp_path: Path, how_it_ends: str, last_words: str
) -> None:
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "attempt-2-rank-1.txt").symlink_to("/dev/full")
    code = OPEN + f"    {how_it_ends}\n"
    found = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], timeout=PATIENCE_S, check=False, capture_output=True, text=True
    )
    assert found.returncode == (1 if last_words else 0)
    assert "No space left" not in found.stderr
    assert last_words in found.stderr
