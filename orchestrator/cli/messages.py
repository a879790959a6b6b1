"""Messages of commands for a person, on stderr: folded to the terminal's width, and above its status line."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

import click

from orchestrator.cells import printable
from orchestrator.progress import (
    UNDER_WAY,
    clear_screen,
    is_terminal,
    reader_may_leave,
    show_progress,
    terminal_width,
)
from orchestrator.progress.log_lines import folded
from orchestrator.settings import ASKED_AT_VARIABLE

logger = logging.getLogger(__name__)
REMOVED = {
    "cluster pull": "copy the cluster's registry here with `ray rsync-down`, then `orchestrator db merge FILE`; "
    "`orchestrator help cluster` has the lines",
    "db export": "`orchestrator db backup FILE` copies the registry",
    "db import": "`orchestrator db merge FILE` brings in what another registry has, and reads no files of `db export`",
    **dict.fromkeys(
        ("run --priority", "resume --priority", "submit --priority"),
        "a run whose place is taken waits as Ray does, for execution.max_wait_minutes (30)",
    ),
    "serve --num-replicas": "one process answers; requests that wait are answered together",
    "runs reproduce --run": "the command prints what to type; `orchestrator runs diff OLD NEW` compares",
    "cost --trials": "`orchestrator runs trials RUN` has the seconds of each",
    "help --man": "`orchestrator COMMAND --help`, and `orchestrator help TOPIC`",
    "tokenizer train --to": "-o names the folder",
    "published": "`orchestrator check` compares a run, a model or a task with the published numbers, which are in "
    "orchestrator/published/numbers.yaml with their sources",
}
"""Commands and options that are gone, and what to use instead."""
at_work: list[tuple[str, Callable[[], object]]] = []
"""A line for each run at work that says how to go on with it, and what records its end, for a second signal, which ends
the process at once."""


def notify(message: str) -> None:
    """Write a message for a person to stderr, folded between words on a terminal, if somebody still reads it."""
    write_message(_folded(message) + "\n")


def write_error(message: str) -> None:
    """Write an error for a person to stderr, as `notify` does."""
    heading = "Error: "
    text = _folded(heading + message)
    write_message(click.style(heading, fg="red", bold=True) + text.removeprefix(heading) + "\n")


def _folded(message: str) -> str:
    return folded(printable(message), terminal_width(sys.stderr))


def tell_more(num_shown: int, num_rows: int, offset: int = 0) -> None:
    """Say how many rows are not shown, if any come after these, and how to see them.

    Args:
        offset: number of rows that were left out before these.
    """
    if offset + num_shown >= num_rows:
        return
    if offset:
        notify(f"{num_shown:,} of {num_rows:,} are shown; the next ones: --offset {offset + num_shown}")
    else:
        notify(f"{num_shown:,} of {num_rows:,} are shown; all of them: --limit all")


def write_message(text: str) -> None:
    """Write text to stderr as it is, if somebody still reads it."""
    make_room(sys.stderr)
    with reader_may_leave(sys.stderr):
        click.echo(text, nl=False, err=True)


def make_room(stream: TextIO | None) -> None:
    """Remove the status line where something else is about to be written to the terminal."""
    if is_terminal(stream):
        clear_screen()


def say_now(what: str) -> None:
    """Say what is being done now, before the imports that it needs: a terminal's status line, a line elsewhere.

    A command that came here from another machine says nothing of it: it was said there.
    """
    if ASKED_AT_VARIABLE not in os.environ:
        logger.info(printable(what), extra=UNDER_WAY)


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """Function that replaces the status line of long work, on stderr."""
    with show_progress() as progress:
        yield progress.status
