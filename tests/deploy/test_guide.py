"""The guide to the recipes: names every file, and its commands name what is there.

Alone: .venv/bin/pytest tests/deploy/test_guide.py
"""

import re
import shlex

import pytest

from tests.deploy.recipes import DEPLOY, ROOT

TEXT = (DEPLOY / "README.md").read_text("utf-8")
COMMANDS = re.findall(r"^    (.+)$", TEXT, re.MULTILINE)


def test_every_recipe_is_in_the_guide() -> None:
    recipes = [str(path.relative_to(DEPLOY)) for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".md"]
    named = TEXT.replace("deploy/", "")
    assert not [name for name in recipes if name not in named]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_names_files_that_are_there(command: str) -> None:
    words = shlex.split(command, comments=True)
    named = [word for word in words if word.startswith(("deploy/", "experiments/")) or word == "constraints.txt"]
    assert words
    assert not [name for name in named if not (ROOT / name).exists()]
