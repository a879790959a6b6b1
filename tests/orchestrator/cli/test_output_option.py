"""The option `-o/--output`: one place for every command that writes a file, looked at before anything begins.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_output_option.py
"""

from pathlib import Path

import click
import pytest

from orchestrator.cli.frame import WritingCommand
from orchestrator.cli.output_option import check_output, output_option
from orchestrator.errors import InputError
from tests.orchestrator.cli.laboratory import Command, commands_below


def test_every_command_that_writes_takes_output() -> None:
    for words, member in commands_below().items():
        for option in (parameter for parameter in member.params if isinstance(parameter, click.Option)):
            if "--output" in option.opts:
                assert "-o" in option.opts, words
                is_checked = option.callback is not None or isinstance(member, WritingCommand)
                assert is_checked or str(option.metavar).endswith("FOLDER"), words


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "none", "none.txt"],
        ["embed", "none", "none.txt"],
        ["evaluate", "none", "sst2"],
        ["mine", "none", "own"],
        ["search", "none", "cats"],
        ["plan", "none.yaml"],
        ["init", "none.csv"],
        ["runs", "list"],
        ["runs", "export"],
        ["runs", "plot", "none"],
        ["schema", "sweep"],
    ],
    ids=" ".join,
)
def test_a_folder_that_is_not_there_is_named_first_and_never_made(command: Command, words: list[str]) -> None:
    outcome = command(*words, "-o", "mistyped/out.csv")
    assert outcome.status == 2
    assert outcome.err.startswith("Error: mistyped/out.csv: there is no folder ")
    assert "make it first (mkdir -p), or name another file" in outcome.err
    assert not Path("mistyped").exists()


def test_a_shell_that_completes_a_command_is_not_told_of_its_folder() -> None:
    @click.command()
    @output_option("Write there")
    def write(output: str | None) -> None:
        """Write."""

    arguments = ["-o", "none/out.csv"]
    assert write.make_context("write", list(arguments), resilient_parsing=True).params == {"output": "none/out.csv"}
    with pytest.raises(InputError):
        write.make_context("write", list(arguments))


def test_standard_output_and_other_places_are_not_looked_at(command: Command) -> None:
    for output in ("s3://bucket/none/out.csv", "/dev/stdout"):
        assert "there is no folder" not in command("plan", "none.yaml", "-o", output).err


def test_a_file_in_this_folder_is_let_through_and_a_file_as_a_folder_is_not(command: Command, tmp_path: Path) -> None:
    assert command("schema", "sweep", "-o", str(tmp_path / "out.csv")).status == 0
    assert (tmp_path / "out.csv").exists()
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match="taken is no folder"):
        check_output(str(tmp_path / "taken" / "out.csv"))
