"""A small Hugging Face hub on this machine: repositories with commits, private and gated ones, and cut connections."""

import hashlib
import io
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from huggingface_hub import constants

from orchestrator.storage.hub import HubPlace
from orchestrator.tasks.catalogue import ON_HUB

_ASKED = re.compile(r"(/api)?/(models/|datasets/)?(.+?)(?:/(revision|tree|resolve)/([^/]+)(?:/(.*))?)?")


@dataclass
class Repository:
    """The files of each commit, the commit that `main` means, and who may see them."""

    commits: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    head: str = ""
    refusal: str = ""
    """Error code for everybody: `RepoNotFound` for a private one, `GatedRepo`."""


@dataclass
class Hub:
    """The repositories by kind and name, and what was asked for."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    """Method and path of each request."""
    cuts: int = 0
    """Number of downloads that break off in the middle, from now on."""
    claimed_bytes: int | None = None
    """Size that listings tell of weights; None for the true one."""

    def commit(self, name: str, files: Mapping[str, bytes], *, commit: str = "", refusal: str = "") -> str:
        """Put files on `main` of a model, or of `datasets/ORG/NAME`; returns the commit."""
        repository = self.repositories.setdefault(name, Repository(refusal=refusal))
        files = {".gitattributes": b"", **files}
        repository.head = commit or hashlib.sha1(repr((name, sorted(files.items()))).encode()).hexdigest()
        repository.commits[repository.head] = {**repository.commits.get(repository.head, {}), **files}
        return repository.head

    def commit_task(self, task: str, **columns: Sequence[object]) -> None:
        """Put a table as each split of a known task, under the commit that the catalogue has."""
        buffer = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
        places = [HubPlace.parse(uri) for uri in ON_HUB[task].files.values()]
        files = {place.path: buffer.getvalue() for place in places}
        self.commit(f"datasets/{places[0].repository}", files, commit=str(places[0].revision))

    def commit_folder(self, name: str, folder: Path) -> str:
        """Put the files of a folder on `main` of a model."""
        files = (path for path in folder.rglob("*") if path.is_file())
        return self.commit(name, {path.relative_to(folder).as_posix(): path.read_bytes() for path in files})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.hub.asked.append(f"{self.command} {path}")
        status, body, headers = self._answer(path)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            is_cut = self.hub.cuts > 0 and "/resolve/" in path and len(body) > 1
            self.hub.cuts -= is_cut
            self.close_connection = is_cut
            self.wfile.write(body[: len(body) // 2] if is_cut else body)

    def _answer(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        match = _ASKED.fullmatch(path)
        assert match is not None
        kind = "datasets/" if match[2] == "datasets/" else ""
        repository = self.hub.repositories.get(kind + match[3], Repository(refusal="RepoNotFound"))
        if repository.refusal:
            return 401 if repository.refusal == "RepoNotFound" else 403, b"", {"X-Error-Code": repository.refusal}
        revision = repository.head if match[5] in (None, "main") else match[5]
        if revision not in repository.commits:
            return 404, b"", {"X-Error-Code": "RevisionNotFound"}
        files = repository.commits[revision]
        if match[4] == "tree":
            entries = [{"type": "file", "path": name, "size": self._size(name, files), "oid": name} for name in files]
            return 200, json.dumps(entries).encode(), {}
        if match[4] != "resolve":
            info = {"id": match[3], "sha": revision, "siblings": [{"rfilename": name} for name in files]}
            return 200, json.dumps(info).encode(), {}
        if match[6] not in files:
            return 404, b"", {"X-Error-Code": "EntryNotFound"}
        data = files[match[6]]
        start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        etag = f'"{hashlib.sha256(data).hexdigest()}"'
        return 206 if start else 200, data[start:], {"X-Repo-Commit": revision, "ETag": etag}

    def _size(self, name: str, files: Mapping[str, bytes]) -> int:
        is_claimed = self.hub.claimed_bytes is not None and name.endswith((".safetensors", ".bin"))
        return self.hub.claimed_bytes or 0 if is_claimed else len(files[name])


@contextmanager
def serving_hub(folder: Path) -> Iterator[Hub]:
    """A hub that answers in a thread, as `huggingface_hub` and new processes ask it; the cache is in a folder."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    address = f"http://127.0.0.1:{server.server_port}"
    with pytest.MonkeyPatch.context() as patched:
        for name, value in {
            "ENDPOINT": address,
            "HUGGINGFACE_CO_URL_TEMPLATE": address + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_CACHE": str(folder / "hub"),
            "HF_HUB_OFFLINE": False,
        }.items():
            patched.setattr(constants, name, value)
        for name, value in {"HF_ENDPOINT": address, "HF_HUB_CACHE": str(folder / "hub"), "HF_HUB_OFFLINE": "0"}.items():
            patched.setenv(name, value)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
