"""Attempts at a run: the words with which an error says how to make another.

Alone: .venv/bin/pytest tests/orchestrator/training/test_attempts.py
"""

import pytest

from orchestrator.settings import ASKED_AT_VARIABLE
from orchestrator.training.attempts import how_to_go_on


def test_a_run_of_this_machine_is_resumed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ASKED_AT_VARIABLE, raising=False)
    assert how_to_go_on("7f3a") == "go on with: orchestrator resume 7f3a"


def test_a_submitted_run_is_resumed_as_it_was_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ASKED_AT_VARIABLE, "http://127.0.0.1:8265")
    assert how_to_go_on("7f3a") == "go on with: orchestrator --address http://127.0.0.1:8265 submit --resume 7f3a"
