"""First words of commands, before anything heavy is loaded. Alone: pytest tests/orchestrator/cli/test_first_words.py"""

import json
import os
import subprocess
import sys
from pathlib import Path

from orchestrator.cli.commands import PLACES
from tests.contracts.walls import EVERYTHING_HEAVY
from tests.waiting import PATIENCE_S

WORDS = {
    "demo": "making a small world of text",
    "run words.yaml": "reading the spec words.yaml",
    "plan words.yaml": "reading the spec words.yaml",
    "submit words.yaml": "reading the spec words.yaml",
    "submit --resume 7f3a": "looking up run 7f3a on the cluster",
    "resume 7f3a": "looking up run 7f3a",
    "verify-resume words.yaml": "reading the spec words.yaml",
    "runs plot 7f3a -o losses.png": "drawing run 7f3a",
    "evaluate minilm sst2": "loading minilm",
    "predict minilm": "loading minilm",
    "fill-mask minilm [MASK]": "loading minilm",
    "next-sentence minilm A B": "loading minilm",
    "embed minilm": "loading minilm",
    "search minilm query --documents text.txt": "loading minilm",
    "mine minilm task.yaml": "loading minilm",
    "serve minilm": "loading minilm",
    "doctor": "looking at this machine",
    "corpus inspect text.txt": "reading the text",
    "tokenizer train text.txt -o words": "training a tokenizer of 30,522 entries",
}
"""The first words of each command that works for longer."""

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


def test_words_are_of_commands_that_exist() -> None:
    assert {line.split()[0] for line in WORDS} <= set(PLACES)
