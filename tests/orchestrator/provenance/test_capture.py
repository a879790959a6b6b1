"""Capture of a driver: its command as it was typed, its overrides, without secrets, whatever goes wrong.

pytest tests/orchestrator/provenance/test_capture.py
"""

import json
import sys
from dataclasses import asdict

import pytest

from orchestrator.provenance import capture as capture_module
from orchestrator.provenance.capture import capture, command_line
from orchestrator.provenance.made_with import MadeWith


def test_a_capture_is_plain_values() -> None:
    made = capture(["seed=1"])
    assert json.loads(json.dumps(asdict(made)))["overrides"] == ["seed=1"]
    assert made.environment["versions"]["python"]
    assert made.code.version


def test_secrets_of_command_and_overrides_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [
        "python",
        "/bin/orchestrator",
        "--registry",
        "postgresql://u:c4n4ry@h/d",
        "run",
        "a.yaml",
        "x.token=c4n4ry",
    ]
    monkeypatch.setattr(sys, "orig_argv", words)
    made = capture(["x.token=c4n4ry"])
    assert "c4n4ry" not in str(made)
    assert made.command == "orchestrator --registry 'postgresql://u:***@h/d' run a.yaml 'x.token=***'"
    assert made.overrides == ("x.token=***",)


def test_a_very_long_command_is_cut() -> None:
    assert len(command_line(["python", "-c", "x" * 100_000])) < 10_000


@pytest.mark.parametrize("words", [[], ["python"]])
def test_a_process_without_words_has_a_command(words: list[str]) -> None:
    assert command_line(words)


def test_a_capture_that_breaks_says_so_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("password=c4n4ry")

    monkeypatch.setattr(capture_module, "read_source_code", broken)
    made = capture()
    assert isinstance(made, MadeWith)
    assert (made.command, made.code.commit) == (None, None)
    assert made.code.reason == "could not be captured: password=***"
