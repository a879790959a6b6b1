"""Commands `cluster pull`, which brings runs of a cluster home, and `cluster bundle`, its part on the head."""

import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.ages import time_of
from orchestrator.cli.frame import GlobalOptionsCommand, current_settings
from orchestrator.cli.messages import notify, status_line
from orchestrator.cli.output import show_rows
from orchestrator.cli.reading import reading_options
from orchestrator.errors import ClusterError, InputError, RegistryError
from orchestrator.progress import counted
from orchestrator.run_states import RunState
from orchestrator.settings import Settings

if TYPE_CHECKING:
    from orchestrator.execution.pulling import PulledRun
    from orchestrator.execution.run_bundle import BundledRun, Contents, Wanted

_COLUMNS = ["id", "name", "kind", "state", "trials", "measurements", "log_bytes", "change"]


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator cluster pull --address http://127.0.0.1:8265\n"
    "orchestrator cluster pull 7f3a --registry postgresql://lab@db/lab",
)
@click.argument("run_ids", metavar="[RUN ...]", nargs=-1)
@click.option("--since", metavar="TIME", help="Leave out runs that ended before: 2026-11-22 (UTC), or an age (7d).")
@click.option("--dry-run", is_flag=True, help="Only show what would come, and how much it is.")
@reading_options
def pull(run_ids: tuple[str, ...], since: str | None, dry_run: bool, form: str | None, output: str | None) -> int:
    """Bring runs of a cluster into this machine's registry, with their logs.

    All runs, or those that are named: attempts, measurements, trials, records of models. What came before and has gone
    on is brought up to date. Weights and checkpoints stay on the cluster. The cluster's registry is that of its head,
    by --address, or the one that --registry names; this machine's is that of its environment, or the one in --home.
    """
    from orchestrator.execution.pulling import foretell, known_digests
    from orchestrator.execution.run_bundle import Wanted, read_contents
    from orchestrator.registry import Registry

    there = current_settings()
    here = Settings.from_options(there.home)
    with Registry(here.registry, read_only=True) as registry:
        wanted = Wanted(run_ids, time_of(since, "--since"), known_digests(registry, here.home))
        fetched = _fetch(wanted, there, here, contents_only=dry_run)
        if dry_run:
            contents = read_contents(fetched)
            pulled = [_row(run, foretell(run, registry)) for run in contents.runs]
    if not dry_run:
        contents, brought = _bring(fetched, here)
        pulled = [_row(each.run, each.change) for each in brought]
    show_rows(pulled, _COLUMNS, form, output)
    _tell(contents, pulled, dry_run=dry_run)
    return RegistryError.exit_status if any(row["change"] == "refused" for row in pulled) else 0


@click.command(cls=GlobalOptionsCommand, hidden=True, example="orchestrator cluster bundle wanted.json bundle.gz")
@click.argument("wanted_path", metavar="WANTED.json", type=click.Path(path_type=Path))
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--contents-only", is_flag=True, help="Write only what the file would hold, as JSON.")
def bundle(wanted_path: Path, file: Path, contents_only: bool) -> None:
    """Write the runs that somebody elsewhere wants into one file."""
    from orchestrator.execution.pulling import read_wanted

    file.write_bytes(_bundle_of(read_wanted(wanted_path), current_settings(), contents_only=contents_only))


def _bundle_of(wanted: "Wanted", settings: Settings, place: str | None = None, *, contents_only: bool) -> bytes:
    """Make a bundle of the wanted runs, or only tell what would be in it, as JSON."""
    from orchestrator.execution.run_bundle import write_bundle

    with TemporaryDirectory(prefix="orchestrator-bundle-") as name:
        file = Path(name) / "bundle"
        contents = write_bundle(file, settings, wanted, place=place)
        return json.dumps(asdict(contents)).encode() if contents_only else file.read_bytes()


def _fetch(wanted: "Wanted", there: Settings, here: Settings, *, contents_only: bool) -> bytes:
    """Get a bundle of the wanted runs, or only what would be in it, as JSON, of the head or of a server's registry."""
    from orchestrator.cluster.addresses import dashboard_address, is_file_elsewhere
    from orchestrator.registry import Registry

    if "registry" not in there.typed or is_file_elsewhere(there.registry):
        return _fetch_from_head(wanted, there, dashboard_address(there), contents_only=contents_only)
    place = Registry(there.registry).place
    if place == Registry(here.registry).place:
        raise InputError(f"{place} is this machine's own registry; give another --registry, or the cluster's --address")
    return _bundle_of(wanted, there, place, contents_only=contents_only)


def _fetch_from_head(wanted: "Wanted", there: Settings, address: str, *, contents_only: bool) -> bytes:
    """Return the file that the head has made. Raises: ClusterError; ends here with the head's status."""
    from orchestrator.cli.head import head_streams
    from orchestrator.execution.head_commands import carry_out_on_head, refuse_password
    from orchestrator.execution.pulling import bundle_command

    there = replace(there, typed=there.typed - {"home"})  # which is where the runs go to
    refuse_password(there)
    with head_streams(f"asking the head of the cluster at {address} for its runs …") as streams:
        outcome = carry_out_on_head(bundle_command(wanted, contents_only=contents_only), there, address, streams)
    if outcome.status == InputError.exit_status:
        raise ClusterError(
            "the `orchestrator` on the cluster's head makes no bundle of runs, for the reason above; where it is of "
            "another version, install there the one that is here"
        )
    if outcome.status:
        notify("nothing was pulled, and nothing changed here")
        click.get_current_context().exit(outcome.status)
    if outcome.file is None:
        raise ClusterError("the cluster's head made no bundle of its runs; install there the version that is here")
    return outcome.file


def _bring(fetched: bytes, here: Settings) -> "tuple[Contents, list[PulledRun]]":
    """Bring the runs of a bundle here, and tell of those that a person should know more of."""
    from orchestrator.execution.pulling import bring_runs
    from orchestrator.execution.run_bundle import open_bundle
    from orchestrator.registry import Registry

    brought: list[PulledRun] = []
    with TemporaryDirectory(prefix="orchestrator-pull-") as name:
        file = Path(name) / "bundle"
        file.write_bytes(fetched)
        with status_line() as show, open_bundle(file) as opened, Registry(here.registry) as registry:
            for each in bring_runs(opened, registry, here.home):
                brought.append(each)
                show(f"run {len(brought)} of {len(opened.contents.runs)}: {each.run.id} is {each.change}")
    for each in brought:
        if each.remark:
            notify(each.remark)
    return opened.contents, brought


def _row(run: "BundledRun", change: str) -> dict[str, Any]:
    return {**asdict(run), "trials": run.num_trials, "measurements": run.num_points, "change": change}


def _tell(contents: "Contents", pulled: list[dict[str, Any]], *, dry_run: bool) -> None:
    """Say how much came, or would, and what a person will not find here."""
    from orchestrator.progress import size_text

    counts = Counter(row["change"] for row in pulled)
    counts["unchanged"] += contents.num_unchanged
    changes = [f"{counts[change]} {change}" for change in ("new", "updated", "unchanged", "refused") if counts[change]]
    notify(
        f"{'would pull' if dry_run else 'pulled'} from {contents.place}: {', '.join(changes) or 'nothing'}; "
        f"{size_text(contents.num_bytes)}; weights and checkpoints stay there"
    )
    at_work = sum(not RunState(row["state"]).is_final for row in pulled)
    if at_work and not dry_run:
        notify(f"{counted(at_work, 'run')} had not ended: here such runs read as LOST until the next pull")
    without = [row["id"] for row in pulled if row["log_bytes"] is None]
    if without:
        notify(f"no log was found for {', '.join(without)}; with the cluster's --address its head looks for them")
