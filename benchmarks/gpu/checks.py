"""The tests of tests/gpu on a machine that has pytest but not the project's other dependencies."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
OPTIONS = ("-q", "-m", "not training", "-c", "tests/gpu/bare.ini", "--rootdir=.", "--noconftest")
COMMAND = (sys.executable, "-m", "pytest", "tests/gpu", *OPTIONS)
"""Command without the project's own settings and fixtures, which need packages that such a machine lacks."""


def run_tests() -> int:
    """Run the tests. Returns the exit status of pytest."""
    return subprocess.run(COMMAND, cwd=ROOT).returncode
