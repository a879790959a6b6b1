"""The command line: thin commands over the rest. torch, Ray and the registry load inside the commands' bodies."""

from orchestrator.cli.entry import main

__all__ = ["main"]
