"""Addresses of Ray clusters: what is no address, and where nobody listens. (Real clusters: test_jobs.py.)

Alone: .venv/bin/pytest tests/orchestrator/cluster/test_addresses.py
"""

import socket
from pathlib import Path

import pytest

from orchestrator.cluster.addresses import (
    check_listening,
    check_reachable,
    dashboard_address,
    head_dashboard,
    names_no_cluster,
)
from orchestrator.errors import ClusterError
from orchestrator.settings import Settings
from tests.waiting import PATIENCE_S


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


def test_a_listening_address_is_connected_to() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        for scheme in ("", "ray://"):
            check_reachable(f"{scheme}127.0.0.1:{server.getsockname()[1]}")
            caller, (host, _) = server.accept()
            caller.close()
            assert host == "127.0.0.1"


def test_a_dashboard_that_does_not_answer_may_lack_its_tunnel() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(ClusterError, match=r"the way to it may be missing: `ray dashboard cluster.yaml` opens one"):
            check_listening(f"http://127.0.0.1:{closed.getsockname()[1]}")


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
