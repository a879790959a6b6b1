"""Files that a stranger looks for beside the code: license, version, how to join, hosted checks.

Alone: .venv/bin/pytest tests/contracts/test_project_files.py
"""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import bert_core
import orchestrator

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def read_yaml(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("LICENSE", "Apache License"),
        ("README.md", "CONTRIBUTING.md"),
        ("CONTRIBUTING.md", "## Where does my X go?"),
        ("SECURITY.md", "## Report a hole"),
        (".github/pull_request_template.md", "make check"),
    ],
)
def test_a_file_for_strangers_says_what_it_is_for(name: str, says: str) -> None:
    assert says in (ROOT / name).read_text(encoding="utf-8")


def test_the_version_is_the_same_everywhere() -> None:
    version = bert_core.__version__
    assert orchestrator.__version__ == version
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "bert_core.__version__"}
    assert read_yaml("CITATION.cff")["version"] == version


def test_the_newest_release_in_the_changelog_is_the_cited_one() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", changelog, re.MULTILINE)
    cited = read_yaml("CITATION.cff")
    assert headings[:2] == ["Unreleased", f"{cited['version']} – {cited['date-released']}"]


def test_every_page_of_the_site_is_in_its_navigation() -> None:
    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    pages = {page for entry in site["nav"] for page in entry.values()}
    assert pages == {path.name for path in (ROOT / "docs").glob("*.md")}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/architecture.md", "bert_core/README.md"])
def test_every_path_that_a_page_names_is_there(page: str) -> None:
    """Paths in backticks with a folder in them; NAME and … stand for names of one's own."""
    named = re.findall(
        r"`((?:bert_core|orchestrator|tests|docs|experiments|benchmarks)/[\w./]*)`", (ROOT / page).read_text("utf-8")
    )
    assert not [path for path in named if "NAME" not in path and not (ROOT / path).exists()]
