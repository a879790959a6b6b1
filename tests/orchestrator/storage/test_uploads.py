"""Uploads of a text that grows: from time to time, at the end, and after one that failed.

Run alone: pytest tests/orchestrator/storage/test_uploads.py
"""

from uuid import uuid4

import pytest

from orchestrator.storage import exists, read_bytes, uploads
from orchestrator.storage.uploads import GrowingUpload
from tests.waiting import wait_until


@pytest.fixture
def path() -> str:
    return f"memory://{uuid4().hex}/log.txt"


def test_the_whole_text_is_put_at_the_end(path: str) -> None:
    text = [b"first\n"]
    upload = GrowingUpload(path, lambda: b"".join(text), pytest.fail)
    text.append(b"last\n")
    assert not exists(path), "half a minute is not over"
    upload.close()
    assert read_bytes(path) == b"first\nlast\n"


def test_a_text_is_put_again_when_it_has_grown(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "INTERVAL_S", 0.01)
    put, text = [], b"first"
    monkeypatch.setattr(uploads, "write_bytes", lambda _, data: put.append(data))
    upload = GrowingUpload(path, lambda: text, pytest.fail)
    wait_until(lambda: put == [b"first"], "the first words wait")
    text = b"first and last"
    wait_until(lambda: put[-1] == b"first and last", "the last words wait")
    upload.close()
    assert put == [b"first", b"first and last"]


def test_what_an_upload_loses_the_next_one_has(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "INTERVAL_S", 0.01)
    tries: list[bytes] = []
    told: list[OSError] = []

    def put(_: str, data: bytes) -> None:
        tries.append(data)
        if len(tries) == 1:
            raise OSError("the store is away")

    monkeypatch.setattr(uploads, "write_bytes", put)
    upload = GrowingUpload(path, lambda: b"words", told.append)
    wait_until(lambda: len(tries) == 2, "it is not tried again")
    upload.close()
    assert tries == [b"words"] * 2
    assert [str(error) for error in told] == ["the store is away"]
