"""Commands and options that are gone: each names what to use instead, as wrong usage.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_removed.py
"""

import pytest

from orchestrator.cli.messages import REMOVED
from tests.orchestrator.cli.laboratory import Command


@pytest.mark.parametrize("words", REMOVED)
def test_what_is_gone_names_what_to_use_instead(command: Command, words: str) -> None:
    outcome = command(*words.split())
    assert (outcome.status, outcome.out) == (2, "")
    assert "is gone" in outcome.err


def test_a_last_argument_is_pointed_at_the_option(command: Command) -> None:
    outcome = command("runs", "plot", "7f3a", "out.png")
    assert outcome.status == 2
    assert "-o" in outcome.err
