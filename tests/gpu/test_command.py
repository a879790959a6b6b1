"""The command itself, and what it can do without. Run alone: pytest tests/gpu/test_command.py"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu.__main__ import STAGES, main

ROOT = Path(__file__).parents[2]
OPTIONS = ("-q", "-m", "not training and not slow", "-c", "tests/gpu/bare.ini", "--rootdir=.", "--noconftest")
"""Options of pytest where the project is not installed."""
MISSING = ("ray", "sqlalchemy", "click", "pandas", "pydantic", "yaml", "fsspec", "alembic")
"""Packages that a machine with a GPU need not have."""


def run_without_packages(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command where importing any of MISSING fails."""
    for name in MISSING:
        (folder / f"{name}.py").write_text(f"raise ModuleNotFoundError('No module named {name}', name='{name}')\n")
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.heavy
def test_parts_of_a_training_run_are_tested_by_a_python_without_the_projects_other_packages(tmp_path: Path) -> None:
    streams = "tests/gpu/test_streams_and_copies.py"
    found = run_without_packages(tmp_path, sys.executable, "-m", "pytest", streams, *OPTIONS)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.heavy
def test_the_stages_run_on_a_python_without_the_projects_other_packages(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu", "--small", "--output", str(tmp_path)]
    found = run_without_packages(tmp_path, *command, "--stages", "machine", "ceilings", "feed")
    assert found.returncode == 0, found.stdout + found.stderr
    assert list(tmp_path.glob("gpu_*.json"))


@pytest.mark.training
@pytest.mark.filterwarnings("default")  # transformers' and the compiler's own
def test_the_small_form_goes_through_every_stage(tmp_path: Path) -> None:
    assert main(["--small", "--minutes", "60", "--output", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("gpu_*.json")
    stages = json.loads(path.read_text(encoding="utf-8"))["stages"]
    assert list(stages) == [stage.name for stage in STAGES]
    assert all(stage["ended"] == "done" and stage["rows"] for stage in stages.values())
