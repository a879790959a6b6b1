"""Command `gc`, which deletes what nothing needs any more."""

from dataclasses import asdict

import click

from orchestrator.cli.ages import age_s
from orchestrator.cli.confirming import is_confirmed
from orchestrator.cli.frame import GlobalOptionsCommand, current_settings
from orchestrator.cli.messages import notify, say_now
from orchestrator.cli.output import show_rows
from orchestrator.cli.reading import output_options
from orchestrator.progress import counted

_COLUMNS = ["what", "num_bytes", "path", "why"]


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator gc --dry-run\norchestrator gc --older-than 90d --yes",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@click.option("--older-than", default="30d", show_default=True, help="Age at which shared data counts as unused.")
@output_options
def gc(dry_run: bool, yes: bool, older_than: str, form: str | None, output: str | None) -> None:
    """Delete what nothing needs.

    What `runs rm` has put into the trash, leftovers of runs that have ended, checkpoints of completed ones, weights of
    trials that are neither registered nor best of their group nor the start of another run, and shared data and
    downloads that were not used of late. Runs at work and pinned ones keep everything.
    """
    older_than_s = age_s(older_than, "--older-than")
    say_now("looking for what nothing needs")
    from orchestrator.cli.commands.registry_reading import open_registry
    from orchestrator.execution.garbage import delete_garbage, find_garbage
    from orchestrator.progress import size_text

    settings = current_settings()
    open_registry().close()  # one that is not there would read as "no run needs anything"
    items = find_garbage(settings, older_than_s)
    show_rows([asdict(item) for item in items], _COLUMNS, form, output, empty="there is nothing to delete")
    total = f"{counted(len(items), 'item')}, {size_text(sum(item.num_bytes for item in items))}"
    if not items or not is_confirmed("delete", total, dry_run=dry_run, yes=yes):
        return
    gone = list(delete_garbage(items, settings, older_than_s))
    notify(f"deleted {counted(len(gone), 'item')}, {size_text(sum(item.num_bytes for item in gone))}")
