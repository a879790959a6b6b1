"""A run's log over attempts, and on a storage that fails.

Run alone: pytest tests/orchestrator/execution/test_run_log.py
"""

from pathlib import Path
from uuid import uuid4

import pytest

from orchestrator.execution import run_log
from orchestrator.storage import join, read_bytes


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_attempts_append(kind: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "run") if kind == "local" else f"memory://{uuid4().hex}"
    for attempt in (1, 2):
        log = run_log.RunLog(folder)
        log.write(f"attempt {attempt}")
        log.close()
    lines = read_bytes(join(folder, run_log.LOG_FILE)).decode().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == ["attempt 1", "attempt 2"]


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_log_that_cannot_be_written_says_so_once_and_ends_nothing(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    log = run_log.RunLog(str(tmp_path / "run") if kind == "local" else f"memory://{uuid4().hex}")
    monkeypatch.setattr(Path, "open", fail)
    monkeypatch.setattr(run_log, "write_bytes", fail)
    for _ in range(2):
        log.write("step 1")
        log.close()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "No space left on device" in said[0]


def test_half_of_a_character_does_not_end_a_run(tmp_path: Path) -> None:
    run_log.RunLog(str(tmp_path)).write("not UTF-8: \udcff")
    assert (tmp_path / run_log.LOG_FILE).read_text().endswith("not UTF-8: ?\n")
