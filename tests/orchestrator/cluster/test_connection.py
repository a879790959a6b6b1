"""Connection to Ray, the variables that Ray reads, and addresses.

Alone: pytest tests/orchestrator/cluster/test_connection.py
"""

import os
import signal
import socket
import stat
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import ray

from orchestrator.base.errors import ClusterError
from orchestrator.base.settings import Settings
from orchestrator.cluster.connection import (
    _use_private_token,
    check_reachable,
    connect,
    dashboard_address,
    head_dashboard,
    names_no_cluster,
    prepare_driver,
)
from tests.waiting import PATIENCE_S


@pytest.fixture
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # so that what the code sets is undone
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("no_token")
def test_a_local_rays_token_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    _use_private_token(tmp_path / "home")
    path = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
    token = path.read_text()
    assert len(token) == 64
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.environ["RAY_AUTH_MODE"] == "token"
    path.chmod(0o644)
    del os.environ["RAY_AUTH_TOKEN_PATH"]
    _use_private_token(tmp_path / "home")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == token


@pytest.mark.usefixtures("no_token")
def test_a_token_or_mode_of_ones_own_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "mine")
    _use_private_token(tmp_path / "a")
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    _use_private_token(tmp_path / "b")
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()
    assert "RAY_AUTH_TOKEN_PATH" not in os.environ


@pytest.mark.parametrize("num_slow", [1, 2])
def test_a_local_ray_that_does_not_start_in_time_is_ended_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_slow: int
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def init(**options: object) -> None:
        if len(started) < num_slow:
            started.append(subprocess.Popen(["sleep", "1000"]))
            raise Exception("The current node timed out during startup.")  # as Ray says it

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with subprocess.Popen(["sleep", "1000"]) as other:
        with connect(Settings.from_options(home=str(tmp_path), environ={})):
            assert [node.wait(PATIENCE_S) for node in started] == [-signal.SIGKILL] * num_slow
            assert other.poll() is None
        other.kill()


def test_a_sigterm_while_ray_starts_goes_to_this_process_own_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**options: object) -> None:
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))  # as Ray does
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), connect(Settings.from_options(home=str(tmp_path), environ={})):
            pytest.fail("there is no Ray to work on")
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_local_ray_that_does_not_start_is_trouble_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**options: object) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    settings = Settings.from_options(home=str(tmp_path), environ={})
    with (
        pytest.raises(ClusterError, match="a local Ray could not be started: The current node timed out"),
        connect(settings),
    ):
        pytest.fail("there is no Ray to work on")


@pytest.mark.parametrize(
    ("own", "is_local", "expected"),
    [(None, True, "0"), ("5", True, "5"), (None, False, None)],
    ids=["no waiting for other programs", "of one's own", "of a cluster"],
)
def test_niceness_of_workers(
    monkeypatch: pytest.MonkeyPatch, own: str | None, is_local: bool, expected: str | None
) -> None:
    niceness = "RAY_worker_niceness"
    monkeypatch.setattr(os, "environ", {} if own is None else {niceness: own})
    prepare_driver(local=is_local)
    assert os.environ.get(niceness) == expected


@pytest.mark.parametrize(("address", "is_local"), [(None, True), ("local", True), ("auto", False), ("h:1", False)])
def test_without_a_cluster_ray_is_local(address: str | None, is_local: bool, tmp_path: Path) -> None:
    settings = Settings.from_options(home=tmp_path, address=address, environ={})
    assert names_no_cluster(settings) is is_local


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("nowhere", "no address of a Ray cluster"),
        ("host:notaport", "no address of a Ray cluster"),
        ("http://127.0.0.1:8265", "orchestrator submit"),
    ],
)
def test_what_is_no_address_of_a_cluster_is_refused(address: str, complaint: str) -> None:
    with pytest.raises(ClusterError, match=complaint):
        check_reachable(address)


def test_an_address_where_nobody_listens_is_refused() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(ClusterError, match=f"no Ray answers at {address}"):
            check_reachable(address)


def test_what_listens_and_is_no_ray_is_refused_before_ray_prints_its_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}"
        settings = Settings.from_options(home=str(tmp_path), address=address, environ={})
        with pytest.raises(ClusterError, match=f"{address} is no head"), connect(settings):
            pytest.fail("there is no Ray to work on")
        server.shutdown()


def test_a_listening_address_is_connected_to() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        for scheme in ("", "ray://"):
            check_reachable(f"{scheme}127.0.0.1:{server.getsockname()[1]}")
            caller, (host, _) = server.accept()
            caller.close()
            assert host == "127.0.0.1"


def test_the_dashboards_address_comes_from_option_or_environment() -> None:
    variable = {"RAY_API_SERVER_ADDRESS": "http://env:8265/"}
    driver = Settings.from_options(address="10.0.0.1:6379", environ={})
    assert dashboard_address(Settings.from_options(environ={}), variable) == "http://env:8265"
    assert dashboard_address(driver, variable) == "http://env:8265"
    assert dashboard_address(Settings.from_options(address="https://opt", environ={}), variable) == "https://opt"
    with pytest.raises(ClusterError, match="--address http"):
        dashboard_address(driver, {})


def test_the_registry_is_read_on_the_head_where_only_the_dashboard_is_named(tmp_path: Path) -> None:
    def dashboard(address: str | None = None, registry: str | None = None, **environ: str) -> str | None:
        return head_dashboard(Settings.from_options(address=address, registry=registry, environ={}), environ)

    (tmp_path / "url").touch()
    assert dashboard() is None
    assert dashboard("http://h:8265/") == "http://h:8265"
    assert dashboard(RAY_API_SERVER_ADDRESS="http://env:8265") == "http://env:8265"
    assert dashboard("10.0.0.1:6379", RAY_API_SERVER_ADDRESS="http://env:8265") is None
    assert dashboard("http://h:8265", "runs.sqlite") is None
    assert dashboard("http://h:8265", f"file:{tmp_path}/url") is None
    assert dashboard("http://h:8265", f"file:{tmp_path}/of-the-cluster") == "http://h:8265"
