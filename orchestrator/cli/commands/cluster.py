"""Command group `cluster`: what concerns a whole cluster, beside the runs on it."""

import time
from pathlib import Path

import click

from orchestrator.cli.frame import GlobalOptionsCommand, GlobalOptionsGroup, current_settings
from orchestrator.cli.messages import notify
from orchestrator.cli.output import show_rows
from orchestrator.cli.reading import reading_options
from orchestrator.errors import ClusterError

_LOOK_EVERY_S = 1.0


@click.group(cls=GlobalOptionsGroup)
def cluster() -> None:
    """Commands for a cluster as a whole."""


@cluster.command(cls=GlobalOptionsCommand, example="orchestrator cluster down cluster.local.yaml")
@click.argument("file", metavar="CLUSTER.yaml")
@reading_options
def down(file: str, form: str | None, output: str | None) -> None:
    """Stop Ray on every host of CLUSTER.yaml, for good.

    For machines of your own (provider: type: local), where `ray down` stops the head only. Runs on the cluster end;
    `orchestrator resume` goes on with them when it is up again. Files stay.
    """
    from orchestrator.cluster.shutdown import read_hosts, stop_hosts

    logins = read_hosts(file)
    notify(f"stopping Ray on {len(logins)} hosts")
    hosts = [login[-1].rpartition("@")[2] for login in logins]
    problems = dict(zip(hosts, stop_hosts(logins), strict=True))
    rows = [
        {"host": host, "role": "worker" if number else "head", "ray": problem or "stopped"}
        for number, (host, problem) in enumerate(problems.items())
    ]
    show_rows(rows, ["host", "role", "ray"], form, output)
    running = [host for host, problem in problems.items() if problem]
    if running:
        raise ClusterError(
            f"Ray may still run on {', '.join(running)}: {problems[running[0]]}; "
            f"give the command again when ssh reaches each host: orchestrator cluster down {file}"
        )


@cluster.command(cls=GlobalOptionsCommand, example="orchestrator cluster metrics")
@click.option(
    "--ray-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/tmp/ray"),
    show_default=True,
    help="Ray's own folder on the head.",
)
def metrics(ray_dir: Path) -> None:
    """Run Prometheus and Grafana on the cluster's head, until Ctrl-C.

    Prometheus reads every node's metrics and those of the runs (ray_bert_loss, ray_bert_tokens_per_s, …); Grafana
    shows Ray's boards and the one of the runs. Both have to be installed; without Grafana, Prometheus runs alone. They
    answer on the head alone; from elsewhere: ssh -L 3000:127.0.0.1:3000 -L 9090:127.0.0.1:9090 HEAD
    """
    from orchestrator.cluster.metrics_servers import metrics_servers

    folder = current_settings().home / "metrics"
    with metrics_servers(ray_dir, folder) as servers:
        for server in servers:
            notify(f"{server.name} answers at {server.url}")
        if len(servers) == 1:
            notify(
                "there is no `grafana` on the PATH: without it there are no boards (https://grafana.com/grafana/download)"
            )
        notify("Ctrl-C ends them")
        while True:
            for server in servers:
                if server.process.poll() is not None:
                    raise ClusterError(f"{server.name} has ended by itself; see {folder / server.name}.log")
            time.sleep(_LOOK_EVERY_S)
