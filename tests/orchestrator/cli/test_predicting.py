"""`predict` and `embed` of lines from stdin and from packed files, and what workers cannot do.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_predicting.py
"""

import gzip
import io
import json
import sys
from pathlib import Path

import pytest

from tests.orchestrator.cli.laboratory import Command


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lines and a blank one; not a terminal."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"cats rest\n\nrain falls\n")))


@pytest.mark.parametrize("name", ["embed", "predict"])
def test_stdin_and_a_packed_file_give_the_same(
    name: str, stdin: None, command: Command, encoder: str, classifier: str, tmp_path: Path
) -> None:
    (tmp_path / "lines.gz").write_bytes(gzip.compress(b"cats rest\n\nrain falls\n"))
    model = {"embed": encoder, "predict": classifier}[name]
    piped = command(name, model)
    assert [json.loads(line)["text"] for line in piped.out.splitlines()] == ["cats rest", "rain falls"]
    assert command(name, model, "lines.gz").out == piped.out


def test_workers_want_a_file(command: Command, encoder: str) -> None:
    outcome = command("embed", encoder, "--workers", "2")
    assert (outcome.status, outcome.out) == (2, "")
    assert "name a FILE, or leave --workers out" in outcome.err


def test_how_far_answers_are_is_told_beside_them(command: Command, encoder: str, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("cats rest\n" * 1500)
    outcome = command("embed", encoder, "lines.txt", "-o", "rows.jsonl")
    assert "1,024 lines  " in outcome.err
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 1500
