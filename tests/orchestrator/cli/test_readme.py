"""What the README shows: its commands are understood, and the specs they name take their overrides.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_readme.py
"""

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from orchestrator.cli.entry import cli
from orchestrator.specs.loading import load_spec, load_task_spec, parse_spec

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text().replace("\\\n", " ")
COMMANDS = re.findall(r"^    orchestrator (.+)$", README, re.MULTILINE)
COMMANDS += re.findall(r"[`']orchestrator ([^`']+)[`']", README)
WRITTEN_BY_INIT = {"reviews.yaml": "init reviews.csv", "notes.yaml": "init notes/*.txt.gz"}
"""Specs that the README has written by `init`, and by which command."""


def understood(text: str) -> click.Context:
    """The command's context, its parameters read."""
    words = shlex.split(text, comments=True)
    command: click.Command = cli
    name = "orchestrator"
    while isinstance(command, click.Group):
        found, inner, words = command.resolve_command(click.Context(command), words)
        assert found is not None
        assert inner is not None
        name, command = found, inner
    return command.make_context(name, words)


def test_the_readme_shows_every_stage_of_the_work() -> None:
    shown = {text.split()[0] for text in COMMANDS}
    assert {"run", "plan", "resume", "submit", "tokenizer", "models", "evaluate", "predict", "query"} <= shown


@pytest.mark.parametrize("text", COMMANDS)
def test_a_command_of_the_readme_is_understood(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews.txt").touch()
    with understood(text) as context:
        given = context.params
        assert context.command.name in text.split()
        written = WRITTEN_BY_INIT.get(str(given.get("spec_path")))
        if written is not None:
            assert written in README, "nothing writes it"
        elif given.get("spec_path") and not given.get("resumed"):
            load_spec(ROOT / given["spec_path"], given["overrides"])
        elif "task" in given and "overrides" in given:
            load_task_spec(given["task"], given["overrides"])


def test_the_readmes_spec_is_whole() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    spec = parse_spec(yaml.safe_load(text))
    assert (spec.kind, spec.task.id) == ("sweep", "complaints")
