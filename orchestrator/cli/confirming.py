"""The question before files are removed, with `--dry-run` and `--yes`, for every command that removes."""

import sys

import click

from orchestrator.cli.messages import notify
from orchestrator.errors import InputError
from orchestrator.progress import is_terminal


def is_confirmed(verb: str, what: str, *, dry_run: bool, yes: bool) -> bool:
    """Whether to go on with what cannot be undone: a person is asked, unless an option says it.

    Args:
        verb: what would be done, `delete` or `remove`.
        what: what it would be done to, in words: `3 items, 1.2 GB`.

    Raises: InputError where nobody can be asked; click.Abort for an answer that is not yes.
    """
    if dry_run:
        notify(f"{what} would be {verb}d")
        return False
    if not yes:
        if not is_terminal(sys.stdin):
            raise InputError(f"{what} would be {verb}d, and nobody can be asked here; give --yes, or --dry-run")
        click.confirm(f"{verb} {what}?", abort=True, err=True)
    return True
