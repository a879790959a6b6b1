"""Types of the laboratory that the fixtures beside this file make."""

from collections.abc import Callable
from dataclasses import dataclass

import click

from orchestrator.cli.tree import cli


@dataclass(frozen=True)
class Outcome:
    """Output of a command, and its exit status."""

    status: int
    out: str
    err: str


Command = Callable[..., Outcome]


@dataclass(frozen=True)
class RecordedSweep:
    """Ids in the registry of `recorded_sweep`."""

    run_id: str
    trial_ids: tuple[str, ...]


def commands_below(group: click.Group = cli, words: str = "") -> dict[str, click.Command]:
    """All commands below a group that are no groups, by their words: `runs list`."""
    context, found = click.Context(group), {}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, f"{name} is listed and is no command"
        path = f"{words} {name}".strip()
        found |= commands_below(command, path) if isinstance(command, click.Group) else {path: command}
    return found
