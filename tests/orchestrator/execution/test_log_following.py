"""Following the log of a run of another process: all of it, until the run's end.

Alone: .venv/bin/pytest tests/orchestrator/execution/test_log_following.py
"""

from io import BytesIO
from pathlib import Path
from typing import IO

import pytest

from orchestrator.cli.entry import run_command_line
from orchestrator.errors import RunFailedError
from orchestrator.execution.run_log import follow_log
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.run_states import RunState
from orchestrator.settings import Settings
from orchestrator.storage import open_read, write_bytes

RUN_ID = "7f3a90b1c2d4"


def start(recorder: Recorder, folder: Path | str) -> None:
    recorder.start({"kind": "pretrain", "name": "small"}, "f" * 64, storage_path=str(folder), run_id=RUN_ID)


def test_a_log_is_waited_for_and_passed_on_to_its_last_line(
    settings: Settings, recorder: Recorder, tmp_path: Path
) -> None:
    """Events between pieces of a log: each happens once the piece before it has been passed on."""
    start(recorder, tmp_path)
    pieces: list[bytes] = []
    log = tmp_path / "log.txt"

    def take(data: bytes) -> None:
        pieces.append(data)
        if len(pieces) == 1:
            with log.open("ab") as file:
                file.write(b"step 2\n")
        elif len(pieces) == 2:
            with log.open("ab") as file:
                file.write(b"completed\n")
            recorder.complete(RUN_ID, RunOutcome())

    log.write_text("step 1\n")
    assert follow_log("7f3a", settings=settings, write=take, pause_s=0).state == RunState.COMPLETED
    assert pieces == [b"step 1\n", b"step 2\n", b"completed\n"]


def test_of_a_pipeline_the_log_of_the_stage_at_work_is_passed_on_too(
    settings: Settings, recorder: Recorder, tmp_path: Path
) -> None:
    def begin(name: str, *lines: str) -> str:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "log.txt").write_text("".join(f"{line}\n" for line in lines))
        values = {"kind": "tokenizer", "name": f"all/{name}", "tags": [f"pipeline:{RUN_ID}"]}
        return recorder.start(values, "f" * 64, storage_path=str(folder)).id

    used_again = begin("used-again", "of another pipeline")
    (tmp_path / "log.txt").write_text("stage 2 of 4\n")
    recorder.start({"kind": "pipeline", "name": "all"}, "f" * 64, storage_path=str(tmp_path), run_id=RUN_ID)
    before = begin("before", "before anybody looked")
    recorder.complete(before, RunOutcome())
    at_work = begin("at-work", "step 1")
    recorder.complete(used_again, RunOutcome())
    heard: list[str] = []

    def take(data: bytes) -> None:
        heard.extend(data.decode().splitlines())
        if heard[-1] == "step 1":
            with (tmp_path / "at-work" / "log.txt").open("a") as file:
                file.write("completed\n")
            with (tmp_path / "log.txt").open("a") as file:
                file.write("stage 4 of 4\n")
            recorder.complete(at_work, RunOutcome())
            begin("last", "step 1 of the last")
        elif heard[-1] == "step 1 of the last":
            recorder.complete(RUN_ID, RunOutcome())

    follow_log(RUN_ID, settings=settings, write=take, pause_s=0)
    assert heard == ["stage 2 of 4", "step 1", "completed", "stage 4 of 4", "step 1 of the last"]


def test_a_run_that_ended_without_a_log_is_followed_to_its_end(
    settings: Settings, recorder: Recorder, tmp_path: Path
) -> None:
    start(recorder, tmp_path)
    recorder.fail(RUN_ID, RunFailedError("no luck"))
    pieces: list[bytes] = []
    assert follow_log(RUN_ID, settings=settings, write=pieces.append, pause_s=0).state == RunState.FAILED
    assert pieces == []


def test_of_a_log_in_a_bucket_only_what_was_added_is_read(
    settings: Settings, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(recorder, "memory://grows")
    write_bytes("memory://grows/log.txt", b"step 1\n")
    positions: list[int] = []
    pieces: list[bytes] = []

    def opened(path: str) -> IO[bytes]:
        file = open_read(path)
        monkeypatch.setattr(file, "seek", lambda position: positions.append(position) or BytesIO.seek(file, position))
        return file

    def take(data: bytes) -> None:
        pieces.append(data)
        if len(pieces) == 1:  # the whole log again, as an object store wants it
            write_bytes("memory://grows/log.txt", b"step 1\nended\n")
            recorder.fail(RUN_ID, RunFailedError("no luck"))

    monkeypatch.setattr("orchestrator.execution.run_log.open_read", opened)
    follow_log(RUN_ID, settings=settings, write=take, pause_s=0)
    assert pieces == [b"step 1\n", b"ended\n"]
    assert positions == [0, len(pieces[0])]


@pytest.mark.parametrize(
    ("error", "status", "shown"),
    [
        (None, 0, "a line that is too long\nstep 1\n"),
        (RunFailedError("no luck"), 1, "a line that is\n  too long\nstep 1\n"),
    ],
    ids=["completed", "failed, on a terminal"],
)
def test_the_command_prints_the_log_and_ends_as_the_run(
    settings: Settings,
    recorder: Recorder,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException | None,
    status: int,
    shown: str,
) -> None:
    start(recorder, tmp_path)
    (tmp_path / "log.txt").write_text("a line that is too long\nstep 1\n")
    if error is None:
        recorder.complete(RUN_ID, RunOutcome())
    else:
        recorder.fail(RUN_ID, error)
        monkeypatch.setattr("orchestrator.cli.commands.runs.terminal_width", lambda stream: 16)
    assert run_command_line(["runs", "logs", "-f", RUN_ID]) == status
    said = capsys.readouterr()
    assert said.out == shown
    assert said.err.startswith(f"run {RUN_ID} is {'COMPLETED' if error is None else 'FAILED'}")


def test_workers_logs_are_not_followed(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["runs", "logs", "-f", "--worker", "1", "--", RUN_ID]) == 2
    assert "--follow is for the run's log" in capsys.readouterr().err
