"""Commands in a fresh process, and what they load there."""

import json
import subprocess
import sys
from collections.abc import Sequence

from tests.waiting import PATIENCE_S

LOADED_BY_EACH = """
import json, sys
from orchestrator.cli.entry import run_command_line
loaded = {}
for words in json.loads(sys.argv[1]):
    status = run_command_line(words)
    loaded[" ".join(words)] = [status, sorted({name.partition(".")[0] for name in sys.modules})]
print("\\n" + json.dumps(loaded))
"""


def loaded_by_each(commands: Sequence[Sequence[str]]) -> dict[str, tuple[int, set[str]]]:
    """Exit status of each command, run one after another in one fresh process, and what is loaded after it."""
    process = [sys.executable, "-c", LOADED_BY_EACH, json.dumps(commands)]
    done = subprocess.run(process, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    lines = json.loads(done.stdout.splitlines()[-1])
    return {command: (status, set(names)) for command, (status, names) in lines.items()}
