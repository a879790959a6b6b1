"""Commands in fresh processes: what they leave unloaded, so that they answer or say their first words at once.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_light_reading.py
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.base.settings import Settings
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder
from orchestrator.registry.records import AttemptCostRecord
from tests.contracts.walls import EVERYTHING_HEAVY
from tests.orchestrator.cli.fresh_process import loaded_by_each
from tests.orchestrator.cli.laboratory import RecordedSweep
from tests.waiting import PATIENCE_S

NOT_FOR_READING = {"pandas", "numpy", "ray", "torch", "alembic", "matplotlib", "pyarrow", "tokenizers", "fsspec"}


@pytest.mark.heavy
def test_what_reads_loads_nothing_heavy(recorded_sweep: RecordedSweep) -> None:
    sweep, trials = recorded_sweep.run_id, recorded_sweep.trial_ids
    with Registry(Settings.from_options().registry) as registry:
        registry.costs.record(AttemptCostRecord(sweep, 1, 60.0, 50.0, gpu_seconds=0.0))
        pipeline = Recorder(registry).start({"kind": "pipeline", "name": "all", "stages": {}}, "f").id
    needs_neither_the_query_parser_nor_specs = [
        "runs list", "runs list -f json", f"runs show {pipeline}",
    ]  # fmt: skip
    of_the_registry = [
        f"runs trials {sweep}", f"runs metrics {trials[3]}", "models list", "query metrics.accuracy>0.5",
        f"runs show {trials[3]}", f"runs show {sweep}",
    ]  # fmt: skip
    of_one_run = [
        f"wait {sweep}", f"cost {sweep}", f"runs logs --follow {sweep}",
    ]  # fmt: skip
    of_results = [f"check {sweep}", f"stop {sweep}", f"compare {trials[0]} {trials[2]}"]
    rankings = ["leaderboard", "leaderboard --all"]
    for lines, heavy in (
        (rankings, NOT_FOR_READING - {"numpy"} | {"lark", "pydantic"}),
        (needs_neither_the_query_parser_nor_specs, NOT_FOR_READING | {"lark", "pydantic"}),
        (of_the_registry, NOT_FOR_READING),
        (of_one_run, NOT_FOR_READING),
        (of_results, NOT_FOR_READING - {"numpy"}),
    ):
        for command, (status, loaded) in loaded_by_each([line.split() for line in lines]).items():
            assert status == 0, command
            assert not loaded & heavy, command


def test_an_error_in_a_spec_is_told_before_anything_heavy_is_loaded(home: object) -> None:
    commands = [["run", "nothere.yaml"], ["plan", "nothere.yaml"]]
    for command, (status, loaded) in loaded_by_each(commands).items():
        assert status == 2, command
        assert not loaded & EVERYTHING_HEAVY, command


WORDS = {
    "demo": "making a small world of text",
    "run words.yaml": "reading the spec words.yaml",
    "submit words.yaml": "reading the spec words.yaml",
    "submit --resume 7f3a": "looking up run 7f3a on the cluster",
    "resume 7f3a": "looking up run 7f3a",
    "verify-resume words.yaml": "reading the spec words.yaml",
    "runs plot 7f3a -o losses.png": "drawing run 7f3a",
    "evaluate minilm sst2": "loading minilm",
    "predict minilm": "loading minilm",
    "embed minilm": "loading minilm",
    "serve minilm": "loading minilm",
    "doctor": "looking at this machine",
    "corpus inspect text.txt": "reading the text",
    "tokenizer train text.txt -o words": "training a tokenizer of 30,522 entries",
}
"""First words of commands that work for longer."""

FIRST_WORDS = """
import json, logging, sys
from orchestrator.cli.entry import run_command_line

class Said(BaseException):
    pass

class Ear(logging.Handler):
    def emit(self, record):
        raise Said(record.getMessage())

def first_words(line):
    try:
        run_command_line(line.split())
    except Said as said:
        return str(said)

own = logging.getLogger("orchestrator")
own.addHandler(Ear())
print(json.dumps([{line: first_words(line) for line in json.loads(sys.argv[1])}, sorted(sys.modules)]))
"""


def test_a_command_that_works_for_longer_says_so_before_anything_heavy_is_loaded(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FIRST_WORDS, json.dumps(list(WORDS))]
    # An address of a cluster in the environment would send some of these commands there.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "ORCHESTRATOR_"))}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=PATIENCE_S, check=True
    )
    said, modules = json.loads(done.stdout)
    assert said == WORDS
    assert not {name.partition(".")[0] for name in modules} & (EVERYTHING_HEAVY | {"numpy", "pydantic"})
