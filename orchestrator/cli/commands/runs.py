"""Command group `runs`, which reads the registry run by run."""

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.commands.registry_reading import NO_RUNS, open_registry, records_of
from orchestrator.cli.frame import AtDashboard, GlobalOptionsGroup, current_settings, reading_options
from orchestrator.cli.output import notify, show_record, show_rows, show_text, write_output

if TYPE_CHECKING:
    from orchestrator.registry.records import AttemptRecord

_NUM_PARAMETERS_SHOWN = 4
_COUNTS_SHOWN = ("num_documents", "num_tokens", "num_bad_records")
"""Counts of a corpus that `runs show` prints; of other data it prints all."""


@click.group(cls=GlobalOptionsGroup)
def runs() -> None:
    """Show what was run, and how it went. RUN is the id of a run, or the first characters of it."""


@runs.command("list", example="orchestrator runs list --limit 5", at_dashboard=AtDashboard.SENT)
@click.option("--limit", type=click.IntRange(1), default=30, show_default=True, help="Number of runs, the newest ones.")
@click.option("--trials", is_flag=True, help="Include the trials of sweeps.")
@reading_options
def list_runs(limit: int, trials: bool, form: str | None, output: str | None) -> None:
    """The newest runs."""
    with open_registry() as registry:
        frame = registry.runs(limit=limit, trials=trials)
    rows = records_of(frame)
    for row in rows:
        row["score"] = row.get(f"metrics.{row['metric']}") if row.get("metric") else None
    columns = ["id", "name", "kind", "state", "task", "metric", "score", "seconds", "created_at"]
    show_rows(rows, columns, form, output, empty=NO_RUNS, spare=["seconds", "metric", "kind"])


@runs.command(example="orchestrator runs show 7f3a", at_dashboard=AtDashboard.SENT)
@click.argument("run_id", metavar="RUN")
@reading_options
def show(run_id: str, form: str | None, output: str | None) -> None:
    """Everything that is recorded of one run.

    State, scores, attempts, checkpoints, data, models and the whole spec; as JSON also the counts of each file.
    """
    from dataclasses import asdict

    with open_registry() as registry:
        run = registry.run(run_id)
        record: dict[str, Any] = asdict(run)
        spec = record.pop("spec")
        record["tags"] = registry.tags(run.id)
        attempts = registry.attempts(run.id)
        record["attempts"] = len(attempts)
        record["last_step"] = registry.metrics.last_step(run.id)
        checkpoints = registry.checkpoints.of_run(run.id)
        record["last_checkpoint"] = checkpoints[-1].path if checkpoints else None
        data = records_of(registry.datasets.frame(run.id))
        record["models"] = [model.label for model in registry.models.of_run(run.id)]
        record |= {f"metrics.{name}": value for name, value in registry.metrics.latest(run.id).items()}
        parameters = registry.parameters(run.id)
    if form == "json" or (form is None and (output or "").endswith(".json")):
        record |= {"spec": spec, "parameters": parameters, "data": data, "starts": [asdict(one) for one in attempts]}
    else:
        record |= {f"attempt.{one.number}": _attempt_line(one) for one in attempts}
        record |= {f"data.{number}": _data_line(row) for number, row in enumerate(data, start=1)}
        record |= {f"params.{name}": value for name, value in parameters.items()}
    show_record(record, form, output)


def _attempt_line(attempt: "AttemptRecord") -> str:
    """One line on a start of a run: how it ended, where its driver worked, and what the cluster calls it."""
    place = f"process {attempt.pid} on {attempt.host}" if attempt.host else "an unknown host"
    job = f", job {attempt.job_id}" if attempt.job_id else ""
    return f"{attempt.state}: {place}{job}; began {attempt.started_at:%Y-%m-%d %H:%M}{_workers_text(attempt)}"


def _workers_text(attempt: "AttemptRecord") -> str:
    """Training workers of an attempt by steps: `; steps 0-80: 4 workers on a, b; from step 80: 2 workers on a`."""
    from orchestrator.results import WorkersEvent

    groups = [WorkersEvent(**group) for group in attempt.workers or ()]
    ends = [f"steps {one.first_step:,}-{after.first_step:,}" for one, after in pairwise(groups)]
    ends += [f"from step {one.first_step:,}" for one in groups[-1:]]
    return "".join(f"; {steps}: {group}" for steps, group in zip(ends, groups, strict=True))


def _data_line(row: Mapping[str, Any]) -> str:
    """One line on data of a run: its name, how much of it there is, and where it lies."""
    counts = row["counts"]
    names = [name for name in _COUNTS_SHOWN if name in counts] or list(counts)
    amounts = [f"{counts[name]:,} {name.removeprefix('num_').replace('_', ' ')}" for name in names]
    return f"{row['name']}: {', '.join(amounts)}; at {row['path']}"


@runs.command(example="orchestrator runs trials 7f3a -f csv -o trials.csv", at_dashboard=AtDashboard.SENT)
@click.argument("run_id", metavar="RUN")
@reading_options
def trials(run_id: str, form: str | None, output: str | None) -> None:
    """Trials of a sweep: what varied, and the scores.

    Where trials took others' values while they trained, `recipe.NAME` is the value at the best evaluation.
    """
    with open_registry() as registry:
        run = registry.run(run_id)
        frame = registry.trials.frame(run.id)
    if frame.empty:
        notify(f"run {run.id} is a {run.kind} without trials")
    rows = records_of(frame)
    varied = [
        column
        for column in frame.columns
        if column.startswith("params.") and len({str(value) for value in frame[column]}) > 1
    ]
    scores = [column for column in frame.columns if column.startswith("metrics.") and not frame[column].isna().all()]
    own = [f"metrics.{run.metric}"] if f"metrics.{run.metric}" in scores else []
    if form in (None, "table") and not output:
        changed = [name for name in scores if name.startswith("metrics.recipe.")]
        scores = [*changed[:_NUM_PARAMETERS_SHOWN], *(own or scores[:_NUM_PARAMETERS_SHOWN])]
        varied = [name for name in varied if name != "params.seed"][:_NUM_PARAMETERS_SHOWN]
    show_rows(rows, ["number", "id", "state", "seed", *varied, *scores, "seconds"], form, output)


@runs.command(example="orchestrator runs metrics 7f3a mlm_loss -f csv", at_dashboard=AtDashboard.SENT)
@click.argument("run_id", metavar="RUN")
@click.argument("name", required=False)
@reading_options
def metrics(run_id: str, name: str | None, form: str | None, output: str | None) -> None:
    """Measurements of a run, step by step.

    NAME (mlm_loss, train.mlm_loss) selects one measurement.
    """
    with open_registry() as registry:
        run = registry.run(run_id)
        frame = registry.metrics.history(run.id, name)
        known = sorted(registry.metrics.latest(run.id)) if frame.empty else []
    if frame.empty:
        notify(f"run {run.id} has no measurement" + (f" {name}; it has: {', '.join(known) or 'none'}" if name else ""))
    show_rows(records_of(frame), ["split", "name", "step", "epoch", "value", "recorded_at"], form, output)


@runs.command(example="orchestrator runs plot 7f3a losses.png", at_dashboard=AtDashboard.SENT)
@click.argument("run_id", metavar="RUN")
@click.argument("output", metavar="FILE")
def plot(run_id: str, output: str) -> None:
    """Draw a run.

    Its measurements over its steps, or the trials of a sweep side by side. FILE ends in .png, .svg or .pdf.
    """
    from orchestrator.registry.plots import plot_run

    with open_registry() as registry:
        plot_run(registry, run_id, output)
    notify(f"wrote {output}")


@runs.command(example="orchestrator runs logs 7f3a --worker 1 | tail", at_dashboard=AtDashboard.SENT)
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
    """Print the log of a run, or of its workers."""
    from orchestrator.errors import NotFoundError
    from orchestrator.execution.pulling import log_folder
    from orchestrator.storage import join, read_bytes

    if rank not in (None, "all") and not rank.isdecimal():
        raise click.BadParameter(f"{rank!r} is no rank; give a number from 0 on, or --worker alone for all of them")
    if follow and rank is not None:
        raise click.UsageError("--follow is for the run's log; the workers' logs are printed as they stand")
    if follow:
        return _follow(run_id)
    with open_registry() as registry:
        run = registry.run(run_id)
        folder = log_folder(run, registry, current_settings())
    if rank is not None:
        _show_worker_logs(run.id, folder, None if rank == "all" else int(rank))
        return 0
    path = join(folder, "log.txt")
    try:
        show_text(read_bytes(path).decode("utf-8", "replace"))
    except FileNotFoundError:
        raise NotFoundError(f"run {run.id} has no log at {path}; was it made with another --storage?") from None
    return 0


def _follow(run_id: str) -> int:
    """Print a run's log until it has ended; returns the exit status that `wait` would give."""
    from orchestrator.execution.log_following import follow_log
    from orchestrator.execution.waiting import outcome_line
    from orchestrator.run_states import RunState

    record = follow_log(run_id, settings=current_settings(), write=lambda data: click.echo(data, nl=False))
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


@runs.command(example="orchestrator runs export runs.csv --where \"task = 'sst2'\"", at_dashboard=AtDashboard.SENT)
@click.argument("output", metavar="FILE")
@click.option("--where", default="", help="A query, as `orchestrator query` takes it; all runs when left out.")
def export(output: str, where: str) -> None:
    """Write runs and trials to a file, one row each.

    Every metric and parameter is a column; FILE ends in .csv, .json or .parquet.
    """
    from pathlib import Path

    from orchestrator.errors import InputError

    ending = Path(output).suffix
    if ending not in (".csv", ".json", ".parquet"):
        raise InputError(f"{output} should end in .csv, .json or .parquet, which says what is written")
    with open_registry() as registry:
        frame = registry.runs(where)
    if ending == ".parquet":
        from io import BytesIO

        buffer = BytesIO()
        parameters = [column for column in frame.columns if column.startswith("params.")]
        frame.astype(dict.fromkeys(parameters, "string")).to_parquet(buffer, index=False)
        write_output(output, buffer.getvalue())
    else:
        show_rows(records_of(frame), list(frame.columns), None, output)
    notify(f"{len(frame)} runs and trials")
