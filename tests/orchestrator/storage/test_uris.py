"""Names of files and folders: joined, made absolute, expanded.

Run alone: pytest tests/orchestrator/storage/test_uris.py
"""

from pathlib import Path

import pytest

from orchestrator import storage
from orchestrator.base.errors import InputError
from orchestrator.base.settings import Settings
from orchestrator.storage.uris import absolute, local_path


@pytest.mark.parametrize(
    ("root", "parts", "joined"),
    [
        ("/a", ("b", "c.txt"), "/a/b/c.txt"),
        ("/a/", ("/b/",), "/a/b"),
        ("s3://bucket", ("b",), "s3://bucket/b"),
        ("memory://", ("b",), "memory://b"),
        ("relative", ("b",), "relative/b"),
        ("/", ("b",), "/b"),
    ],
)
def test_paths_join_by_one_slash(root: str, parts: tuple[str, ...], joined: str) -> None:
    assert storage.join(root, *parts) == joined


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    storage.write_bytes("~/a", b"home")
    assert (tmp_path / "a").read_bytes() == storage.read_bytes("~/a") == b"home"
    assert local_path("~nobody-of-that-name/a") == Path("~nobody-of-that-name/a")
    assert absolute("~/a") == absolute(f"file://{tmp_path}/a") == str(tmp_path / "a")


def test_a_file_uri_is_decoded_and_its_names_are_encoded(tmp_path: Path) -> None:
    storage.write_bytes(f"file://{tmp_path}/my%20data/a", b"a")
    assert (tmp_path / "my data" / "a").read_bytes() == b"a"
    for root in (str(tmp_path), f"file://{tmp_path}"):
        name = "50%25 é #1?"
        storage.write_bytes(storage.join(root, name), b"odd")
        assert name in storage.names_in(root)
        assert (tmp_path / name).read_bytes() == storage.read_bytes(storage.join(root, name)) == b"odd"
    assert absolute(f"file://{tmp_path}/my%20data") == str(tmp_path / "my data")


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("http://169.254.169.254/latest", "has the scheme http, which"),
        ("https://host/a.txt", "has the scheme https, which"),
        ("ssh://host/a", "has the scheme ssh, which"),
        ("github://org:repository@main/a", "has the scheme github, which"),
        ("S3://bucket/a", "has the scheme S3, which"),
        ("simplecache::http://host/a", "chains file systems"),
        ("s3://bucket/a.zip::http://host/b", "chains file systems"),
    ],
)
def test_schemes_are_an_allow_list(uri: str, problem: str) -> None:
    actions = (storage.exists, storage.delete, storage.names_in, storage.read_bytes, storage.local_copy)
    for action in (*actions, lambda uri: storage.write_bytes(uri, b""), lambda uri: Settings.from_options(storage=uri)):
        with pytest.raises(InputError, match=f"{problem}.*; fetch it to a folder, or name a path"):
            action(uri)


def test_a_refused_uri_shows_no_password() -> None:
    with pytest.raises(InputError, match="a has the") as caught:
        storage.read_bytes("https://me:s3cret@host/a?token=t0ken")
    assert "s3cret" not in str(caught.value)
    assert "t0ken" not in str(caught.value)
