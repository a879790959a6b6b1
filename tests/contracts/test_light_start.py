"""`orchestrator --help` and the text half in fresh processes: quick, and without torch or Ray.

Alone: .venv/bin/pytest tests/contracts/test_light_start.py
"""

import json
import subprocess
import sys

import pytest

from tests.contracts.walls import EVERYTHING_HEAVY, TEXT_HALF
from tests.waiting import PATIENCE_S


def loaded_by(code: str) -> set[str]:
    """The top-level packages that a fresh interpreter has loaded after some code."""
    report = "import json, sys; print('\\n' + json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    command = [sys.executable, "-W", "error", "-c", f"{code}\n{report}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"], ["schema", "sweep"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = f"from orchestrator.cli.entry import run_command_line\nassert run_command_line({arguments!r}) == 0"
    assert not loaded_by(code) & (EVERYTHING_HEAVY | {"rich"})


def test_the_text_half_needs_no_torch() -> None:
    loaded = loaded_by("\n".join(f"import {module}" for module in TEXT_HALF))
    assert "numpy" in loaded
    assert not loaded & {"torch", "ray", "sqlalchemy", "click", "orchestrator"}


def test_importing_the_packages_loads_nothing_heavy() -> None:
    assert not loaded_by("import bert_core, orchestrator, orchestrator.registry") & EVERYTHING_HEAVY
