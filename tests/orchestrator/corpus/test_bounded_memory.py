"""A corpus many times the object store: memory does not grow with it. Run alone:

pytest -m slow tests/orchestrator/corpus/test_bounded_memory.py
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

OBJECT_STORE_MB = 80
"""About the least that Ray accepts."""


def measure(folder: Path, megabytes: int) -> dict[str, int]:
    folder.mkdir()
    command = [sys.executable, "-m", "tests.orchestrator.corpus.memory_of_build"]
    done = subprocess.run(
        [*command, str(folder), str(megabytes), str(OBJECT_STORE_MB)], check=True, capture_output=True, text=True
    )
    values: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return values


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    small, large = measure(tmp_path / "small", OBJECT_STORE_MB // 2), measure(tmp_path / "large", 10 * OBJECT_STORE_MB)
    assert large["num_tokens"] > 15 * small["num_tokens"]
    assert large["spilled"] == 0
    assert large["peak"] < 1.2 * small["peak"] + (200 << 20)
