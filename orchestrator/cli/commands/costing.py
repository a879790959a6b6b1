"""Command `cost`: how long runs have worked, the CPU and GPU hours that they held, and their price."""

from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.ages import time_of
from orchestrator.cli.commands.registry_reading import find_anything, no_runs, open_registry
from orchestrator.cli.frame import GlobalOptionsCommand, current_settings
from orchestrator.cli.messages import notify
from orchestrator.cli.output import show_rows, shows_briefly
from orchestrator.cli.reading import reading_options

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.costs import PriceTable, Usage
    from orchestrator.registry import Registry, RunRecord

_BRIEF = ("run", "name", "kind", "state", "took", "cpu_hours", "gpu_hours", "price")
_WHOLE = ("run", "name", "kind", "state", "task", "seconds", "cpu_seconds", "gpu_seconds", "price", "currency")


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator cost sst2\norchestrator cost --since 7d",
)
@click.argument("what", metavar="[RUN|TASK]", required=False)
@click.option("--since", metavar="AGE|DATE", help="Only runs made since: 7d, 12h, or 2026-11-01 (UTC).")
@reading_options
def cost(what: str | None, since: str | None, form: str | None, output: str | None) -> None:
    """Show what runs have cost.

    Time, CPU hours and GPU hours: of a pipeline by stage, of a task by run. Hours are those that a run held: its
    CPUs and GPUs, times the time. A price needs prices.yaml in the home folder; see `orchestrator help cost`.
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
