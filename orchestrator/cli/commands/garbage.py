"""Command `gc`, which deletes what nothing needs any more."""

import re
import sys
from dataclasses import asdict

import click

from orchestrator.cli.frame import AtDashboard, GlobalOptionsCommand, current_settings, reading_options
from orchestrator.cli.output import counted, notify, show_rows
from orchestrator.errors import InputError
from orchestrator.progress import is_terminal

_UNITS_S = {"h": 3600.0, "d": 86_400.0}
_LONGEST_S = 36_500 * _UNITS_S["d"]
"""Age that a calendar still has; a day much further back is none."""
_COLUMNS = ["what", "num_bytes", "path", "why"]


def seconds_of(age: str, option: str = "--older-than") -> float:
    """Seconds of an age such as `30d` or `12h`. Raises: InputError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([hd])", age)
    if found is None:
        raise InputError(f"{option} is {age}; give days or hours, such as 30d or 12h")
    seconds = float(found[1]) * _UNITS_S[found[2]]
    if seconds > _LONGEST_S:
        raise InputError(f"{option} is {age}; give 36500d at most")
    return seconds


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator gc --dry-run\norchestrator gc --older-than 90d --yes",
    at_dashboard=AtDashboard.SENT,
)
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@click.option("--older-than", default="30d", show_default=True, help="Age at which shared data counts as unused.")
@reading_options
def gc(dry_run: bool, yes: bool, older_than: str, form: str | None, output: str | None) -> None:
    """Delete what nothing needs.

    Leftovers of runs that have ended, checkpoints of completed ones, weights of trials that are neither registered nor
    best of their group nor the start of another run, and shared data and downloads that were not used of late. Runs at
    work keep everything.
    """
    from orchestrator.execution.garbage import delete_garbage, find_garbage
    from orchestrator.kinds.facts import size_text

    settings = current_settings()
    items = find_garbage(settings, seconds_of(older_than))
    show_rows([asdict(item) for item in items], _COLUMNS, form, output, empty="there is nothing to delete")
    total = f"{counted(len(items), 'item')}, {size_text(sum(item.num_bytes for item in items))}"
    if dry_run or not items:
        notify(f"{total} would be deleted") if items else None
        return
    if not yes:
        if not is_terminal(sys.stdin):
            raise InputError(f"{total} would be deleted, and nobody can be asked here; give --yes, or --dry-run")
        click.confirm(f"delete {total}?", abort=True, err=True)
    gone = list(delete_garbage(items, settings))
    notify(f"deleted {counted(len(gone), 'item')}, {size_text(sum(item.num_bytes for item in gone))}")
