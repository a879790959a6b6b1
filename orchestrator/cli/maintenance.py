"""Maintenance: `db` and `gc`; and what is about machines: `cluster`, `doctor`, `verify-resume`."""

import time
from collections import Counter
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from orchestrator.base.console import counted, show_progress
from orchestrator.base.errors import ClusterError
from orchestrator.base.settings import without_password
from orchestrator.cli.frame import GlobalOptionsGroup, command, current_settings, overrides_argument, spec_argument
from orchestrator.cli.messages import is_confirmed, notify, say_now
from orchestrator.cli.output import show_rows, show_text
from orchestrator.cli.reading import age_s, current_reading, format_options
from orchestrator.cli.registry_reading import open_for_writing, open_registry


@click.group(cls=GlobalOptionsGroup)
def db() -> None:
    """Maintain the registry's database."""


@db.command(example="db upgrade")
@click.option("--no-backup", is_flag=True, help="Skip the backup.")
def upgrade(no_backup: bool) -> None:
    """Migrate the database schema to the newest revision.

    A backup is made first, and its path printed: for SQLite a file beside the registry, for PostgreSQL a `pg_dump` file
    in the folder `backups` of --home.
    """
    from orchestrator.registry import Registry

    open_registry().close()  # a mistyped path is told, not made
    with Registry(current_settings().registry) as registry:
        show_text(registry.upgrade(current_settings().home / "backups", with_backup=not no_backup))


@db.command(example="db check")
@click.option("--mend", is_flag=True, help="Overwrite stored statistics that differ.")
def check(mend: bool) -> None:
    """Check the revision and stored statistics of the registry.

    The leaderboard reads statistics that are stored when a run ends. This recomputes them from the runs and reports
    differences; --mend writes them.
    """
    from orchestrator.base.errors import RegistryError

    with open_for_writing() if mend else open_registry() as registry:
        differing, revision = registry.check_groups(mend=mend), registry.current_revision()
    if differing and not mend:
        which = f"{counted(len(differing), 'group')}, as {differing[0]},"
        raise RegistryError(f"numbers of {which} do not follow from the runs; to mend: orchestrator db check --mend")
    mended = f", {counted(len(differing), 'group')} mended" if mend else ""
    state = f"at revision {revision}" if revision else "empty"
    notify(f"the registry is {state}; its statistics follow from the runs{mended}")


@db.command(example="db backup registry-monday.sqlite")
@click.argument("path", metavar="FILE")
@click.option("--overwrite", is_flag=True, help="Overwrite FILE.")
def backup(path: str, overwrite: bool) -> None:
    """Back up the registry to FILE while runs go on writing.

    A SQLite registry is copied to a SQLite file: read it with --registry FILE, or copy it back. PostgreSQL is dumped
    with pg_dump, for pg_restore. Files of runs and models are not included.
    """
    say_now("copying the registry")
    from orchestrator.base.console import size_text
    from orchestrator.registry.backups import back_up_registry

    target = Path(path).expanduser()
    form = back_up_registry(current_settings().registry, target, overwrite=overwrite)
    ways = {"sqlite": f"read it with --registry {path}", "pg_dump": f"restore it with: pg_restore --dbname=URL {path}"}
    notify(f"wrote {path}, {size_text(target.stat().st_size)}; {ways[form]}")


_MERGED = {
    "new": "new",
    "joined": "with new notes or tags",
    "unchanged": "the same",
    "unfinished": "not ended there, and left out (--unfinished brings them)",
    "removed": "in the trash here, and left there",
    "conflict": "in conflict, left as they are here",
}
"""Words after the number of items that a merge has left so."""


@db.command(example="db merge ~/laptop/registry.sqlite --dry-run")
@click.argument("other", metavar="FILE|URL")
@click.option("--unfinished", is_flag=True, help="Include unfinished runs.")
@click.option("--dry-run", is_flag=True, help="Show what would be merged.")
@format_options
def merge(other: str, unfinished: bool, dry_run: bool) -> int:
    """Merge another registry into this one.

    FILE is a SQLite file, URL a PostgreSQL registry; it is only read. Runs come with trials, models, tags and notes.
    Nothing here is replaced: a different run with the same id is a conflict, which is printed, and the exit status is
    1. Runs that were removed here stay removed. Merging again changes nothing.
    Files of runs and models are not copied.
    """
    say_now(f"reading {without_password(other)}")
    from orchestrator.registry.database import Database
    from orchestrator.registry.merging import merge_registry

    merged = []
    with closing(Database(current_settings().registry, read_only=dry_run)) as target, show_progress() as progress:
        for one in merge_registry(target, other, unfinished=unfinished, dry_run=dry_run):
            merged.append(one)
            progress.status(f"{'comparing' if dry_run else 'merging'}: {counted(len(merged), 'item')}, {one.name[:40]}")
    rows = [asdict(one) for one in merged if one.change != "unchanged"]
    columns, empty = ["what", "id", "name", "change", "remark"], "nothing to merge: both are the same"
    show_rows(rows, columns, empty=empty, spare=["name"])
    counts = Counter(one.change for one in merged)
    told = ", ".join(f"{counts[change]:,} {text}" for change, text in _MERGED.items() if counts[change])
    notify(f"{'would be: ' if dry_run else ''}{told or 'nothing there'}")
    return int(counts["conflict"] > 0)


@command(example="gc --dry-run\ngc --older-than 90d --yes")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted.")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@click.option("--older-than", default="30d", metavar="AGE", help="Delete shared data unused for AGE.")
@format_options
def gc(dry_run: bool, yes: bool, older_than: str) -> None:
    """Delete unused files: removed runs, old checkpoints, caches.

    It also deletes weights of trials that are neither registered, nor the best of their group, nor the base model of
    another run, and shared data and downloads unused for --older-than. Running and pinned runs keep everything.
    """
    older_than_s = age_s(older_than, "--older-than")
    say_now("looking for unused files")
    from orchestrator.base.console import size_text
    from orchestrator.execution.garbage import delete_garbage, find_garbage

    settings = current_settings()
    open_for_writing().close()  # one that is not there would read as "no run needs anything"
    items = find_garbage(settings, older_than_s)
    show_rows(map(asdict, items), ["what", "num_bytes", "path", "why"], empty="nothing to delete")
    total = f"{counted(len(items), 'item')}, {size_text(sum(item.num_bytes for item in items))}"
    if not items or not is_confirmed("delete", total, dry_run=dry_run, yes=yes):
        return
    gone = list(delete_garbage(items, settings, older_than_s))
    notify(f"deleted {counted(len(gone), 'item')}, {size_text(sum(item.num_bytes for item in gone))}")


@command(example="doctor\ndoctor --address 10.0.0.1:6379 --storage /srv/lab")
@format_options
def doctor() -> int:
    """Check this machine and, with --address, a cluster's nodes.

    With a dashboard URL "this machine" means the cluster's head. Each problem is shown with a fix; the exit status is 1
    if there is a problem. A node's row shows free and total resources; -f json has everything found.
    """
    say_now("looking at this machine")
    from orchestrator.cluster.connection import is_dashboard, names_no_cluster
    from orchestrator.execution.doctor import examine, problem_of, survey_nodes

    settings, nodes = current_settings(), list[dict[str, Any]]()
    findings = list(examine(settings))
    listens = findings[-1].state == "ok" and not names_no_cluster(settings)
    if listens and not is_dashboard(str(settings.address)):
        say_now("looking at each node of the cluster")
        try:
            nodes, wrong = survey_nodes(settings)
            findings += wrong
        except ClusterError as error:
            findings.append(problem_of("nodes", error, "see `ray status`"))
    rows: list[dict[str, Any]] = [asdict(finding) for finding in findings]
    form = current_reading().form
    if form == "json":
        rows += [{"part": f"node {node['node']}", "state": "ok", "found": node} for node in nodes]
    show_rows(rows, ["part", "state", "found", "remedy"])
    if nodes and form == "table":
        show_text("\nnodes: free of what each has")
        show_rows(nodes, ["node", "cpu", "gpu", "memory", "disk"])
    return int(any(finding.state == "problem" for finding in findings))


@click.group(cls=GlobalOptionsGroup)
def cluster() -> None:
    """Stop an on-premise cluster, or monitor a cluster."""


@cluster.command(example="cluster down cluster.local.yaml")
@click.argument("file", metavar="CLUSTER.yaml")
def down(file: str) -> None:
    """Stop Ray on every host of CLUSTER.yaml.

    For on-premise clusters (provider: type: local), where `ray down` stops the head only. Runs end, and
    `orchestrator resume` continues them later. Files stay.
    """
    from orchestrator.cluster.administration import read_hosts, stop_hosts

    logins = read_hosts(file)
    notify(f"stopping Ray on {len(logins)} hosts")
    rows = [
        {"host": login[-1].rpartition("@")[2], "role": "worker", "ray": problem or "stopped"}
        for login, problem in zip(logins, stop_hosts(logins), strict=True)
    ]
    rows[0]["role"] = "head"
    show_rows(rows, ["host", "role", "ray"])
    running = [row for row in rows if row["ray"] != "stopped"]
    if running:
        raise ClusterError(
            f"Ray may still run on {', '.join(row['host'] for row in running)}: {running[0]['ray']}; "
            f"give the command again when ssh reaches each host: orchestrator cluster down {file}"
        )


@cluster.command(example="cluster metrics")
@click.option(
    "--ray-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/tmp/ray"),
    metavar="DIR",
    help="Ray's temporary directory (ray start --temp-dir).",
)
def metrics(ray_dir: Path) -> None:
    """Run Prometheus and Grafana on the head, until Ctrl-C.

    Prometheus scrapes every node and the runs (ray_bert_loss, ray_bert_tokens_per_s, …); Grafana shows Ray's dashboards
    and that of the runs. Run it on the head node. Prometheus must be installed, Grafana is optional. They listen on the
    head's localhost; from elsewhere: ssh -L 3000:127.0.0.1:3000 -L 9090:127.0.0.1:9090 HEAD
    """
    from orchestrator.cluster.administration import metrics_servers

    folder = current_settings().home / "metrics"
    with metrics_servers(ray_dir, folder) as servers:
        for server in servers:
            notify(f"{server.name} answers at {server.url}")
        if len(servers) == 1:
            notify("no boards: there is no `grafana` on the PATH (https://grafana.com/grafana/download)")
        notify("Ctrl-C ends them")
        while True:
            for server in servers:
                if server.process.poll() is not None:
                    raise ClusterError(f"{server.name} has ended by itself; see {folder / server.name}.log")
            time.sleep(1.0)


@command(
    example="verify-resume experiments/pretrain_tiny_wikipedia.yaml \\\n"
    "    'corpus.files=[notes/*.txt]' tokenizer=tokenizers/notes --steps 10"
)
@spec_argument
@overrides_argument
@click.option("--steps", type=click.IntRange(1), default=5, help="Steps before the kill; runs take twice as many.")
@click.option(
    "--workers",
    multiple=True,
    type=click.IntRange(min=1),
    help="Number of workers to compare with; repeatable. Default: 1, or 2 for a spec with 1.",
)
@format_options
def verify_resume(spec_path: str, overrides: tuple[str, ...], steps: int, workers: tuple[int, ...]) -> int:
    """Check that a resumed run equals an uninterrupted one.

    A pretraining runs several times for twice --steps: uninterrupted, killed (`kill -9`) in the middle and resumed, and
    with another number of workers. Batches, weights and optimizer are compared bitwise; with another number of workers
    only the batches. Sweeps and distillations run to their end and are compared by scores, weights and predictions.
    Exit status 1: something differs.
    """
    say_now(f"reading the spec {spec_path}")
    from orchestrator.execution.verify_resume import verify_resume as verify
    from orchestrator.specs.loading import load_spec

    spec = load_spec(spec_path, overrides)
    rows = [asdict(one) for one in verify(spec, current_settings(), num_steps=steps, worker_counts=workers)]
    if current_reading().form == "table":
        rows = [row | {name: str(row[name])[:12] for name in ("straight", "other")} for row in rows]
    show_rows(rows, list(rows[0]))
    return int(not all(row["equal"] for row in rows))
