"""Commands that look at results: `report`, `board`, `cost`, `check`."""

import webbrowser
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.frame import GlobalOptionsCommand, current_settings
from orchestrator.cli.messages import notify, say_now
from orchestrator.cli.output import show_rows, show_text, shows_briefly
from orchestrator.cli.reading import list_options, output_option, time_of
from orchestrator.cli.registry_reading import find_anything, find_run, no_runs, open_registry
from orchestrator.progress import clear_screen

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.costs import PriceTable, Usage
    from orchestrator.registry import Registry, RunRecord
    from orchestrator.reports.blocks import Page


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator report 7f3a -o report.html\norchestrator report sst2 -o sst2.html",
)
@click.argument("subject", metavar="RUN|TASK")
@output_option("HTML file to write.", required=True)
def report(subject: str, output: str) -> None:
    """Write an HTML report of a run, sweep, pipeline or task.

    One self-contained file with charts and tables: curves, settings, spread over seeds, errors, data, and the spec to
    reproduce it. Of a task: its leaderboard.
    """
    say_now(f"reading {subject}")
    from orchestrator.reports.rendering import render
    from orchestrator.storage import write_bytes

    with open_registry() as registry:
        page = _page(registry, subject)
    write_bytes(output, render(page).encode())
    notify(f"wrote {output}; open it in a browser")


def _page(registry: "Registry", subject: str) -> "Page":
    """Page of a task that has been tried, else of a run."""
    from orchestrator.reports.run_page import run_page
    from orchestrator.reports.task_page import task_page

    if subject in registry.ranked_tasks():
        return task_page(registry, subject)
    run = find_run(registry, subject, or_task=True)
    cost = recorded_cost(registry, run, current_settings().home)
    return run_page(registry, run, {"cost": cost} if cost else None)


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator board\norchestrator board --port 0 --open",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8100,
    show_default=True,
    metavar="PORT",
    help="Port; 0 for any free one.",
)
@click.option("--open", "is_opened", is_flag=True, help="Open the browser.")
def board(port: int, is_opened: bool) -> None:
    """Serve a web UI of the registry, until Ctrl-C.

    The newest runs, live, with a query field; the report of each run and task; and runs side by side. Read-only, on
    this machine alone: from elsewhere, forward the port with ssh.
    """
    say_now("opening the registry")
    from orchestrator.reports.board import build_app
    from orchestrator.web.server import listening, serve_app, url_of

    home = current_settings().home  # what answers works in threads, which know nothing of the command
    with open_registry() as registry, listening("127.0.0.1", port, has_host_option=False) as listener:
        registry.open()  # one of another revision is refused now, not on every page
        url = url_of("127.0.0.1", listener.getsockname()[1])

        def on_ready() -> None:
            clear_screen()
            show_text(url)
            notify(f"the board of {registry.place} is there; Ctrl-C ends it")
            if is_opened:
                webbrowser.open(url)

        try:
            serve_app(build_app(registry, lambda run: recorded_cost(registry, run, home)), listener, on_ready)
        except KeyboardInterrupt:
            notify("the board is closed")


_BRIEF = ("run", "name", "kind", "state", "took", "cpu_hours", "gpu_hours", "price")
_WHOLE = ("run", "name", "kind", "state", "task", "seconds", "cpu_seconds", "gpu_seconds", "price", "currency")


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator cost sst2\norchestrator cost --since 7d",
)
@click.argument("what", metavar="[RUN|TASK]", required=False)
@click.option("--since", metavar="AGE|DATE", help="Created within 7d or 12h, or since 2026-11-01 (UTC).")
@list_options
def cost(what: str | None, since: str | None, form: str | None, output: str | None) -> None:
    """Show time, CPU hours, GPU hours and price of runs.

    CPU and GPU hours are allocated CPUs and GPUs times wall-clock time. A pipeline is shown by stage, a task by run.
    Prices come from prices.yaml in the folder of --home: `orchestrator help cost`.
    """
    from orchestrator.costs import Usage, load_prices, usages_of, with_price
    from orchestrator.progress import duration

    if (what is None) == (since is None):
        raise click.UsageError("name a run or a task, or give --since", click.get_current_context())
    with open_registry() as registry:
        runs = _runs_of(registry, what, since)
        usages = usages_of(runs, registry)
        empty = "no run since then" if registry.run_table(limit=1).records else no_runs(registry)
    prices = load_prices(current_settings().home)
    rows = [_row(run, usages.get(run.id), prices) for run in runs]
    columns = [*_BRIEF] if shows_briefly(form, output) else [*_WHOLE]
    if shows_briefly(form, output):
        columns = [name for name in columns if name not in ("gpu_hours", "price") or any(row[name] for row in rows)]
    show_rows(rows, columns, form, output, empty=empty, spare=["kind", "state", "name"], page=30)
    if rows and shows_briefly(form, output):
        whole = sum(usages.values(), Usage())
        notify(f"in all: {duration(whole.seconds)}; {with_price(whole, prices)}")


def recorded_cost(registry: "Registry", run: "RunRecord", home: "Path") -> str | None:
    """One line on what a run has taken, with prices of the home folder; None where nothing is recorded of it."""
    from orchestrator.costs import load_prices, usage_of, with_price

    usage = usage_of(run, registry)
    return None if usage is None else with_price(usage, load_prices(home))


def _runs_of(registry: "Registry", what: str | None, since: str | None) -> list["RunRecord"]:
    """Runs of a task, or since a time, the newest first; else a run, or a pipeline's stages. Raises: NotFoundError."""
    from orchestrator.costs import own_stages
    from orchestrator.registry.query_tree import quoted

    condition = f"task = {quoted(str(what))}"
    if (time := time_of(since, "--since")) is not None:
        condition = f"created_at >= {quoted(time.isoformat())}"
    elif not registry.num_runs(condition, trials=False):
        run = find_anything(registry, str(what))
        return own_stages(run, registry) if run.kind == "pipeline" else [run]
    return registry.run_records(registry.run_ids(f"kind != 'pipeline' and {condition}", trials=False))


def _row(run: "RunRecord", usage: "Usage | None", prices: "PriceTable | None") -> dict[str, Any]:
    from orchestrator.costs import HOUR_S
    from orchestrator.progress import duration

    about = {"run": run.id, "name": run.name, "kind": run.kind, "state": run.state, "task": run.task}
    if usage is None:
        return dict.fromkeys((*_BRIEF, *_WHOLE)) | about | {"took": "not recorded"}
    return {
        **about,
        "took": duration(usage.seconds),
        "cpu_hours": usage.cpu_seconds / HOUR_S,
        "gpu_hours": sum(usage.gpu_seconds.values()) / HOUR_S or None,
        "price": None if prices is None else prices.price(usage),
        "currency": None if prices is None else prices.currency,
        "seconds": usage.seconds,
        "cpu_seconds": usage.cpu_seconds,
        "gpu_seconds": dict(usage.gpu_seconds),
    }


_NEWEST_OF_TASK = 10
_COLUMNS = ("run", "split", "metric", "yours", "n", "published", "model", "source", "difference", "noise")


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator check 7f3a\norchestrator check mrpc --all",
)
@click.argument("what", metavar="RUN|MODEL|TASK")
@click.option("--all", "with_all", is_flag=True, help="Every published number of the task.")
@list_options
def check(what: str, with_all: bool, form: str | None, output: str | None) -> None:
    """Compare scores with published ones.

    Each score stands next to the most comparable published one: same task and metric, closest split, training method
    and model size. A sweep is scored by the mean over the seeds of its best recipe, a task by its newest runs. Notes
    below the table say why the two may differ. Sources: published/numbers.yaml in the Python package.
    """
    from orchestrator.published.comparison import compare, load_numbers, run_scores

    with open_registry() as registry:
        scores = [score for run in _runs_to_check(registry, what) for score in run_scores(run, registry)]
    found = [compare(score, load_numbers()) for score in scores]
    rows = [row for several in found for row in (several if with_all else several[:1])]
    own = ", ".join(sorted({f"{score.task} {score.metric}" for score in scores})) or "no score on a task's data"
    published = ", ".join(sorted({str(one["task"]) for one in load_numbers()}))
    empty = f"nothing published compares with what {what} recorded ({own}); there are numbers for {published}"
    columns = [*_COLUMNS] if shows_briefly(form, output) else [*_COLUMNS, "task", "half_width", "table", "url", "why"]
    has_one = {name: len({row[name] for row in rows}) == 1 for name in ("run", "metric")}
    spare = ["source", "n", "run" if has_one["run"] else "difference", *(["metric"] if has_one["metric"] else [])]
    show_rows(rows, columns, form, output, empty="" if rows else empty, spare=spare)
    if shows_briefly(form, output):
        for line in dict.fromkeys(
            f"{row['model']} ({row['published_split']}, {row['source']}): {'; '.join(row['why']) or 'comparable'}"
            for row in rows
        ):
            notify(line)


def _runs_to_check(registry: "Registry", what: str) -> list["RunRecord"]:
    """Runs that a name stands for: the newest that completed of a task, the one that made a model, or a run.

    A pipeline stands for its stages. Raises: NotFoundError.
    """
    from orchestrator.errors import NotFoundError
    from orchestrator.registry.query_tree import quoted

    of_task = f"task = {quoted(what)} and state = 'COMPLETED'"
    rows = registry.run_table(of_task, trials=False, limit=_NEWEST_OF_TASK).records
    if rows:
        return registry.run_records([str(row["id"]) for row in rows])
    try:
        run = find_anything(registry, what)
    except NotFoundError as no_run:
        try:
            run = registry.run(str(registry.models.get(what).run_id))
        except NotFoundError:
            raise no_run from None
    return list(reversed(registry.stages(run.id))) if run.kind == "pipeline" else [run]
