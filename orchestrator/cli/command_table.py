"""Table of commands whose modules are imported when they are asked for: importing all of them takes a fifth of a second
of a slow CPU, and one of them is asked for."""

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib import import_module

import click


class CommandTable(MutableMapping[str, click.Command]):
    """Commands by name, in the order in which help lists them.

    Args:
        places: module below `orchestrator.cli.commands`, and name there, of each command: `running.demo`.
        prepare: called with each command once, when it has been imported.
    """

    def __init__(self, places: Mapping[str, str], prepare: Callable[[click.Command], None]) -> None:
        self._commands: dict[str, click.Command | str] = dict(places)
        self._prepare = prepare

    def __getitem__(self, name: str) -> click.Command:
        found = self._commands[name]
        if isinstance(found, str):
            module, _, attribute = found.rpartition(".")
            found = getattr(import_module(f"orchestrator.cli.commands.{module}"), attribute)
            assert isinstance(found, click.Command), f"{module}.{attribute} is no command"
            self._prepare(found)
            self._commands[name] = found
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._commands

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def __len__(self) -> int:
        return len(self._commands)
