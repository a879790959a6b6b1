"""A Ray head on this machine, as a cluster has one: with a dashboard, jobs and a token."""

import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import wait_until


@dataclass(frozen=True)
class RayHead:
    """A Ray head of this test's own."""

    address: str
    """URL of the dashboard."""
    driver_address: str
    environment: dict[str, str]


def free_port(below: int) -> int:
    """A free port that is not among those Ray gives its workers (10002 to 19999)."""
    return next(port for port in range(below, below - 500, -1) if not is_listening(port))


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def started_head(folder: Path) -> Iterator[RayHead]:
    """`ray start --head` with token authentication, in a process group that is ended whole."""
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ORCHESTRATOR_HOME": str(folder / "home"),
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
        yield RayHead(f"http://127.0.0.1:{dashboard}", f"127.0.0.1:{port}", environment)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(head.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                head.wait(5)
            os.killpg(head.pid, signal.SIGKILL)
        head.wait()
