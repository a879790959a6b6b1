"""The command line: thin commands over the rest. torch, Ray and the registry load inside the commands' bodies."""

import gc
import sys
from typing import NoReturn

__all__ = ["main"]

_OBJECTS_BETWEEN_COLLECTIONS = 200_000
"""More than a command that reads makes, most of which stay: to look among them for cycles takes a tenth of its time."""


def main() -> NoReturn:
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    try:
        from orchestrator.cli.entry import main as run
    except KeyboardInterrupt:  # Ctrl-C before there is anybody to say a word
        sys.exit(130)
    run()
