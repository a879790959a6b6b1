"""The image's Dockerfile: linted, made of what is there and nothing else, of the tested versions, not for root.

Alone: .venv/bin/pytest tests/deploy/test_image.py
"""

import fnmatch
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.deploy.recipes import DEPLOY, PINS, ROOT

FILE = DEPLOY / "Dockerfile"
INSTRUCTIONS = [
    tuple(line.split(maxsplit=1))
    for line in FILE.read_text("utf-8").replace("\\\n", " ").splitlines()
    if line.strip() and not line.startswith("#")
]
IGNORE_LINES = [
    line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line and not line.startswith("#")
]


def values(instruction: str) -> list[str]:
    """Arguments of each instruction of a kind, in order."""
    return [rest for name, rest in INSTRUCTIONS if name == instruction]


def copied() -> list[str]:
    """Files and folders of the checkout that the image is made of."""
    return [name for rest in values("COPY") if "--from=" not in rest for name in rest.split()[:-1]]


def test_hadolint_finds_nothing() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    found = subprocess.run([str(hadolint), "--no-color", str(FILE)], capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, "")


@pytest.mark.parametrize("name", copied())
def test_what_is_copied_is_there_and_reaches_the_builder(name: str) -> None:
    assert (ROOT / name).exists()
    assert f"!{name}" in IGNORE_LINES


def test_nothing_else_reaches_the_builder() -> None:
    """No token, no data, no .git: everything is left out, and what is copied let in again."""
    assert IGNORE_LINES[0] == "*"
    assert sorted(line[1:] for line in IGNORE_LINES if line.startswith("!")) == sorted(copied())


def test_what_the_package_is_built_from_is_copied_before_it_is_built() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packages = [name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]]
    needed = {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"], *packages}
    before = FILE.read_text("utf-8").partition('".[')[0]
    assert not [name for name in needed if not re.search(rf"^COPY .*\b{re.escape(name)}\b", before, re.MULTILINE)]


def test_every_version_is_that_of_the_constraints() -> None:
    installs = [rest for rest in values("RUN") if "pip install" in rest]
    assert len(installs) == 2
    assert all("-c constraints.txt" in rest for rest in installs)
    assert {"ray", "torch", "uv"} <= PINS.keys()
    assert not re.search(r"==\d", FILE.read_text("utf-8")), "a second place for a version"


def test_nobody_is_root_in_the_image() -> None:
    names = [name for name, _ in INSTRUCTIONS]
    assert values("USER") == ["1000:1000"]
    assert not {"RUN", "COPY", "ADD"} & set(names[names.index("USER") :])


def test_no_variable_holds_a_secret() -> None:
    variables = dict(item.split("=", 1) for rest in values("ENV") for item in rest.split())
    assert variables["RAY_AUTH_MODE"] == "token"
    assert not fnmatch.filter(variables, "*TOKEN*") + fnmatch.filter(variables, "*PASSWORD*")
    assert not values("EXPOSE")
