"""Commands that are imported when they are asked for. Alone: pytest tests/orchestrator/cli/test_command_table.py"""

import subprocess
import sys

import click
import pytest

from orchestrator.cli.command_table import CommandTable
from orchestrator.cli.commands import PLACES
from orchestrator.cli.entry import cli


@pytest.mark.parametrize("name", PLACES)
def test_each_place_holds_the_command_of_its_name(name: str) -> None:
    assert cli.commands[name].name == name


def test_a_command_is_prepared_once_when_it_is_asked_for() -> None:
    prepared: list[click.Command] = []
    table = CommandTable({"wait": "life_cycle.wait", "stop": "life_cycle.stop"}, prepared.append)
    assert list(table) == ["wait", "stop"]
    assert "stop" in table
    assert len(table) == 2
    assert prepared == []
    assert table["stop"] is table["stop"]
    assert prepared == [table["stop"]]


def test_commands_are_added_and_taken_away() -> None:
    table = CommandTable({"wait": "life_cycle.wait"}, lambda command: None)
    table["own"] = own = click.Command("own")
    del table["wait"]
    assert dict(table) == {"own": own}
    with pytest.raises(KeyError):
        table["wait"]


def test_a_command_imports_no_other() -> None:
    code = "import sys, orchestrator.cli.entry as entry; entry.cli.commands['wait']; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    room = "orchestrator.cli.commands."
    loaded = {name.removeprefix(room) for name in done.stdout.split() if name.startswith(room)}
    assert loaded <= {"life_cycle", "registry_reading"}
