"""Prometheus and Grafana beside a cluster's head, with the configuration that Ray writes, and gauges for them.

Ray's dashboard writes into `<temp dir>/session_latest/metrics` where every node's metrics are read and which boards
there are. The servers themselves are not part of Ray: their binaries are looked for on the PATH. Ray exports a run's
newest measurements on the node of its driver as `ray_bert_NAME`, with the labels `run`, `name` and `split`. They are
values of the whole run, over all its workers, so there is no label for a rank.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import ClusterError
from orchestrator.results import MetricEvent

if TYPE_CHECKING:
    from ray.util.metrics import Gauge


PROMETHEUS_ADDRESS = "127.0.0.1:9090"
GRAFANA_ADDRESS = "127.0.0.1:3000"
_END_S = 20.0
"""Time that a server has to end before it is killed."""


@dataclass(frozen=True)
class Server:
    """A server that runs: its name, and where it answers."""

    name: str
    url: str
    process: "subprocess.Popen[bytes]"


@contextmanager
def metrics_servers(ray_folder: Path, data_folder: Path) -> Iterator[list[Server]]:
    """Run Prometheus, and Grafana where it is installed, during the block; both answer on this machine alone.

    Args:
        ray_folder: Ray's temporary folder on the head, usually /tmp/ray.
        data_folder: where Prometheus keeps what it has read, and both servers their logs.

    Raises: ClusterError where no Ray with a dashboard has written its configuration, or Prometheus is not installed.
    """
    configuration = ray_folder / "session_latest" / "metrics"
    if not (configuration / "prometheus" / "prometheus.yml").is_file():
        raise ClusterError(
            f"{configuration} has no configuration of a Ray dashboard: start this on the cluster's head, or name Ray's "
            "own folder with --ray-dir (`ray start --temp-dir`)"
        )
    commands = _commands(configuration, data_folder)
    data_folder.mkdir(parents=True, exist_ok=True)
    boards = configuration / "grafana" / "dashboards"
    boards.mkdir(parents=True, exist_ok=True)
    (boards / "bert-lab.json").write_bytes(files("orchestrator.cluster").joinpath("board.json").read_bytes())
    host, _, port = GRAFANA_ADDRESS.partition(":")
    environment = {
        "GF_SERVER_HTTP_ADDR": host,
        "GF_SERVER_HTTP_PORT": port,
        "GF_PATHS_DATA": str(data_folder / "grafana"),
        "GF_PATHS_LOGS": str(data_folder),
    }
    servers: list[Server] = []
    try:
        for name, (url, command) in commands.items():
            with (data_folder / f"{name}.log").open("ab") as log:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **environment}
                )
            servers.append(Server(name, url, process))
        yield servers
    finally:
        for server in servers:
            server.process.terminate()
        for server in servers:
            try:
                server.process.wait(_END_S)
            except subprocess.TimeoutExpired:
                server.process.kill()
                server.process.wait()


def _commands(configuration: Path, data_folder: Path) -> dict[str, tuple[str, list[str]]]:
    """Address and command of each server that is installed, by its name."""
    prometheus, grafana = shutil.which("prometheus"), shutil.which("grafana")
    if prometheus is None:
        raise ClusterError("there is no `prometheus` on the PATH: install it (Debian, Ubuntu: apt install prometheus)")
    options = [
        f"--config.file={configuration / 'prometheus' / 'prometheus.yml'}",
        f"--storage.tsdb.path={data_folder / 'prometheus'}",
        f"--web.listen-address={PROMETHEUS_ADDRESS}",
    ]
    commands = {"prometheus": (f"http://{PROMETHEUS_ADDRESS}", [prometheus, *options])}
    if grafana is not None:
        home = next((folder for folder in ("/usr/share/grafana", "/opt/grafana") if Path(folder).is_dir()), None)
        options = [f"--config={configuration / 'grafana' / 'grafana.ini'}", *([f"--homepath={home}"] if home else [])]
        commands["grafana"] = (f"http://{GRAFANA_ADDRESS}", [grafana, "server", *options])
    return commands


PREFIX = "bert_"
LABELS = ("run", "name", "split")


class RunGauges:
    """Gauges of one run of the connected Ray, which keep their last values until its driver ends."""

    def __init__(self, run_id: str, name: str) -> None:
        self._labels = {"run": run_id, "name": name}

    def show(self, event: MetricEvent) -> None:
        """Set the gauges of all measurements of an event, and that of its step."""
        for name, value in {**event.values, "step": event.step}.items():
            _gauge(name).set(float(value), {**self._labels, "split": event.split})


@cache
def _gauge(measurement: str) -> "Gauge":
    """The process's gauge for measurements of a name, whichever run they are of."""
    from ray.util.metrics import Gauge

    name = PREFIX + re.sub(r"\W", "_", measurement)
    return Gauge(name, description=f"{measurement} of a run, as last measured", tag_keys=LABELS)
