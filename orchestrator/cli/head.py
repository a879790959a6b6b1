"""Commands that are sent to a cluster's head: the command line that goes there, and what comes back to this terminal.

words of the command ─► head ─► stdout, stderr, exit status, and the file that -o names
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.output import write_file
from orchestrator.cli.reading import READING
from orchestrator.progress import reader_may_leave, show_progress
from orchestrator.settings import Settings

if TYPE_CHECKING:
    from orchestrator.execution.head_commands import HeadCommand, Streams

_TOLD_FROM = 1_000_000
"""Bytes of a file from which it is told how much of it has come; less is here in a moment."""


def send_to_head(context: click.Context, settings: Settings, address: str, *, debug: bool) -> int:
    """Carry out a command on the head of the cluster whose dashboard is at an address; returns its exit status.

    Raises: SpecError and other InputErrors for a spec that is not sent; ClusterError.
    """
    from orchestrator.execution.head_commands import carry_out_on_head

    with head_streams(f"asking the head of the cluster at {address} …") as streams:
        outcome = carry_out_on_head(_command(context, debug), settings, address, streams)
    if outcome.file is not None:
        write_file(context.params["output"], outcome.file)
    return outcome.status


@contextmanager
def head_streams(waiting: str) -> Iterator["Streams"]:
    """Streams of this process for what comes back; until the first of it, a terminal has a status line.

    Raises: BrokenPipeError where nobody reads stdout any more.
    """
    from orchestrator.execution.head_commands import Streams, terminals_here

    with show_progress() as progress:
        terminals = terminals_here()
        if "err" in terminals:
            progress.status(waiting)

        def out(data: bytes) -> None:
            progress.clear()
            click.echo(data, nl=False)

        def err(data: bytes) -> None:
            progress.clear()
            with reader_may_leave(sys.stderr):
                click.echo(data, nl=False, err=True)

        def received(num_bytes: int) -> None:
            if num_bytes > _TOLD_FROM:
                progress.status(f"{waiting} {num_bytes / 1e6:,.1f} MB")

        yield Streams(out, err, terminals, received)


def _command(context: click.Context, debug: bool) -> "HeadCommand":
    """The command line for the head: a spec goes along as a file, and the file that is written comes back."""
    from orchestrator.execution.head_commands import HeadCommand

    values, files, returned = {**context.params, **context.meta.get(READING, {})}, {}, None
    if "spec_path" in values:
        from orchestrator.execution.jobs import SPEC_FILE, spec_files
        from orchestrator.specs.loading import load_spec

        files = spec_files(load_spec(values["spec_path"], values.pop("overrides")))
        values["spec_path"] = SPEC_FILE
    if values.get("output"):
        values["output"] = returned = Path(values["output"]).name
    options = ["--debug"] if debug else []
    return HeadCommand([*context.command_path.split()[1:], *options, *_words(context.command, values)], files, returned)


def _words(command: click.Command, values: dict[str, Any]) -> list[str]:
    """Options and arguments of a command, as they would be typed for some values of its parameters."""
    options: list[str] = []
    arguments: list[str] = []
    for parameter in command.params:
        value = values.get(parameter.name or "")
        if value is None or value is False:
            continue
        texts = [str(one) for one in value] if isinstance(value, tuple) else [str(value)]
        if isinstance(parameter, click.Argument):
            arguments += texts
        elif value is True:
            options.append(parameter.opts[0])
        else:
            options += [word for text in texts for word in (parameter.opts[0], text)]
    return [*options, *(["--", *arguments] if arguments else [])]
