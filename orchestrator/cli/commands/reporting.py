"""Command `report`: a run or a task as a page to look at."""

from typing import TYPE_CHECKING

import click

from orchestrator.cli.commands.costing import recorded_cost
from orchestrator.cli.commands.registry_reading import find_run, open_registry
from orchestrator.cli.frame import WritingCommand, current_settings
from orchestrator.cli.messages import notify, say_now

if TYPE_CHECKING:
    from orchestrator.registry import Registry
    from orchestrator.reports.blocks import Page


@click.command(
    cls=WritingCommand,
    example="orchestrator report 7f3a -o report.html\norchestrator report sst2 -o sst2.html",
    output_help="HTML file to write.",
)
@click.argument("subject", metavar="RUN|TASK")
def report(subject: str, output: str) -> None:
    """Write a page on a run, a sweep, a pipeline or a task.

    One HTML file with charts and tables, which needs no server and no network: curves, settings, the luck of the
    seeds, errors, the data, and the spec to make it again. Of a task: its leaderboard.
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
