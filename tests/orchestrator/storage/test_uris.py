"""Names of files and folders: joined, made absolute, expanded.

Run alone: pytest tests/orchestrator/storage/test_uris.py
"""

from pathlib import Path

import pytest

from orchestrator import storage
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
