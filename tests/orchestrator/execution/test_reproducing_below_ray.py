"""A run as a process, what is recorded of its making, and the same run made again and compared; without a Ray.

Alone: .venv/bin/pytest tests/orchestrator/execution/test_reproducing_below_ray.py
"""

import json
import re
import socket
import subprocess
from pathlib import Path

import pytest

from bert_core import __version__
from tests.orchestrator.execution.below_ray import command_of, environment_of, write_inputs
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.runs
CANARY = "c4n4ry"


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command line, as a process that does nothing in place of a tokenizer's training."""
    command = command_of("succeed", *words)
    environment = environment_of(folder / "home")
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)


def test_a_run_is_recorded_with_its_making_and_made_again(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    started = run(tmp_path, "run", "words.yaml", "vocab_size=200", f"tags=[hf_token={CANARY}]")
    assert started.returncode == 0, started.stderr
    run_id = started.stdout.strip()

    shown = run(tmp_path, "runs", "show", run_id, "-f", "json")
    record = json.loads(shown.stdout)
    (start,) = record["starts"]
    assert record["code_version"].startswith(__version__)
    assert start["environment"]["hostname"] == socket.gethostname()
    assert start["environment"]["versions"]["torch"]
    # A secret reaches to the end of its word: a bracket may be the secret's own.
    assert start["command"].endswith("succeed run words.yaml vocab_size=200 'tags=[hf_token=***'")
    assert start["overrides"] == ["vocab_size=200", "tags=[hf_token=***"]
    assert CANARY not in json.dumps(start)

    again = run(tmp_path, "runs", "reproduce", run_id, "--run", "-f", "json")
    assert again.returncode == 0, again.stderr
    found = re.search(rf"run (\w{{12}}) makes run {run_id} again: neither left a result to compare", again.stderr)
    assert found, again.stderr
    new_id = found[1]
    compare = f"orchestrator runs diff {run_id} {new_id}"
    assert f"run {run_id} completed the same spec before; what differs: {compare}" in again.stderr
    assert "the same spec before" not in started.stderr
    assert f"reproduces:{run_id}" in json.loads(run(tmp_path, "runs", "show", new_id, "-f", "json").stdout)["tags"]

    differing = json.loads(run(tmp_path, "runs", "diff", run_id, new_id, "-f", "json").stdout)
    assert not {"spec", "data", "code", "scores"} & differing["differences"].keys()
    assert {"spec", "code"} <= set(differing["same"])

    printed = run(tmp_path, "runs", "reproduce", run_id)
    assert printed.returncode == 0
    assert f"runs reproduce {run_id} --show spec > " in printed.stdout
