"""Administration of a cluster: Prometheus and Grafana beside its head, gauges of runs for them, and its end.

Ray's dashboard writes into `<temp dir>/session_latest/metrics` where every node's metrics are read and which boards
there are. The servers themselves are not part of Ray: their binaries are looked for on the PATH. Ray exports a run's
newest measurements on the node of its driver as `ray_bert_NAME`, with the labels `run`, `name` and `split`. They are
values of the whole run, over all its workers, so there is no label for a rank.

On machines of one's own `ray down` stops the head alone: every host is reached by ssh, as `ray up` reached it.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from orchestrator.base.errors import ClusterError, InputError
from orchestrator.base.results import MetricEvent

if TYPE_CHECKING:
    from ray.util.metrics import Gauge


PROMETHEUS_ADDRESS = "127.0.0.1:9090"
GRAFANA_ADDRESS = "127.0.0.1:3000"
_END_S = 20.0
"""Time for a server to end before it is killed."""
GAUGE_PREFIX = "bert_"
GAUGE_LABELS = ("run", "name", "split")
STOP_TIMEOUT_S = 120.0
STOP_COMMAND = (
    "systemctl --user disable --now ray-node 2> /dev/null; "
    "crontab -l 2> /dev/null | grep -q ray-node.sh && crontab -l | sed /ray-node.sh/d | crontab -; "
    "pkill -x ray-node.sh; . ~/.profile; ray stop"
)
"""Ends what brings Ray back (deploy/systemd), now and at the next boot, and then Ray."""


@dataclass(frozen=True)
class Server:
    """Server that runs."""

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


def show_gauges(run_id: str, run_name: str, event: MetricEvent) -> None:
    """Set the gauges of a run's measurements and of its step, which keep their values until its driver ends."""
    labels = {"run": run_id, "name": run_name, "split": event.split}
    for name, value in {**event.values, "step": event.step}.items():
        _gauge(name).set(float(value), labels)


@cache
def _gauge(measurement: str) -> "Gauge":
    """The process's gauge for measurements of a name, whichever run they are of."""
    from ray.util.metrics import Gauge

    name = GAUGE_PREFIX + re.sub(r"\W", "_", measurement)
    return Gauge(name, description=f"{measurement} of a run, as last measured", tag_keys=GAUGE_LABELS)


def read_hosts(file: str) -> list[list[str]]:
    """Commands that log in to the hosts of a cluster file, the head first; each ends with USER@ADDRESS.

    Raises: InputError.
    """
    try:
        config = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())
        raise InputError(f"{file} cannot be read as YAML: {said}; give the file that `ray up` was given") from error
    provider = config.get("provider") if isinstance(config, dict) else None
    if not isinstance(provider, dict) or provider.get("type") != "local":
        raise InputError(
            f"{file} does not list machines of your own (provider: type: local); a cloud's end with: ray down {file}"
        )
    options = ["ConnectTimeout=10", "BatchMode=yes", "StrictHostKeyChecking=accept-new"]
    try:
        auth = config["auth"]
        if "ssh_proxy_command" in auth:
            options.append(f"ProxyCommand={auth['ssh_proxy_command']}")
        key = ["-i", str(Path(auth["ssh_private_key"]).expanduser())] if "ssh_private_key" in auth else []
        login = ["ssh", *(word for option in options for word in ("-o", option)), *key]
        head = provider.get("external_head_ip") or provider["head_ip"]
        return [[*login, f"{auth['ssh_user']}@{address}"] for address in (head, *provider["worker_ips"])]
    except (KeyError, TypeError) as error:
        raise InputError(f"{file} lacks {error}; compare it with the project's cluster.local.yaml") from error


def stop_hosts(logins: list[list[str]]) -> list[str]:
    """Stop Ray on hosts, the first before all others, since its autoscaler would start them again.

    Returns for each the reason why its Ray may still run, or nothing.
    """
    with ThreadPoolExecutor(max_workers=32) as threads:
        return [*map(_stop, logins[:1]), *threads.map(_stop, logins[1:])]


def _stop(login: list[str]) -> str:
    try:
        done = subprocess.run(
            [*login, STOP_COMMAND], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=STOP_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"it has not answered for {STOP_TIMEOUT_S:.0f} s"
    said = done.stderr.strip().splitlines() or [f"`ray stop` has ended with status {done.returncode}"]
    return said[-1] if done.returncode else ""
