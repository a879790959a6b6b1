"""`runs export`: runs as a table in a file, or for another tracker."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.commands.registry_reading import find_run, open_registry
from orchestrator.cli.frame import GlobalOptionsCommand
from orchestrator.cli.messages import notify, say_now, status_line
from orchestrator.cli.output import show_rows, write_output
from orchestrator.cli.output_option import check_output
from orchestrator.cli.reading import raw_option
from orchestrator.errors import InputError
from orchestrator.progress import counted
from orchestrator.settings import ASKED_AT_VARIABLE

if TYPE_CHECKING:
    from orchestrator.registry import Registry

_ENDINGS = (".csv", ".json", ".parquet")
_TRACKERS = ("tensorboard", "mlflow", "wandb")


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator runs export -o runs.csv --where \"task = 'sst2'\"\n"
    "orchestrator runs export 7f3a --tracker tensorboard -o events/",
)
@click.argument("run_ids", metavar="[RUN...]", nargs=-1)
@click.option("--tracker", type=click.Choice(_TRACKERS), help="Write for another tracker, by its own library.")
@click.option("--where", default="", help="A query, as `orchestrator query` takes it; all runs when left out.")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE|FOLDER",
    help="File (.csv, .json, .parquet), or folder for --tracker.",
)
@raw_option
def export(run_ids: tuple[str, ...], tracker: str | None, output: str, where: str) -> None:
    """Write runs and trials to a file, or for another tracker.

    A file has a row for each run, and a column for each metric and parameter. --tracker writes TensorBoard's event
    files, MLflow's store or offline runs of W&B into a folder: parameters, measurements step by step, tags and notes;
    models stay where they are. RUNs come with their trials.
    """
    if run_ids and where:
        raise click.UsageError("either RUNs or --where")
    if tracker is not None:
        _write_for(tracker, run_ids, where, output)
    else:
        check_output(output)
        _write_table(run_ids, where, output)


def _write_table(run_ids: tuple[str, ...], where: str, output: str) -> None:
    ending = Path(output).suffix
    if ending not in _ENDINGS:
        raise InputError(f"{output} should end in .csv, .json or .parquet, which says what is written")
    with open_registry() as registry:
        table = registry.run_table(_query(registry, run_ids) or where)
    if ending == ".parquet":
        from io import BytesIO

        buffer = BytesIO()
        parameters = [column for column in table.columns if column.startswith("params.")]
        table.frame().astype(dict.fromkeys(parameters, "string")).to_parquet(buffer, index=False)
        write_output(output, buffer.getvalue())
    else:
        show_rows(table.records, table.columns, None, output)
    notify(f"{len(table.records)} runs and trials")


def _query(registry: "Registry", run_ids: tuple[str, ...]) -> str:
    """Query for some runs and their trials; nothing where none are named. Raises: NotFoundError."""
    ids = ", ".join(f"'{find_run(registry, run_id).id}'" for run_id in run_ids)
    return f"id in ({ids}) or parent in ({ids})" if ids else ""


def _write_for(tracker: str, run_ids: tuple[str, ...], where: str, output: str) -> None:
    if ASKED_AT_VARIABLE in os.environ:
        raise InputError(
            "--tracker writes a folder of this machine; copy the registry here first, as docs/cluster.md says"
        )
    folder = Path(output).expanduser()
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{output} is a file; name a folder")
    say_now(f"writing for {tracker}")
    from orchestrator.reports.tracker_exports import TRACKERS, load_runs, write_runs

    with open_registry() as registry:
        named = [find_run(registry, run_id).id for run_id in run_ids]
        runs = load_runs(registry, named, where=where)
    with status_line() as show:
        changed = write_runs(tracker, runs, folder, on_run=lambda run: show(f"writing {run.title[:60]} for {tracker}"))
    if changed:
        names = ", ".join(f"{name} as {written}" for name, written in changed.items())
        notify(f"{tracker} takes no such names, and has {names}")
    look = TRACKERS[tracker].look.replace("FOLDER", output.rstrip("/"))
    notify(f"wrote {counted(len(runs), 'run')} and trials into {output}; look: {look}")
