"""Copies of remote files on this machine: one download per version, complete files only, nothing outside its folder.

Run alone: pytest tests/orchestrator/storage/test_download_cache.py
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from bert_core.errors import CheckpointError
from orchestrator import storage
from orchestrator.base.errors import InputError
from orchestrator.storage import download_cache, uris
from orchestrator.storage.download_cache import local_copy

DATA = bytes(range(256)) * 100


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(cache: Path) -> str:
    """A remote folder of two files."""
    folder = f"memory://{uuid4().hex}/model"
    storage.write_bytes(storage.join(folder, "a.bin"), DATA)
    storage.write_bytes(storage.join(folder, "deep", "b.bin"), b"b")
    return folder


@pytest.fixture
def downloaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files that are downloaded from now on."""
    names: list[str] = []
    get_file = MemoryFileSystem.get_file

    def note(system: MemoryFileSystem, path: str, *rest: Any, **options: Any) -> None:
        names.append(Path(path).name)
        get_file(system, path, *rest, **options)

    monkeypatch.setattr(MemoryFileSystem, "get_file", note)
    return names


def test_a_local_folder_is_its_own_copy(tmp_path: Path) -> None:
    assert local_copy(str(tmp_path)) == local_copy(f"file://{tmp_path}") == tmp_path


def test_two_calls_are_one_download(folder: str, downloaded: list[str]) -> None:
    first, second = local_copy(folder), local_copy(folder)
    assert first == second
    assert first.name == "model"
    assert (first / "a.bin").read_bytes() == DATA
    assert (first / "deep" / "b.bin").read_bytes() == b"b"
    assert sorted(downloaded) == ["a.bin", "b.bin"]


def test_a_changed_file_is_downloaded_anew(folder: str, downloaded: list[str]) -> None:
    before = local_copy(folder)
    storage.write_bytes(storage.join(folder, "deep", "b.bin"), b"c")
    after = local_copy(folder)
    assert (after / "deep" / "b.bin").read_bytes() == b"c"
    assert (before / "deep" / "b.bin").read_bytes() == b"b"
    assert len(downloaded) == 4


def test_skipped_files_come_when_they_are_asked_for(folder: str, downloaded: list[str]) -> None:
    small = local_copy(folder, skip=("a.bin",))
    assert not (small / "a.bin").exists()
    assert local_copy(folder) == small
    assert (small / "a.bin").read_bytes() == DATA
    assert downloaded == ["b.bin", "a.bin"]


def test_a_single_file_keeps_its_name(folder: str, downloaded: list[str]) -> None:
    copies = [local_copy(storage.join(folder, "a.bin")) for _ in range(2)]
    assert (copies[0].name, copies[0].read_bytes()) == ("a.bin", DATA)
    assert copies[0] == copies[1]
    assert downloaded == ["a.bin"]


def test_an_empty_address_is_an_error(cache: Path) -> None:
    with pytest.raises(CheckpointError, match="there is nothing"):
        local_copy("memory://nowhere/model")


@pytest.mark.parametrize("key", ["../../x", "deep/../../x", "/x", "deep", "a.bin/b", "deep/./b.bin", "a\0b"])
def test_a_key_that_leads_out_of_its_folder_is_refused(key: str, folder: str, cache: Path) -> None:
    """So is one that no folder can hold."""
    plain = folder.removeprefix("memory:/")
    MemoryFileSystem.store[f"{plain}/{key}"] = MemoryFileSystem.store[f"{plain}/a.bin"]
    with pytest.raises(InputError, match="which cannot be"):
        local_copy(folder)
    assert not cache.exists()


def test_an_address_that_ends_in_dots_is_refused(folder: str, cache: Path) -> None:
    with pytest.raises(InputError, match=r"ends in '\.\.'"):
        local_copy(f"{folder}/..")
    assert not cache.exists()


def test_a_marker_of_the_folder_itself_is_no_file_of_it(folder: str) -> None:
    plain = folder.removeprefix("memory:/")
    MemoryFileSystem.store[f"{plain}/"] = MemoryFile(path=f"{plain}/")
    assert sorted(path.name for path in local_copy(folder).iterdir()) == ["a.bin", "deep"]


def _break_download(monkeypatch: pytest.MonkeyPatch, num_bytes: int, error: OSError | None) -> None:
    def cut(system: MemoryFileSystem, path: str, target: str, **options: Any) -> None:
        Path(target).write_bytes(DATA[:num_bytes])
        if error:
            raise error

    monkeypatch.setattr(MemoryFileSystem, "get_file", cut)


@pytest.mark.parametrize(
    ("error", "expected"),
    [(OSError("connection lost"), OSError), (None, CheckpointError)],
    ids=["the connection ends", "fewer bytes arrive"],
)
def test_a_file_that_arrives_in_part_is_not_kept(
    error: OSError | None, expected: type[Exception], folder: str, cache: Path
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        _break_download(patched, 10, error)
        with pytest.raises(expected, match=r"connection lost|a\.bin"):
            local_copy(folder)
    assert [path.name for path in cache.rglob("*") if path.is_file()] == [".lock"]
    assert (local_copy(folder) / "a.bin").read_bytes() == DATA


@pytest.mark.parametrize("as_table", [True, False])
def test_a_file_that_is_not_the_manifests_is_refused(as_table: bool, folder: str) -> None:
    def write_manifest(data: bytes) -> None:
        digest = hashlib.sha256(data).hexdigest()
        entry = {"sha256": digest, "bytes": len(data)} if as_table else digest
        storage.write_bytes(
            storage.join(folder, "manifest.json"), json.dumps({"files": {"deep/b.bin": entry}}).encode()
        )

    write_manifest(b"x")
    with pytest.raises(CheckpointError, match=r"b\.bin"):
        local_copy(folder)
    write_manifest(b"b")
    assert (local_copy(folder) / "deep" / "b.bin").read_bytes() == b"b"


@pytest.mark.parametrize("manifest", [b"{", b"[]", b'{"files": ["deep/b.bin"]}', b'{"files": {"deep/b.bin": 1}}'])
def test_a_manifest_of_another_form_is_a_file_like_any_other(manifest: bytes, folder: str) -> None:
    storage.write_bytes(storage.join(folder, "manifest.json"), manifest)
    assert (local_copy(folder) / "manifest.json").read_bytes() == manifest


def test_a_storage_without_versions_is_refused(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uris, "VERSION_FIELDS", ())
    with pytest.raises(InputError, match=r"\.bin is on a storage that tells no version"):
        local_copy(folder)


def test_a_cache_that_cannot_be_written_names_its_variable(folder: str, cache: Path) -> None:
    cache.write_text("a file")
    with pytest.raises(InputError, match="cache folder"):
        local_copy(folder)


ASK = """
import sys
from pathlib import Path
from fsspec.implementations.local import LocalFileSystem
from orchestrator.storage import local_copy

get_file = LocalFileSystem.get_file
folder, log = sys.argv[1:]

def note(system, path, target, **options):
    with open(log, "a") as file:
        file.write(Path(path).name + "\\n")
    get_file(system, path, target, **options)

LocalFileSystem.get_file = note
print("ready", flush=True)
sys.stdin.readline()
print(local_copy(folder), flush=True)
sys.stdin.readline()
"""


class Asker:
    """Another process that asks for a copy when it is told to, and works with it until it is ended."""

    def __init__(self, folder: str, log: Path) -> None:
        command = [sys.executable, "-c", ASK, folder, str(log)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self) -> None:
        assert self._read() == "ready"
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def copy(self) -> Path:
        return Path(self._read())

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        self._process.communicate()


@pytest.fixture
def start(cache: Path, tmp_path: Path) -> Iterator[Callable[[str], Asker]]:
    """What starts processes that note their downloads in `downloads`."""
    with ExitStack() as processes:

        def start(folder: str) -> Asker:
            asker = Asker(folder, tmp_path / "downloads")
            processes.callback(asker.end)
            return asker

        yield start


@pytest.fixture
def elsewhere(tmp_path: Path) -> str:
    """A folder that two processes can read and that the storage takes for another machine's."""
    storage.write_bytes(str(tmp_path / "remote" / "model" / "a.bin"), DATA * 100)
    storage.write_bytes(str(tmp_path / "remote" / "model" / "b.bin"), b"b")
    return f"local://{tmp_path}/remote/model"


def test_processes_that_ask_at_once_share_a_download(
    elsewhere: str, start: Callable[[str], Asker], tmp_path: Path
) -> None:
    askers = [start(elsewhere) for _ in range(2)]
    for asker in askers:
        asker.ask()
    first, second = (asker.copy() for asker in askers)
    assert first == second
    assert sorted((tmp_path / "downloads").read_text().splitlines()) == ["a.bin", "b.bin"]
    assert (first / "a.bin").read_bytes() == DATA * 100


def test_what_was_not_used_for_longest_goes_first_and_what_is_in_use_stays(
    elsewhere: str, start: Callable[[str], Asker], cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = start(elsewhere)
    user.ask()
    in_use = user.copy()
    for number, name in enumerate(["old", "new"]):
        storage.write_bytes(f"{tmp_path}/remote/{name}", DATA)
        asker = start(f"local://{tmp_path}/remote/{name}")
        asker.ask()
        entry = asker.copy().parent
        asker.end()
        os.utime(entry, (number + 1, number + 1))
    os.utime(in_use.parent, (0, 0))
    (cache / "compiled").mkdir()
    monkeypatch.setattr(download_cache, "MAX_CACHE_BYTES", len(DATA) * 102 + 10_000)
    storage.write_bytes(f"{tmp_path}/remote/last", DATA)
    local_copy(f"local://{tmp_path}/remote/last")
    assert {path.name for path in cache.glob("*/*")} == {".lock", "model", "new", "last"}
    user.end()
    monkeypatch.setattr(download_cache, "MAX_CACHE_BYTES", 0)
    storage.write_bytes(f"{tmp_path}/remote/last", b"changed")
    local_copy(f"local://{tmp_path}/remote/last")
    assert not in_use.exists()
    assert (cache / "compiled").exists(), "it is no download"


def test_a_file_system_without_locks_has_copies_all_the_same(
    folder: str, downloaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(download_cache.fcntl, "flock", refuse)
    monkeypatch.setattr(download_cache, "MAX_CACHE_BYTES", 0)
    assert local_copy(folder) == local_copy(folder)
    assert len(downloaded) == 2
