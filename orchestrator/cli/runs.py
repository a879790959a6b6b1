"""Commands of `runs` on one run: `show`, `reproduce`, `trials`, `metrics`, `plot`, `logs`; and `export` of several."""

import os
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.base.console import counted, show_progress, terminal_width
from orchestrator.base.console.log_lines import folded
from orchestrator.base.errors import InputError, NotFoundError
from orchestrator.base.formatting import printable
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import ASKED_AT_VARIABLE
from orchestrator.cli.frame import command, current_settings, given_options
from orchestrator.cli.messages import make_room, notify, say_now
from orchestrator.cli.next_commands import next_commands
from orchestrator.cli.output import show_record, show_rows, show_text, write_output
from orchestrator.cli.reading import (
    check_output,
    current_reading,
    format_options,
    output_option,
    output_options,
    remember_reading,
)
from orchestrator.cli.registry_reading import NUM_PARAMETERS_SHOWN, find_run, open_registry, run_id_of, table_command

if TYPE_CHECKING:
    from orchestrator.registry import Registry


@command(example="runs show 7f3a\nruns show my-sweep --all")
@click.argument("run_id", metavar="RUN")
@click.option("--all", "is_whole", is_flag=True, help="Everything recorded, with the whole spec.")
@output_options
def show(run_id: str, is_whole: bool) -> None:
    """Show a run: state, scores, files, next commands.

    Spec fields that differ from their defaults are shown as KEY=VALUE; a sweep also shows its best trial. --all, JSON
    and CSV have everything recorded: machine, attempts, every score; JSON also the counts of each data file.
    """
    from orchestrator.reports.run_facts import RunFacts, brief_record, full_record

    with open_registry() as registry:
        facts, reading = RunFacts(registry, find_run(registry, run_id), current_settings().home), current_reading()
        if reading.is_brief and not is_whole and not reading.columns:
            show_record(brief_record(facts))
            show_text(printable("next\n" + "".join(f"  {line}\n" for line in next_commands(facts))))
        else:
            show_record(full_record(facts, reading.form))


@command("reproduce", example="runs reproduce 7f3a\nruns reproduce 7f3a --show spec -o again.yaml")
@click.argument("run_id", metavar="RUN")
@click.option("--show", "part", type=click.Choice(["spec", "diff"]), help="Print the spec, or uncommitted changes.")
@format_options
@output_option("Write to FILE; .json sets the format.", expose_value=False)
def reproduce(run_id: str, part: str | None) -> None:
    """Show how to reproduce a run.

    Commit and uncommitted changes, command, spec, versions, and which inputs have changed since.
    """
    say_now(f"looking up run {run_id}")
    from orchestrator.execution.reproduction import kept_diff, reproduction_facts, spec_text

    reading = current_reading()
    with open_registry() as registry:
        run = find_run(registry, run_id)
        if part is not None:
            if reading.form != "table":
                raise InputError("--show prints text; for a spec as JSON: orchestrator runs show RUN -f json")
            show_text((kept_diff if part == "diff" else spec_text)(run, registry), reading.output)
            return
        facts = reproduction_facts(run, registry, current_settings(), f"orchestrator{given_options()}")
    if reading.form != "table":
        show_record(facts)
        return
    lines = {name: facts[name] for name in ("run", "folder", "command", "spec", "code")}
    lines["checkout"] = facts["commit"] and f"git checkout {facts['commit']}"
    lines["changes"] = facts["uncommitted_changes"]
    lines["versions"] = " ".join(f"{name}=={version}" for name, version in (facts["versions"] or {}).items())
    inputs = [f"{'inputs':10}{line}" for line in facts["changed_inputs"] or ["unchanged"]]
    text = [*(f"{name:10}{value}" for name, value in lines.items() if value), *inputs]
    show_text("".join(f"{printable(line, keep_lines=False)}\n" for line in text), reading.output)


@table_command(example="runs trials 7f3a -f csv -o trials.csv")
@click.argument("run_id", metavar="RUN")
def trials(registry: "Registry", run_id: str) -> None:
    """List the trials of a sweep: parameters that vary, and scores."""
    from orchestrator.registry.parameters import varied_parameters

    run = find_run(registry, run_id)
    table = registry.trials.table(run.id)
    if not table.records:
        from orchestrator.reports.run_facts import RunFacts, stages_text

        sweeps = (stage for stage in RunFacts(registry, run).stages if stage.kind == "sweep")
        notify(f"run {run.id} is a {run.kind} without trials{stages_text(sweeps)}")
    known = [name for name in table.columns if any(value is not None for value in table.values(name))]
    varied, scores = varied_parameters(table.records), [name for name in known if name.startswith("metrics.")]
    if current_reading().is_brief:
        own = f"metrics.{run.metric}"
        scores = [own] if own in scores else scores[:NUM_PARAMETERS_SHOWN]
        varied = varied[:NUM_PARAMETERS_SHOWN]
    folds = ["params.fold"] if "params.fold" in known else []
    columns = ["number", "id", "state", "seed", *folds, *varied, *scores, "seconds"]
    show_rows(table.records, columns, spare=["seconds", "state", *scores[1:], "seed", "id"])


@table_command(example="runs metrics 7f3a mlm_loss -f csv")
@click.argument("run_id", metavar="RUN")
@click.argument("name", required=False)
def metrics(registry: "Registry", run_id: str, name: str | None) -> None:
    """List the metrics of a run, step by step.

    NAME (mlm_loss, train.mlm_loss) selects one metric.
    """
    run = find_run(registry, run_id)
    rows = registry.metrics.history(run.id, name).records
    if not rows:
        from orchestrator.reports.run_facts import RunFacts, stages_text

        known = ", ".join(sorted(registry.metrics.latest(run.id))) or "none"
        has = f" {name}; it has: {known}" if name else ""
        told = f"run {run.id} has no measurement{has}{stages_text(RunFacts(registry, run).stages)}"
        if name:
            raise NotFoundError(told)
        notify(told)
    columns = ["split", "name", "step", "epoch", "value"]
    show_rows([row | {"metric": f"{row['split']}.{row['name']}"} for row in rows], columns)


@command(example="runs plot 7f3a -o losses.png")
@click.argument("run_id", metavar="RUN")
@output_option("Image file: .png, .svg or .pdf.", required=True)
def plot(run_id: str, output: str) -> None:
    """Plot metrics over steps, or the trials of a sweep."""
    say_now(f"drawing run {run_id}")
    from orchestrator.reports.pages import plot_run

    with open_registry() as registry:
        plot_run(registry, find_run(registry, run_id), output)
    notify(f"wrote {output}")


@command(example="runs logs 7f3a --follow\nruns logs 7f3a --worker 1")
@click.argument("run_id", metavar="RUN")
@click.option(
    "--worker", "rank", is_flag=False, flag_value="all", metavar="[RANK]", help="Worker logs; all ranks without RANK."
)
@click.option("--follow", is_flag=True, help="Follow until the run ends; exit status as of `wait`.")
def logs(run_id: str, rank: str | None, follow: bool) -> int:
    """Print the log of a run or of its workers, with tracebacks.

    With --follow the log of a pipeline includes the running stage.
    """
    if rank not in (None, "all") and not rank.isdecimal():
        raise click.BadParameter(f"{rank!r} is no rank; give a number from 0 on, or --worker alone for all of them")
    if follow and rank is not None:
        raise click.UsageError("--follow is for the run's log; the workers' logs are printed as they stand")
    if follow:
        from orchestrator.execution.waiting import follow_log, outcome_line

        def write(data: bytes) -> None:
            make_room(sys.stdout)
            click.echo(_log_text(data), nl=False)

        record = follow_log(run_id_of(run_id), settings=current_settings(), write=write)
        notify(outcome_line(record))
        return 0 if record.state == RunState.COMPLETED else 1
    with open_registry() as registry:
        run = find_run(registry, run_id)
        stages = registry.stages(run.id)[::-1] if run.kind == "pipeline" and rank is None else []
    from orchestrator.storage import join, read_bytes

    folder = run.folder(current_settings().storage)
    if rank is None:
        path = join(folder, "log.txt")
        try:
            show_text(_log_text(read_bytes(path)))
        except FileNotFoundError:
            raise NotFoundError(f"run {run.id} has no log at {path}; was it made with another --storage?") from None
    else:
        from orchestrator.training.worker_log import worker_logs

        paths = [path for _, of_rank, path in worker_logs(folder) if rank in ("all", str(of_rank))]
        if not paths:
            whose = "of its workers" if rank == "all" else f"of a worker of rank {rank}"
            raise NotFoundError(f"run {run.id} has no log {whose} at {folder}; only trainings on Ray have such logs")
        for path in paths:
            show_text(f"== {path}")
            show_text(read_bytes(path).decode("utf-8", "replace"))
    for stage in stages:
        notify(f"the log of {stage.name}: orchestrator{given_options()} runs logs {stage.id}")
    return 0


def _log_text(data: bytes) -> str:
    return folded(data.decode("utf-8", "replace"), terminal_width(sys.stdout))


_ENDINGS = (".csv", ".json", ".parquet")
_MOST_RUNS = 100
"""Runs that are named one by one: each is asked for by two comparisons, as a run and as a parent."""
_TRACKERS = ("tensorboard", "mlflow", "wandb")


@command(example="runs export -o runs.csv --where \"task = 'sst2'\"\nruns export 7f3a --to tensorboard -o events/")
@click.argument("run_ids", metavar="[RUN...]", nargs=-1)
@click.option("--to", "tracker", type=click.Choice(_TRACKERS), help="Tracker format; needs its Python package.")
@click.option("--where", metavar="QUERY", default="", show_default=False, help="Runs that match QUERY; all by default.")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE|FOLDER",
    callback=remember_reading,
    help="File (.csv, .json, .parquet), or folder with --to.",
)
@click.option("--raw", is_flag=True, hidden=True, expose_value=False, callback=remember_reading)
def export(run_ids: tuple[str, ...], tracker: str | None, output: str, where: str) -> None:
    """Export runs to a file, or to another tracker.

    A file has a row per run or trial and a column per metric and parameter. --to writes TensorBoard event files, an
    MLflow store or offline W&B runs into a folder: parameters, metric histories, tags and notes, but no models. RUNs
    are exported with their trials.
    """
    if run_ids and where:
        raise click.UsageError("either RUNs or --where")
    if len(run_ids) > _MOST_RUNS:
        raise click.UsageError(f"{len(run_ids)} RUNs; give {_MOST_RUNS} at most, or choose them by --where")
    if tracker is None:
        check_output(output)
        if Path(output).suffix not in _ENDINGS:
            raise InputError(f"{output} should end in .csv, .json or .parquet, which says what is written")
    elif ASKED_AT_VARIABLE in os.environ:
        raise InputError("--to writes a folder of this machine; copy the registry here first, as docs/cluster.md says")
    elif (folder := Path(output).expanduser()).exists() and not folder.is_dir():
        raise InputError(f"{output} is a file; name a folder")
    with open_registry() as registry:
        if run_ids:
            ids = ", ".join(f"'{find_run(registry, run_id).id}'" for run_id in run_ids)
            where = f"id in ({ids}) or parent in ({ids})"
        if tracker is not None:
            _write_for(tracker, registry, where, output)
            return
        table = registry.run_table(where)
    if output.endswith(".parquet"):
        buffer = BytesIO()
        parameters = [column for column in table.columns if column.startswith("params.")]
        table.frame().astype(dict.fromkeys(parameters, "string")).to_parquet(buffer, index=False)
        write_output(output, buffer.getvalue())
    else:
        show_rows(table.records, table.columns)
    notify(f"{len(table.records)} runs and trials")


def _write_for(tracker: str, registry: "Registry", where: str, output: str) -> None:
    say_now(f"writing for {tracker}")
    from orchestrator.reports.tracker_exports import TRACKERS, ExportedRun, load_runs, write_runs

    runs = load_runs(registry, where)
    with show_progress() as progress:

        def told() -> Iterator[ExportedRun]:
            for run in runs:
                progress.status(f"writing {run.title[:60]} for {tracker}")
                yield run

        write_runs(tracker, told(), Path(output).expanduser())
    look = TRACKERS[tracker].look.replace("FOLDER", output.rstrip("/"))
    notify(f"wrote {counted(len(runs), 'run')} and trials into {output}; look: {look}")
