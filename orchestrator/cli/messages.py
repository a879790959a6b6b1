"""Messages of commands for a person, on stderr: folded to the terminal's width, and above its status line.

Before something is deleted, a person is asked.
"""

import logging
import os
import sys
from collections.abc import Callable
from typing import TextIO

import click

from orchestrator.base.console import UNDER_WAY, clear_screen, ignoring_broken_pipe, is_terminal, terminal_width
from orchestrator.base.console.log_lines import folded
from orchestrator.base.errors import InputError
from orchestrator.base.formatting import printable
from orchestrator.base.settings import ASKED_AT_VARIABLE

logger = logging.getLogger(__name__)
at_work: list[tuple[str, Callable[[], object]]] = []
"""A line for each run at work that says how to go on with it, and what records its end, for a second signal, which ends
the process at once."""


def notify(message: str, heading: str = "") -> None:
    """Write a message for a person to stderr, folded between words on a terminal, if somebody still reads it."""
    text = folded(printable(heading + message), terminal_width(sys.stderr))
    word = heading.rstrip()  # a long word behind it begins a line of its own
    shown = word and click.style(word, fg="red", bold=True)
    write_message(f"{shown}{text.removeprefix(word)}\n")


def write_message(text: str) -> None:
    """Write text to stderr as it is, if somebody still reads it."""
    make_room(sys.stderr)
    with ignoring_broken_pipe(sys.stderr):
        click.echo(text, nl=False, err=True)


def make_room(stream: TextIO | None) -> None:
    """Remove the status line where something else is to be written to the terminal."""
    if is_terminal(stream):
        clear_screen()


def say_now(what: str) -> None:
    """Say what is being done now, before its imports: in a terminal's status line, or a line. It was said already of a
    command that came from another machine."""
    if ASKED_AT_VARIABLE not in os.environ:
        logger.info(printable(what), extra=UNDER_WAY)


def is_confirmed(verb: str, what: str, *, dry_run: bool, yes: bool) -> bool:
    """Whether to go on with what cannot be undone: `delete` or `remove` something like `3 items, 1.2 GB`.

    Raises: InputError where nobody can be asked.
    """
    if dry_run:
        notify(f"{what} would be {verb}d")
        return False
    if not yes:
        if not is_terminal(sys.stdin):
            raise InputError(f"{what} would be {verb}d, and nobody can be asked here; give --yes, or --dry-run")
        return click.confirm(f"{verb} {what}?", err=True)
    return True
