"""Commands that look at results: `report`, `board`, `cost`, `check`."""

from typing import TYPE_CHECKING, Any

import click

from orchestrator.base.console import clear_screen
from orchestrator.base.web import BOARD_PORT
from orchestrator.cli.frame import command, current_settings, port_option
from orchestrator.cli.messages import notify, say_now
from orchestrator.cli.output import PAGE, show_rows, show_text
from orchestrator.cli.reading import current_reading, output_option, time_of
from orchestrator.cli.registry_reading import find_run, no_runs, open_registry, table_command

if TYPE_CHECKING:
    from orchestrator.registry import Registry
    from orchestrator.registry.costs import PriceTable, Usage
    from orchestrator.registry.records import RunRecord


@command(example="report 7f3a -o report.html\nreport sst2 -o sst2.html")
@click.argument("subject", metavar="RUN|TASK")
@output_option("HTML file to write.", required=True)
def report(subject: str, output: str) -> None:
    """Write an HTML report of a run, sweep, pipeline or task.

    One self-contained file with charts and tables: curves, settings, spread over seeds, errors, data, and the spec to
    reproduce it. Of a task: its leaderboard.
    """
    say_now(f"reading {subject}")
    from orchestrator.reports.pages import run_page, task_page
    from orchestrator.reports.rendering import render
    from orchestrator.storage import write_bytes

    with open_registry() as registry:
        if subject in registry.ranked_tasks():
            page = task_page(registry, subject)
        else:
            page = run_page(registry, find_run(registry, subject, or_task=True), current_settings().home)
    write_bytes(output, render(page).encode())
    notify(f"wrote {output}; open it in a browser")


@command(example="board\nboard --port 0")
@port_option(default=BOARD_PORT)
def board(port: int) -> None:
    """Serve a web UI of the registry, until Ctrl-C.

    The newest runs, live, with a query field; the report of each run and task; and runs side by side. Read-only, on
    this machine alone: from elsewhere, forward the port with ssh.
    """
    say_now("opening the registry")
    from orchestrator.base.web import listening, serve_app, url_of
    from orchestrator.reports.board import build_app

    home = current_settings().home  # what answers works in threads, which know nothing of the command
    with open_registry() as registry, listening("127.0.0.1", port, has_host_option=False) as listener:
        registry.open()  # one of another revision is refused now, not on every page
        url = url_of("127.0.0.1", listener.getsockname()[1])

        def on_ready() -> None:
            clear_screen()
            show_text(url)
            notify(f"the board of {registry.place} is there; Ctrl-C ends it")

        try:
            serve_app(build_app(registry, home), listener, on_ready)
        except KeyboardInterrupt:
            notify("the board is closed")


_BRIEF = ("run", "name", "kind", "state", "took", "cpu_hours", "gpu_hours", "price")
_WHOLE = ("run", "name", "kind", "state", "task", "seconds", "cpu_seconds", "gpu_seconds", "price", "currency")


@table_command(example="cost sst2\ncost --since 7d")
@click.argument("what", metavar="[RUN|TASK]", required=False)
@click.option("--since", metavar="AGE|DATE", help="Created within 7d or 12h, or since 2026-11-01 (UTC).")
def cost(registry: "Registry", what: str | None, since: str | None) -> None:
    """Show time, CPU hours, GPU hours and price of runs.

    CPU and GPU hours are allocated CPUs and GPUs times wall-clock time. A pipeline is shown by stage, a task by run.
    Prices come from prices.yaml in the folder of --home: `orchestrator help cost`.
    """
    from orchestrator.base.console import duration
    from orchestrator.registry.costs import Usage, load_prices, own_stages, usages_of, with_price

    if (what is None) == (since is None):
        raise click.UsageError("name a run or a task, or give --since", click.get_current_context())
    if (time := time_of(since)) is not None:
        runs = registry.find_records(f"kind != 'pipeline' and created_at >= '{time.isoformat()}'")
    else:
        named = _runs_meant(registry, str(what), "kind != 'pipeline'")
        runs = [one for run in named for one in (own_stages(run, registry) if run.kind == "pipeline" else [run])]
    usages, prices = usages_of(runs, registry), load_prices(current_settings().home)
    rows = [_cost_row(run, usages.get(run.id), prices) for run in runs]
    columns = [*_WHOLE]
    if current_reading().is_brief:
        columns = [name for name in _BRIEF if name not in ("gpu_hours", "price") or any(row[name] for row in rows)]
    empty = "no run since then" if registry.run_table(limit=1).records else no_runs(registry)
    show_rows(rows, columns, empty=empty, spare=["kind", "state", "name"], page=PAGE)
    if rows and current_reading().is_brief:
        whole = sum(usages.values(), Usage())
        notify(f"in all: {duration(whole.seconds)}; {with_price(whole, prices)}")


def _runs_meant(registry: "Registry", what: str, condition: str) -> list["RunRecord"]:
    """Runs of a task that meet a condition, the newest first; else a run, or the one that made a model.

    Raises: NotFoundError.
    """
    from orchestrator.registry.query_language import quoted

    runs = registry.find_records(f"task = {quoted(what)} and {condition}")
    return runs or [find_run(registry, what, or_task=True, or_model=True)]


def _cost_row(run: "RunRecord", usage: "Usage | None", prices: "PriceTable | None") -> dict[str, Any]:
    from orchestrator.base.console import duration
    from orchestrator.registry.costs import HOUR_S

    row = dict.fromkeys((*_BRIEF, *_WHOLE)) | {name: getattr(run, name) for name in ("name", "kind", "state", "task")}
    row |= {"run": run.id, "took": "not recorded"}
    if usage is None:
        return row
    return row | {
        "took": duration(usage.seconds),
        "cpu_hours": usage.cpu_seconds / HOUR_S,
        "gpu_hours": sum(usage.gpu_seconds.values()) / HOUR_S or None,
        "price": prices and prices.price(usage),
        "currency": prices and prices.currency,
        "seconds": usage.seconds,
        "cpu_seconds": usage.cpu_seconds,
        "gpu_seconds": dict(usage.gpu_seconds),
    }


_NEWEST_OF_TASK = 10
"""Runs at most that a task stands for."""
_COLUMNS = ("run", "split", "metric", "yours", "n", "published", "model", "source", "difference", "noise")


@table_command(example="check 7f3a\ncheck mrpc --all")
@click.argument("what", metavar="RUN|MODEL|TASK")
@click.option("--all", "with_all", is_flag=True, help="Every published number of the task.")
def check(registry: "Registry", what: str, with_all: bool) -> None:
    """Compare scores with published ones.

    Each score stands next to the most comparable published one: same task and metric, closest split, training method
    and model size. A sweep is scored by the mean over the seeds of its best recipe, a task by its newest runs. Notes
    below the table say why the two may differ. Sources: reports/published_numbers.yaml in the Python package.
    """
    say_now(f"comparing {what} with published scores")
    from orchestrator.reports.published import compare, load_numbers, run_scores

    named = _runs_meant(registry, what, "state = 'COMPLETED'")[:_NEWEST_OF_TASK]
    runs = [one for run in named for one in (registry.stages(run.id)[::-1] if run.kind == "pipeline" else [run])]
    scores = [score for run in runs for score in run_scores(run, registry)]
    rows = [row for score in scores for row in compare(score, load_numbers())[: None if with_all else 1]]
    own = ", ".join(sorted({f"{score.task} {score.metric}" for score in scores})) or "no score on a task's data"
    published = ", ".join(sorted({str(one["task"]) for one in load_numbers()}))
    empty = f"nothing published compares with what {what} recorded ({own}); there are numbers for {published}"
    columns = _COLUMNS if current_reading().is_brief else (*_COLUMNS, "task", "half_width", "table", "url", "why")
    alike = [name for name in ("run", "metric") if len({row[name] for row in rows}) == 1]
    show_rows(rows, columns, empty=empty, spare=["source", "n", *alike, *([] if "run" in alike else ["difference"])])
    if current_reading().is_brief:
        for line in dict.fromkeys(
            f"{row['model']} ({row['published_split']}, {row['source']}): {'; '.join(row['why']) or 'comparable'}"
            for row in rows
        ):
            notify(line)
