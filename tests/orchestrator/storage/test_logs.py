"""Logs, appended to or uploaded while they grow: order, torn ends, damage, a full disk, a store that is away.

Run alone: pytest tests/orchestrator/storage/test_logs.py
"""

import os
from pathlib import Path
from uuid import uuid4

import pytest

from bert_core.errors import CheckpointError
from orchestrator.storage import AppendLog, exists, join, logs, read_bytes
from orchestrator.storage.logs import growing_upload
from tests.waiting import wait_until


def test_values_are_read_in_the_order_of_appending(root: str) -> None:
    path = join(root, "runs/log.jsonl")
    assert AppendLog(path).read() == []
    for number in range(3):
        AppendLog(path).append({"number": number})  # each by another process
    log = AppendLog(path)
    for number in range(3, 12):
        log.append({"number": number})
    assert [value["number"] for value in AppendLog(path).read()] == list(range(12))


def test_a_log_cut_at_any_length_keeps_its_whole_lines_and_goes_on(tmp_path: Path) -> None:
    whole = AppendLog(str(tmp_path / "whole"))
    for value in ("a", {"b": "ü"}, [3]):
        whole.append(value)
    data = (tmp_path / "whole").read_bytes()
    for length in range(len(data) + 1):
        path = tmp_path / "cut"
        path.write_bytes(data[:length])
        kept = ["a", {"b": "ü"}, [3]][: data[:length].count(b"\n")]
        log = AppendLog(str(path))
        assert log.read() == kept
        log.append("next")
        assert log.read() == [*kept, "next"]


def test_a_damaged_line_within_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b'1\n{"b"\n3\n')
    with pytest.raises(CheckpointError, match="is altered"):
        AppendLog(str(path)).read()


def test_a_value_that_could_not_be_written_leaves_the_log_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AppendLog(str(tmp_path / "log"))
    log.append(1)

    def refuse(descriptor: int) -> None:
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - 1)  # half a line has reached the disk
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(OSError, match="No space"):
            log.append({"long": "value"})
    log.append(2)
    assert log.read() == [1, 2]


@pytest.fixture
def path() -> str:
    return f"memory://{uuid4().hex}/log.txt"


def test_the_whole_text_is_put_at_the_end(path: str) -> None:
    text = [b"first\n"]
    with growing_upload(path, lambda: b"".join(text), pytest.fail):
        text.append(b"last\n")
        assert not exists(path), "half a minute is not over"
    assert read_bytes(path) == b"first\nlast\n"


def test_a_text_is_put_again_when_it_has_grown(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "UPLOAD_INTERVAL_S", 0.01)
    put, text = [], b"first"
    monkeypatch.setattr(logs, "write_bytes", lambda _, data: put.append(data))
    with growing_upload(path, lambda: text, pytest.fail):
        wait_until(lambda: put == [b"first"], "the first words wait")
        text = b"first and last"
        wait_until(lambda: put[-1] == b"first and last", "the last words wait")
    assert put == [b"first", b"first and last"]


def test_what_an_upload_loses_the_next_one_has(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "UPLOAD_INTERVAL_S", 0.01)
    tries: list[bytes] = []
    told: list[OSError] = []

    def put(_: str, data: bytes) -> None:
        tries.append(data)
        if len(tries) == 1:
            raise OSError("the store is away")

    monkeypatch.setattr(logs, "write_bytes", put)
    with growing_upload(path, lambda: b"words", told.append):
        wait_until(lambda: len(tries) == 2, "it is not tried again")
    assert tries == [b"words"] * 2
    assert [str(error) for error in told] == ["the store is away"]
