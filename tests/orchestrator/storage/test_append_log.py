"""Logs that are only appended to, local and by URI: order, torn ends, damage, a full disk.

Run alone: pytest tests/orchestrator/storage/test_append_log.py
"""

import os
from pathlib import Path

import pytest

from bert_core.errors import CheckpointError
from orchestrator.storage import AppendLog, join


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
