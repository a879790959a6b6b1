"""Runs as Ray jobs: what is handed over, what is refused, and one whole way through a Ray head on this machine.

Alone: .venv/bin/pytest tests/orchestrator/execution/test_jobs.py
"""

import contextlib
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest

from orchestrator.errors import ClusterError, InputError
from orchestrator.execution.jobs import dashboard_address, entrypoint, exit_status, refuse_password
from orchestrator.execution.origin import with_absolute_paths
from orchestrator.settings import Settings
from orchestrator.specs.loading import parse_spec
from tests.waiting import PATIENCE_S, wait_until

SPEC = parse_spec({"kind": "tokenizer", "name": "words; rm -rf", "corpus": {"files": ["a.txt"]}})


class Status(Enum):
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"


@dataclass
class Details:
    status: Status
    driver_exit_code: int | None = None
    message: str | None = None


@pytest.mark.parametrize(
    ("details", "status"),
    [
        (Details(Status.SUCCEEDED, 0), 0),
        (Details(Status.FAILED, 1), 1),
        (Details(Status.FAILED, 4), 4),
        (Details(Status.FAILED, 137), 1),
        (Details(Status.STOPPED, None), 1),
    ],
)
def test_the_exit_status_is_the_runs(details: Details, status: int) -> None:
    assert exit_status(details, "job") == status


def test_a_job_that_never_began_is_cluster_trouble() -> None:
    with pytest.raises(ClusterError, match="no such runtime"):
        exit_status(Details(Status.FAILED, None, "no such runtime"), "job")
    with pytest.raises(ClusterError, match="no `orchestrator` command"):
        exit_status(Details(Status.FAILED, 127), "job")


def test_settings_that_were_given_travel_in_the_command_as_one_word_each(tmp_path: Path) -> None:
    settings = Settings.from_options(tmp_path / "my home", "s3://bucket", "file:/mnt/url", environ={})
    words = shlex.split(entrypoint(SPEC, settings))
    assert words[:5] == ["orchestrator", "--home", str(tmp_path / "my home"), "--storage", "s3://bucket"]
    assert words[5:] == ["--registry", "file:/mnt/url", "run", "spec.yaml", "--name", "words; rm -rf"]


def test_settings_that_were_not_given_are_left_to_the_cluster(tmp_path: Path) -> None:
    given = Settings.from_options(environ={"ORCHESTRATOR_REGISTRY": "file:/mnt/url"})
    command = entrypoint(SPEC, given)
    assert shlex.split(command)[1:4] == ["orchestrator", "--registry", "file:/mnt/url"]
    assert "--storage" not in command
    assert "--home" not in command
    shown = ["bash", "-c", command.partition(" ")[0] + " env"]
    for cluster, home in (({"HOME": "/u"}, "/u/.orchestrator"), ({"ORCHESTRATOR_HOME": "/lab"}, "/lab")):
        environment = subprocess.run(shown, env={"PATH": os.environ["PATH"], **cluster}, capture_output=True, text=True)
        assert f"ORCHESTRATOR_HOME={home}\n" in environment.stdout


@pytest.mark.parametrize("url", ["postgresql://a:secret@h/db", "postgresql://h/db?user=a&password=secret"])
def test_a_password_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InputError, match="file:PATH") as caught:
        refuse_password(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["postgresql://a@h/db", "sqlite:///x.sqlite", "file:/mnt/url", "runs.sqlite"])
def test_a_url_without_a_password_may_be_shown(url: str, tmp_path: Path) -> None:
    refuse_password(url)
    assert shlex.quote(url) in entrypoint(SPEC, Settings.from_options(home=tmp_path, registry=url, environ={}))


def test_the_dashboards_address_comes_from_option_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://env:8265/")
    assert dashboard_address(Settings.from_options(environ={})) == "http://env:8265"
    assert dashboard_address(Settings.from_options(address="10.0.0.1:6379", environ={})) == "http://env:8265"
    assert dashboard_address(Settings.from_options(address="https://opt", environ={})) == "https://opt"
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS")
    with pytest.raises(ClusterError, match="--address http"):
        dashboard_address(Settings.from_options(address="10.0.0.1:6379", environ={}))


def test_relative_paths_that_lead_somewhere_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").touch()
    (tmp_path / "tok").mkdir()
    (tmp_path / "tok" / "config.json").touch()
    values = {
        "name": "a.txt",
        "corpus": {"files": ["a.txt", "none.txt", "*.jsonl", "s3://b/*.txt", "/x/y"], "text_field": "tok"},
        "tokenizer": "tok",
        "init_from": "random",
        "task": {"files": {"train": "a.txt"}},
        "space": {"init_from": ["tok", "@stage", "registered"]},
    }
    assert with_absolute_paths(values) == {
        "name": "a.txt",
        "corpus": {
            "files": [f"{tmp_path}/a.txt", "none.txt", f"{tmp_path}/*.jsonl", "s3://b/*.txt", "/x/y"],
            "text_field": "tok",
        },
        "tokenizer": f"{tmp_path}/tok",
        "init_from": "random",
        "task": {"files": {"train": f"{tmp_path}/a.txt"}},
        "space": {"init_from": [f"{tmp_path}/tok", "@stage", "registered"]},
    }


def test_only_values_of_path_fields_are_taken_for_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("tiny", "tokenizer", "sweep", "files"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer.json").touch()
    stages = {
        "tokenizer": {
            "kind": "tokenizer",
            "name": "tokenizer",
            "corpus": {"files": ["texts/*.txt"], "format": "files"},
        },
        "model": {"kind": "pretrain", "tokenizer": "@tokenizer", "model": {"size": "tiny"}},
        "files": {"kind": "sweep", "recipe": {"size": "tiny"}, "space": {"tokenizer": {"choice": ["tokenizer", "x"]}}},
    }
    made = with_absolute_paths({"stages": stages, "tags": ["sweep"]})
    assert made["stages"]["tokenizer"].pop("corpus") == {"files": [f"{tmp_path}/texts/*.txt"], "format": "files"}
    assert made["stages"]["files"].pop("space") == {"tokenizer": {"choice": [f"{tmp_path}/tokenizer", "x"]}}
    del stages["tokenizer"]["corpus"], stages["files"]["space"]
    assert made == {"stages": stages, "tags": ["sweep"]}


@dataclass(frozen=True)
class Head:
    """A Ray head of this test's own."""

    address: str
    environment: dict[str, str]


def free_port(below: int) -> int:
    """A free port that is not among those Ray gives its workers (10002 to 19999)."""
    return next(port for port in range(below, below - 500, -1) if not is_listening(port))


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def ray_head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    """`ray start --head` with token authentication, in a process group that is ended whole."""
    folder = tmp_path_factory.mktemp("h")
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
    }
    port, dashboard, client = free_port(6899), free_port(8799), free_port(9799)
    command = ["ray", "start", "--head", "--block", f"--port={port}", "--num-cpus=4", "--disable-usage-stats"]
    command += ["--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}", "--object-store-memory=200000000"]
    command += [f"--temp-dir={folder}", f"--ray-client-server-port={client}", "--dashboard-agent-listen-port=0"]
    with (folder / "start.log").open("w") as log:
        head = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_until(lambda: head.poll() is not None or is_listening(dashboard), "the dashboard did not come up")
        assert head.poll() is None, (folder / "start.log").read_text()
        yield Head(f"http://127.0.0.1:{dashboard}", environment)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(head.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                head.wait(5)
            os.killpg(head.pid, signal.SIGKILL)
        head.wait()


@pytest.mark.ray
def test_a_submitted_spec_runs_on_the_head_and_its_outcome_comes_back(ray_head: Head, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("a tokenizer learns from words like these\n\n" * 300)
    (tmp_path / "good.yaml").write_text("kind: tokenizer\ncorpus: {files: [words.txt]}\nvocab_size: 120\n")
    (tmp_path / "bad.yaml").write_text("kind: tokenizer\ncorpus: {files: [missing.txt]}\n")

    def orchestrator(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["orchestrator", "--home", str(tmp_path / "home"), *arguments],
            env={**ray_head.environment, **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    done = orchestrator("submit", "good.yaml", "--address", ray_head.address)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("raysubmit_")
    listed = orchestrator("query", "kind = 'tokenizer' and state = 'COMPLETED'", "-f", "csv")
    assert "good" in listed.stdout

    failed = orchestrator("submit", "bad.yaml", "--address", ray_head.address)
    assert failed.returncode == 2
    assert "missing.txt" in failed.stderr

    stranger = orchestrator("submit", "good.yaml", "--address", ray_head.address, RAY_AUTH_TOKEN_PATH=os.devnull)
    assert stranger.returncode == 5
    assert "token" in stranger.stderr
