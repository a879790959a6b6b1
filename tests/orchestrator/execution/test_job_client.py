"""The way to a cluster's dashboard: nothing there, somebody else there, silence, and a way that is lost on the go.

Alone: .venv/bin/pytest tests/orchestrator/execution/test_job_client.py
"""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from orchestrator.errors import ClusterError
from orchestrator.execution import jobs as job_module
from orchestrator.execution.jobs import Jobs, open_jobs
from tests.orchestrator.execution.job_cluster import Details, JobCluster, Status

ADDRESS = "http://127.0.0.1:8265"


@pytest.fixture(autouse=True)
def variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable that opening a client sets, put back afterwards."""
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", ADDRESS)


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """Address at which somebody takes connections, and gives an answer or says nothing."""
    held: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            held.append(connection)
            if answer is not None:
                connection.recv(65_536)
                connection.sendall(answer)
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    for connection in held:
        connection.close()


def test_nothing_at_the_address_is_said_with_the_way_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(ClusterError, match=r"cluster\.yaml"):
        open_jobs(address)


def test_a_dead_tunnel_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes connections, and nothing is behind it."""
    monkeypatch.setattr(job_module, "_TIMEOUT_S", (0.3, 0.3))
    with listening(None) as address, pytest.raises(ClusterError, match=f"the cluster at {address} does not answer any"):
        open_jobs(address)


def test_somebody_else_at_the_address_is_told() -> None:
    page = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    with listening(page) as address, pytest.raises(ClusterError, match="did not answer"):
        open_jobs(address)


class ReadTimeout(Exception):  # noqa: N818
    """Error of the same name as one that `requests` raises."""


def hanging(cluster: JobCluster, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """Jobs of a cluster whose logs say one word, and then nothing, not even that they end."""

    async def hang(job_id: str) -> AsyncIterator[str]:
        yield "step 1\n"
        await asyncio.Event().wait()

    monkeypatch.setattr(cluster, "tail_job_logs", hang)
    return Jobs(cluster, ADDRESS, silence_s=0.01)


def test_a_way_that_is_lost_while_following_says_so(cluster: JobCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(job_id: str) -> Details:
        raise ReadTimeout("read timed out")

    monkeypatch.setattr(cluster, "get_job_info", lost)
    log: list[str] = []
    with pytest.raises(ClusterError, match=r"cluster\.yaml"):
        hanging(cluster, monkeypatch).read_log("job", lambda piece: bool(log.append(piece)))
    assert log == ["step 1\n"]


def test_a_silent_job_is_followed_for_as_long_as_it_runs(cluster: JobCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []

    def running_for_a_while(job_id: str) -> Details:
        looks.append(job_id)
        return Details(Status.SUCCEEDED if len(looks) > 5 else Status.RUNNING)

    monkeypatch.setattr(cluster, "get_job_info", running_for_a_while)
    hanging(cluster, monkeypatch).read_log("job", lambda piece: False)
    assert len(looks) == 6
