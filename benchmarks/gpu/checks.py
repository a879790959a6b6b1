"""The tests of tests/gpu on a machine that has pytest but not the project's other dependencies."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
OPTIONS = ("-q", "-m", "not training and not slow", "-c", "tests/gpu/bare.ini", "--rootdir=.", "--noconftest")
WHOLE_PROJECT = "tests/gpu/test_synchronizations.py"
"""Tests of whole training runs, which need all packages; their parts' own tests, in other files, need torch alone."""
COMMAND = (sys.executable, "-m", "pytest", "tests/gpu", f"--ignore={WHOLE_PROJECT}", *OPTIONS)
"""Command without the project's own settings and fixtures, which need packages that such a machine lacks."""

LIMIT_S = 240.0
"""Time after which the tests are ended, so that a machine that is lent for minutes has some left for the stages."""


def run_tests(command: Sequence[str] = COMMAND, limit_s: float = LIMIT_S) -> bool:
    """Run the tests. Returns whether all passed within the time."""
    try:
        return subprocess.run(command, cwd=ROOT, timeout=limit_s).returncode == 0
    except subprocess.TimeoutExpired:
        print(f"tests/gpu: not done after {limit_s:.0f} s, which counts as failed; run alone: {' '.join(command)}")
        return False
