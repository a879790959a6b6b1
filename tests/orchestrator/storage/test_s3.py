"""An S3 server as storage: conditional writes, copies on this machine, versions, text, a token store.

The other tests of this folder run on it too. Run alone: pytest tests/orchestrator/storage/test_s3.py
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from orchestrator import storage
from orchestrator.base.errors import RunStoppedError
from orchestrator.storage.uris import filesystem_of
from orchestrator.training.checkpoints import Checkpoints
from orchestrator.training.snapshots import Snapshots, snapshot_folders
from tests.orchestrator.s3_server import BUCKET, new_s3_root

pytestmark = pytest.mark.usefixtures("s3_server")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty folder on the server; copies go to an empty cache."""
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))
    return new_s3_root()


def test_of_two_that_read_the_same_file_one_writes(folder: str) -> None:
    path = storage.join(folder, "pointer.json")
    for text in (b"first", b"second"):
        mine, theirs = storage.read_versioned(path), storage.read_versioned(path)
        assert storage.replace_if_unchanged(path, text, mine)
        assert not storage.replace_if_unchanged(path, b"late", theirs)
        assert storage.read_bytes(path) == text
    seen = storage.read_versioned(path)
    storage.delete(path)
    assert not storage.replace_if_unchanged(path, b"late", seen)
    assert not storage.exists(path)


def test_a_file_that_changes_while_it_is_read_is_read_again(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = storage.join(folder, "pointer.json")
    storage.write_bytes(path, b"before")
    filesystem, _ = filesystem_of(path)
    open_file = filesystem.open

    def open_and_change(*args: Any, **options: Any) -> Any:
        file = open_file(*args, **options)
        monkeypatch.setattr(filesystem, "open", open_file)
        filesystem.pipe_file(path, b"after")
        return file

    monkeypatch.setattr(filesystem, "open", open_and_change)
    seen = storage.read_versioned(path)
    assert seen.data == b"after"
    assert storage.replace_if_unchanged(path, b"last", seen)


def meet(monkeypatch: pytest.MonkeyPatch, newer: Callable[[], object]) -> None:
    """Let a newer attempt write when the older one has read what is there and is about to write."""
    replace_if_unchanged = storage.replace_if_unchanged

    def overtaken(path: str, data: bytes, seen: storage.VersionedFile) -> bool:
        monkeypatch.setattr("orchestrator.storage.attempts.replace_if_unchanged", replace_if_unchanged)
        newer()
        return replace_if_unchanged(path, data, seen)

    monkeypatch.setattr("orchestrator.storage.attempts.replace_if_unchanged", overtaken)


def test_an_older_attempt_that_writes_at_the_same_time_names_no_checkpoint(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = Checkpoints(folder, attempt=1), Checkpoints(folder, attempt=2)
    model = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    meet(monkeypatch, lambda: newer.save(7, model, optimizer, {}))
    with pytest.raises(RunStoppedError, match="attempt 2"):
        older.save(5, model, optimizer, {})
    assert [each.step for each in newer.newest_first()] == [7]


def test_an_older_attempt_that_writes_at_the_same_time_names_no_snapshot(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = Snapshots(folder, attempt=1), Snapshots(folder, attempt=2)

    def write(at: Path) -> None:
        (at / "model.safetensors").write_bytes(b"weights")

    meet(monkeypatch, lambda: newer.save(7, write))
    with pytest.raises(RunStoppedError, match="attempt 2"):
        older.save(5, write)
    assert list(snapshot_folders(folder)) == [7]
    assert storage.names_in(storage.join(folder, "snapshots")) == ["step-00000007-attempt-2"]


def test_what_another_process_writes_is_seen_at_once(folder: str) -> None:
    assert storage.names_in(folder) == []
    assert not storage.exists(storage.join(folder, "a"))
    other = type(filesystem_of(folder)[0])(skip_instance_cache=True)
    other.pipe_file(storage.join(folder, "a"), b"a")
    assert storage.names_in(folder) == ["a"]
    assert storage.exists(storage.join(folder, "a"))


def test_a_copy_is_made_once_and_follows_the_object(folder: str) -> None:
    filesystem_of(folder)[0].touch(storage.join(folder, "model") + "/")  # a marker, as S3's console makes them
    for name in ("a.bin", "deep/b.bin"):
        storage.write_bytes(storage.join(folder, "model", name), b"1")
    first = storage.local_copy(storage.join(folder, "model"))
    assert sorted(path.name for path in first.iterdir()) == ["a.bin", "deep"]
    assert storage.local_copy(storage.join(folder, "model")) == first
    storage.write_bytes(storage.join(folder, "model", "a.bin"), b"2")
    assert (storage.local_copy(storage.join(folder, "model")) / "a.bin").read_bytes() == b"2"


@pytest.mark.parametrize("missing", ["a server", "credentials", "an answer"])
def test_what_cannot_be_asked_of_a_store_is_an_os_error(
    folder: str, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    path, filesystem = storage.join(folder, "deep/a.txt"), filesystem_of(folder)[0]
    storage.write_bytes(path, b"a")
    seen = storage.read_versioned(path)
    assert len(filesystem.glob(storage.join(folder, "*/*.txt"))) == 1
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    if missing == "a server":
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    elif missing == "credentials":
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(Path(folder) / "none"))
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    else:
        monkeypatch.setattr("aiobotocore.httpsession.AIOHTTPSession.send", close_connection)
    monkeypatch.setattr(type(filesystem), "retries", 1)
    filesystem.clear_instance_cache()
    try:
        for ask in (storage.exists, storage.names_in, storage.read_bytes, storage.read_versioned, storage.delete):
            with pytest.raises(OSError, match=BUCKET):
                ask(path)
        with pytest.raises(OSError, match=BUCKET):
            storage.write_bytes(path, b"b")
        with pytest.raises(OSError, match=BUCKET):
            storage.replace_if_unchanged(path, b"b", seen)
        with pytest.raises(OSError, match=BUCKET):
            filesystem_of(folder)[0].glob(storage.join(folder, "*/*.txt"))
    finally:
        filesystem.clear_instance_cache()


async def close_connection(self: object, request: object) -> None:
    from botocore.exceptions import ConnectionClosedError  # s3fs brings botocore

    raise ConnectionClosedError(endpoint_url="http://127.0.0.1")


def test_a_large_file_is_written_piece_by_piece(folder: str) -> None:
    path = storage.join(folder, "large.bin")
    digest = storage.write_chunks(path, (bytes([number]) * (1 << 20) for number in range(60)))
    assert storage.digest_file(path) == digest
