"""Commands about machines: `doctor`, `cluster`, `verify-resume`."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from orchestrator.cli.frame import (
    GlobalOptionsCommand,
    GlobalOptionsGroup,
    current_settings,
    overrides_argument,
    spec_argument,
)
from orchestrator.cli.messages import notify, say_now
from orchestrator.cli.output import show_rows, show_text
from orchestrator.cli.reading import format_options
from orchestrator.errors import ClusterError


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator doctor\norchestrator doctor --address 10.0.0.1:6379 --storage /srv/lab",
)
@format_options
def doctor(form: str | None) -> int:
    """Check this machine and, with --address, a cluster's nodes.

    With a dashboard URL "this machine" means the cluster's head. Each problem is shown with a fix; the exit status is 1
    if there is a problem. A node's row shows free and total resources; -f json has everything found.
    """
    say_now("looking at this machine")
    from orchestrator.cluster.connection import is_dashboard, names_no_cluster
    from orchestrator.cluster.doctor import examine, problem_of
    from orchestrator.errors import ClusterError

    settings, nodes = current_settings(), list[dict[str, Any]]()
    findings = list(examine(settings))
    listens = findings[-1].state == "ok" and not names_no_cluster(settings)
    if listens and not is_dashboard(str(settings.address)):
        from orchestrator.cluster.doctor import survey_nodes

        say_now("looking at each node of the cluster")
        try:
            nodes, wrong = survey_nodes(settings)
            findings += wrong
        except ClusterError as error:
            findings.append(problem_of("nodes", error, "see `ray status`"))
    rows: list[dict[str, Any]] = [asdict(finding) for finding in findings]
    if form == "json":
        rows += [{"part": f"node {node['node']}", "state": "ok", "found": node} for node in nodes]
    show_rows(rows, ["part", "state", "found", "remedy"], form, None)
    if nodes and form in (None, "table"):
        show_text("\nnodes: free of what each has")
        show_rows(nodes, ["node", "cpu", "gpu", "memory", "disk"], form, None)
    return 1 if any(finding.state == "problem" for finding in findings) else 0


_LOOK_EVERY_S = 1.0


@click.group(cls=GlobalOptionsGroup)
def cluster() -> None:
    """Stop an on-premise cluster, or monitor a cluster."""


@cluster.command(cls=GlobalOptionsCommand, example="orchestrator cluster down cluster.local.yaml")
@click.argument("file", metavar="CLUSTER.yaml")
def down(file: str) -> None:
    """Stop Ray on every host of CLUSTER.yaml.

    For on-premise clusters (provider: type: local), where `ray down` stops the head only. Runs end, and
    `orchestrator resume` continues them later. Files stay.
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
    show_rows(rows, ["host", "role", "ray"], None, None)
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
    metavar="DIR",
    help="Ray's temporary directory (ray start --temp-dir).",
)
def metrics(ray_dir: Path) -> None:
    """Run Prometheus and Grafana on the head, until Ctrl-C.

    Prometheus scrapes every node and the runs (ray_bert_loss, ray_bert_tokens_per_s, …); Grafana shows Ray's dashboards
    and that of the runs. Run it on the head node. Prometheus must be installed, Grafana is optional. They listen on the
    head's localhost; from elsewhere: ssh -L 3000:127.0.0.1:3000 -L 9090:127.0.0.1:9090 HEAD
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


_DIGITS = 12


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator verify-resume experiments/pretrain_tiny_wikipedia.yaml \\\n"
    "    'corpus.files=[notes/*.txt]' tokenizer=tokenizers/notes --steps 10",
)
@spec_argument
@overrides_argument
@click.option(
    "--steps",
    default=5,
    show_default=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="Steps before the kill; runs take twice as many.",
)
@click.option(
    "--workers",
    multiple=True,
    type=click.IntRange(min=1),
    help="Number of workers to compare with; repeatable. Default: 1, or 2 for a spec with 1.",
)
@click.option("--keep", is_flag=True, hidden=True, help="Keep the runs even if everything is equal.")
@format_options
def verify_resume(
    spec_path: str,
    overrides: tuple[str, ...],
    steps: int,
    workers: tuple[int, ...],
    keep: bool,
    form: str | None,
) -> int:
    """Check that a resumed run equals an uninterrupted one.

    A pretraining runs several times for twice --steps: uninterrupted, killed (`kill -9`) in the middle and resumed, and
    with another number of workers. Batches, weights and optimizer are compared bitwise; with another number of workers
    only the batches. Sweeps and distillations run to their end and are compared by scores, weights and predictions.
    Exit status 1: something differs.
    """
    from dataclasses import asdict

    say_now(f"reading the spec {spec_path}")
    from orchestrator.progress import show_progress
    from orchestrator.specs.loading import load_spec
    from orchestrator.verification.verify_resume import verify_resume as verify

    spec = load_spec(spec_path, overrides)
    with show_progress():
        verification = verify(spec, current_settings(), num_steps=steps, worker_counts=workers, keep=keep)
    rows = [asdict(comparison) for comparison in verification.comparisons]
    if form is None:
        rows = [row | {name: str(row[name])[:_DIGITS] for name in ("straight", "other")} for row in rows]
    show_rows(rows, list(rows[0]), form, None)
    if not verification.all_equal:
        notify(f"a run that was killed or shared differs; the runs are kept in {verification.home}")
        return 1
    return 0
