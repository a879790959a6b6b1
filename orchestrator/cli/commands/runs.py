"""Command group `runs`, which reads the registry run by run."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from orchestrator.cli.commands.registry_reading import NUM_PARAMETERS_SHOWN, find_run, open_registry, run_id_of
from orchestrator.cli.commands.reproducing import reproduce
from orchestrator.cli.commands.run_annotating import archive, note, pin, tag, unarchive, unpin, untag
from orchestrator.cli.commands.run_comparing import diff
from orchestrator.cli.commands.run_exporting import export
from orchestrator.cli.commands.run_listing import list_runs
from orchestrator.cli.commands.run_removing import restore, rm, trash
from orchestrator.cli.commands.run_showing import show
from orchestrator.cli.frame import GlobalOptionsGroup, WritingCommand, current_settings, given_options
from orchestrator.cli.messages import make_room, notify, say_now
from orchestrator.cli.output import show_rows, show_text, shows_briefly
from orchestrator.cli.reading import reading_options
from orchestrator.progress import terminal_width
from orchestrator.progress.log_lines import folded

if TYPE_CHECKING:
    from orchestrator.registry.records import RunRecord


@click.group(cls=GlobalOptionsGroup)
def runs() -> None:
    """Show what was run, and how it went.

    RUN is a run's name, which means its newest run, its id, or the first characters of its id, four at least.
    """


runs.add_command(list_runs)
runs.add_command(show)


@runs.command(example="orchestrator runs trials 7f3a -f csv -o trials.csv")
@click.argument("run_id", metavar="RUN")
@reading_options
def trials(run_id: str, form: str | None, output: str | None) -> None:
    """Trials of a sweep: what varied, and the scores."""
    from orchestrator.registry.group_records import varied_parameters

    with open_registry() as registry:
        run = find_run(registry, run_id)
        table = registry.trials.table(run.id)
        stages = registry.stages(run.id) if run.kind == "pipeline" else []
    if not table.records:
        notify(f"run {run.id} is a {run.kind} without trials{_stages_text(stages)}")
    varied = varied_parameters(table.records)
    scores = [
        column
        for column in table.columns
        if column.startswith("metrics.") and any(value is not None for value in table.values(column))
    ]
    own = [f"metrics.{run.metric}"] if f"metrics.{run.metric}" in scores else []
    if shows_briefly(form, output):
        scores = own or scores[:NUM_PARAMETERS_SHOWN]
        varied = varied[:NUM_PARAMETERS_SHOWN]
    folds = ["params.fold"] if any(row.get("params.fold") is not None for row in table.records) else []
    columns = ["number", "id", "state", "seed", *folds, *varied, *scores, "seconds"]
    show_rows(table.records, columns, form, output, spare=["seconds", "state", *scores[1:], "seed", "id"])


def _stages_text(stages: "Sequence[RunRecord]") -> str:
    """Ending of a message about a pipeline, whose stages have what is asked for."""
    named = ", ".join(f"{stage.id} ({stage.name.rpartition('/')[2]})" for stage in reversed(stages))
    return f"; its stages have them: {named}" if named else ""


@runs.command(example="orchestrator runs metrics 7f3a mlm_loss -f csv")
@click.argument("run_id", metavar="RUN")
@click.argument("name", required=False)
@reading_options
def metrics(run_id: str, name: str | None, form: str | None, output: str | None) -> None:
    """Measurements of a run, step by step.

    NAME (mlm_loss, train.mlm_loss) selects one measurement.
    """
    with open_registry() as registry:
        run = find_run(registry, run_id)
        table = registry.metrics.history(run.id, name)
        known = [] if table.records else sorted(registry.metrics.latest(run.id))
        stages = registry.stages(run.id) if run.kind == "pipeline" else []
    if not table.records:
        has = f" {name}; it has: {', '.join(known) or 'none'}" if name else ""
        notify(f"run {run.id} has no measurement{has}{_stages_text(stages)}")
    columns = ["split", "name", "step", "epoch", "value"]
    show_rows(table.records, columns, form, output, measurement=lambda row: f"{row['split']}.{row['name']}")


@runs.command(
    cls=WritingCommand,
    example="orchestrator runs plot 7f3a -o losses.png",
    output_help="Picture to write; it ends in .png, .svg or .pdf.",
)
@click.argument("run_id", metavar="RUN")
def plot(run_id: str, output: str) -> None:
    """Draw a run.

    Its measurements over its steps, or the trials of a sweep side by side.
    """
    say_now(f"drawing run {run_id}")
    from orchestrator.reports.run_page import plot_run

    with open_registry() as registry:
        plot_run(registry, find_run(registry, run_id), output)
    notify(f"wrote {output}")


@runs.command(example="orchestrator runs logs 7f3a --worker 1 | tail")
@click.argument("run_id", metavar="RUN")
@click.option(
    "--worker",
    "rank",
    is_flag=False,
    flag_value="all",
    metavar="[RANK]",
    help="What the training workers wrote, tracebacks included, in place of the run's log; of one worker or of all.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on printing until the run has ended; its outcome is the status.")
def logs(run_id: str, rank: str | None, follow: bool) -> int:
    """Print the log of a run, or of its workers.

    With --follow the log of a pipeline has that of the stage at work too.
    """
    from orchestrator.errors import NotFoundError
    from orchestrator.storage import join, read_bytes

    if rank not in (None, "all") and not rank.isdecimal():
        raise click.BadParameter(f"{rank!r} is no rank; give a number from 0 on, or --worker alone for all of them")
    if follow and rank is not None:
        raise click.UsageError("--follow is for the run's log; the workers' logs are printed as they stand")
    if follow:
        return _follow(run_id_of(run_id))
    with open_registry() as registry:
        run = find_run(registry, run_id)
        folder = run.folder(current_settings().storage)
        stages = registry.stages(run.id)[::-1] if run.kind == "pipeline" else []
    if rank is not None:
        _show_worker_logs(run.id, folder, None if rank == "all" else int(rank))
        return 0
    path = join(folder, "log.txt")
    try:
        show_text(_log_text(read_bytes(path)))
    except FileNotFoundError:
        raise NotFoundError(f"run {run.id} has no log at {path}; was it made with another --storage?") from None
    for stage in stages:
        notify(f"the log of {stage.name}: orchestrator{given_options()} runs logs {stage.id}")
    return 0


def _log_text(data: bytes) -> str:
    """Text of a log; for a terminal its lines are broken between words."""
    return folded(data.decode("utf-8", "replace"), terminal_width(sys.stdout))


def _follow(run_id: str) -> int:
    """Print a run's log until it has ended; returns the exit status that `wait` would give."""
    from orchestrator.execution.run_log import follow_log
    from orchestrator.execution.waiting import outcome_line
    from orchestrator.run_states import RunState

    def write(data: bytes) -> None:
        make_room(sys.stdout)
        click.echo(_log_text(data), nl=False)

    record = follow_log(run_id, settings=current_settings(), write=write)
    notify(outcome_line(record))
    return 0 if record.state == RunState.COMPLETED else 1


def _show_worker_logs(run_id: str, run_folder: str, rank: int | None) -> None:
    """Print the logs of a run's workers, each under its name. Raises: NotFoundError."""
    from orchestrator.errors import NotFoundError
    from orchestrator.storage import read_bytes
    from orchestrator.training.worker_log import worker_logs

    logs = [log for log in worker_logs(run_folder) if rank in (None, log.rank)]
    if not logs:
        whose = "of its workers" if rank is None else f"of a worker of rank {rank}"
        raise NotFoundError(f"run {run_id} has no log {whose} at {run_folder}; only trainings on Ray have such logs")
    for log in logs:
        show_text(f"== {log.path}")
        show_text(read_bytes(log.path).decode("utf-8", "replace"))


for _command in (diff, reproduce, export, note, tag, untag, pin, unpin, archive, unarchive, rm, trash, restore):
    runs.add_command(_command)
