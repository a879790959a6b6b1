"""`runs reproduce`: what is printed means the same in every folder, since the commands change into others.

pytest tests/orchestrator/cli/test_reproducing.py
"""

import re
import shlex
from pathlib import Path

import pytest

from orchestrator.cli.commands.reproducing import program_for_any_folder
from orchestrator.settings import Settings
from tests.orchestrator.cli.laboratory import Command, RecordedSweep


def test_places_that_were_typed_relative_are_printed_absolute(
    command: Command, recorded_sweep: RecordedSweep, tmp_path: Path
) -> None:
    places = ("--home", "home", "--storage", "home/storage", "--registry", "sqlite:///home/registry.sqlite")
    out = command(*places, "runs", "reproduce", recorded_sweep.run_id).out
    printed = set(re.findall(r"--(home|storage|registry) (\S+)", out))
    assert printed == {
        ("home", f"{tmp_path}/home"),
        ("storage", f"{tmp_path}/home/storage"),
        ("registry", f"sqlite:///{tmp_path}/home/registry.sqlite"),
    }


def test_a_printed_command_works_in_another_folder(
    command: Command, recorded_sweep: RecordedSweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = command("--home", "home", "runs", "reproduce", recorded_sweep.run_id).out
    (shown,) = [line for line in script.splitlines() if "--show spec > " in line]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    outcome = command(*shlex.split(shown.partition(" > ")[0])[1:])
    assert (outcome.status, "kind: sweep" in outcome.out) == (0, True)


def test_a_registry_of_this_machine_that_the_environment_names_goes_along(tmp_path: Path) -> None:
    environ = {"ORCHESTRATOR_REGISTRY": f"file:{tmp_path}/url.txt", "ORCHESTRATOR_STORAGE": "s3://lab/storage"}
    (tmp_path / "url.txt").touch()
    settings = Settings.from_options(home=str(tmp_path), environ=environ)
    assert program_for_any_folder(settings) == (
        f"orchestrator --home {tmp_path} --storage s3://lab/storage --registry file:{tmp_path}/url.txt"
    )


def test_a_url_that_the_environment_names_is_left_to_it(tmp_path: Path) -> None:
    environ = {"ORCHESTRATOR_REGISTRY": "postgresql://lab:s3cret@db/lab", "RAY_ADDRESS": "auto"}
    settings = Settings.from_options(home=str(tmp_path), environ=environ)
    assert program_for_any_folder(settings) == f"orchestrator --home {tmp_path}"


def test_of_a_url_that_was_typed_the_password_is_left_out(tmp_path: Path) -> None:
    settings = Settings.from_options(
        home=str(tmp_path), registry="postgresql://lab:s3cret@db/lab", address="ray://u:s3cret@h:1", environ={}
    )
    assert program_for_any_folder(settings) == (
        f"orchestrator --home {tmp_path} --registry 'postgresql://lab:***@db/lab' --address 'ray://u:***@h:1'"
    )


def test_a_home_with_a_space_is_one_word_of_the_shell(tmp_path: Path) -> None:
    settings = Settings.from_options(home=str(tmp_path / "my lab"), environ={})
    assert program_for_any_folder(settings) == f"orchestrator --home '{tmp_path}/my lab'"
