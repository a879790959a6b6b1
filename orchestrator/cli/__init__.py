"""The command line: thin commands over the rest. torch, Ray and the registry load inside the commands' bodies."""

import sys
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line of this process and exit with its status."""
    try:
        from orchestrator.cli.entry import main as run
    except KeyboardInterrupt:  # Ctrl-C before there is anybody to say a word
        sys.exit(130)
    run()
