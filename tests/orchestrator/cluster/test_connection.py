"""Reaching Ray and asking what it has: what goes wrong before Ray is even asked. (Real clusters: test_jobs.py.)

Alone: .venv/bin/pytest tests/orchestrator/cluster/test_connection.py
"""

import dataclasses
import os
import socket
import stat
from pathlib import Path

import pytest
import ray

from orchestrator.cluster.connection import (
    Processes,
    _logical_cpus,
    _use_private_token,
    check_processes,
    check_reachable,
    check_resources,
    connect,
)
from orchestrator.errors import ClusterError
from orchestrator.planning.plan import needed_resources
from orchestrator.settings import Settings
from orchestrator.specs.loading import parse_spec
from tests.waiting import PATIENCE_S


def test_all_that_there_is_may_be_asked_and_no_more() -> None:
    there = {"CPU": 4.0, "memory": 1e9}
    check_resources({"CPU": 4, "GPU": 0}, there)
    with pytest.raises(ClusterError, match="5 CPUs asked, 4 CPUs there"):
        check_resources({"CPU": 5, "GPU": 0}, there)


def test_missing_resources_are_named_with_what_there_is() -> None:
    with pytest.raises(ClusterError) as caught:
        check_resources({"CPU": 6.5, "GPU": 1, "memory": 3 << 30}, {"CPU": 2.0, "memory": float(1 << 30)})
    assert "6.5 CPUs asked, 2 CPUs there" in str(caught.value)
    assert "1 GPU asked, 0 GPUs there" in str(caught.value)
    assert "3.0 GiB of memory asked, 1.0 GiB of memory there" in str(caught.value)
    assert "execution" in str(caught.value)


TWO_SMALL_NODES = [{"CPU": 2.0, "memory": 1e9}, {"CPU": 2.0}]


@pytest.mark.parametrize(
    ("processes", "complaint"),
    [
        (Processes(1, {"CPU": 4.0}), "1 process is asked with 4 CPUs on one node; the cluster has room for 0"),
        (
            Processes(4, {"CPU": 1.5}),
            "4 processes are asked, each with 1.5 CPUs on one node; the cluster has room for 2",
        ),
        (Processes(3, {"CPU": 1.0, "GPU": 1.0}), "each with 1 CPU and 1 GPU on one node; the cluster has room for 0"),
    ],
)
def test_what_fits_the_sum_of_the_nodes_and_no_single_one_is_refused(processes: Processes, complaint: str) -> None:
    with pytest.raises(ClusterError, match=complaint):
        check_processes([Processes(1, {"CPU": 1.0}), processes], TWO_SMALL_NODES)


@pytest.mark.parametrize("most", [Processes(4, {"CPU": 1.0, "GPU": 0.0}), Processes(20, {"CPU": 0.2})])
def test_the_nodes_may_be_filled_and_no_more(most: Processes) -> None:
    fitting = [most, Processes(2, {"CPU": 2.0})]
    check_processes(fitting, TWO_SMALL_NODES)
    with pytest.raises(ClusterError, match=f"the cluster has room for {most.count}"):
        check_processes([*fitting, dataclasses.replace(most, count=most.count + 1)], TWO_SMALL_NODES)


def test_a_specs_processes_are_its_workers_and_one_trial() -> None:
    pretrain = {"kind": "pretrain", "corpus": {"files": ["a"]}, "tokenizer": "t", "steps": 1}
    pretrain |= {"execution": {"num_workers": 4, "device": "gpu", "cpus_per_worker": 2}}
    sweep = {"kind": "sweep", "task": {"id": "sst2"}, "recipe": {"tokenizer": "t"}, "execution": {"cpus_per_trial": 4}}
    spec = parse_spec({"kind": "pipeline", "stages": {"model": pretrain, "learn": sweep}})
    assert needed_resources(spec).processes == [Processes(4, {"CPU": 2.0, "GPU": 1.0}), Processes(1, {"CPU": 4.0})]


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_a_real_cluster_is_asked_for_its_nodes() -> None:
    check_processes([Processes(6, {"CPU": 1.0})])
    with pytest.raises(ClusterError, match="1 process is asked with 7 CPUs on one node; the cluster has room for 0"):
        check_processes([Processes(1, {"CPU": 7.0})])


def test_a_local_ray_counts_what_is_needed_within_reason() -> None:
    cores = os.cpu_count() or 1
    assert _logical_cpus(0) == cores
    assert _logical_cpus(cores + 0.5) == cores + 1
    assert _logical_cpus(1000 * cores) == 4 * cores


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("nowhere", "no address of a Ray cluster"),
        ("host:notaport", "no address of a Ray cluster"),
        ("http://127.0.0.1:8265", "orchestrator submit"),
    ],
)
def test_an_address_that_is_none_is_told_apart(address: str, complaint: str) -> None:
    with pytest.raises(ClusterError, match=complaint):
        check_reachable(address)


def test_silence_at_an_address_is_found_out_at_once() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(ClusterError, match=f"no Ray answers at {address}"):
            check_reachable(address)


def test_a_listening_address_is_reachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        for prefix in ("", "ray://"):
            check_reachable(f"{prefix}127.0.0.1:{server.getsockname()[1]}")
            caller, (host, _) = server.accept()
            caller.close()
            assert host == "127.0.0.1"


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


def test_a_local_ray_that_does_not_start_in_time_is_trouble_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**options: object) -> None:
        raise Exception("The current node timed out during startup.")  # as Ray says it

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    settings = Settings.from_options(home=str(tmp_path), environ={})
    with (
        pytest.raises(ClusterError, match="a local Ray could not be started: The current node timed out"),
        connect(settings),
    ):
        pytest.fail("there is no Ray to work on")
