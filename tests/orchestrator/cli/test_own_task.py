"""The task that a model brings to `evaluate`: its recorded files, or other ones.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_own_task.py
"""

from collections.abc import Sequence
from typing import Any

import pytest

from orchestrator.cli.commands.own_task import own_task_values
from orchestrator.settings import Settings

OWN = {"id": "mine", "head": "ner", "files": {"validation": "dev.conll"}, "max_validation_examples": 5}
KNOWN = {"id": "sst2", "folder": "data/sst2"}


@pytest.mark.parametrize(
    ("recorded", "task", "overrides", "found"),
    [
        (OWN, "mine", (), OWN),
        (OWN, "mine", ("max_validation_examples=9",), OWN),
        (OWN, "mine", ("files.validation=new.conll",), {name: OWN[name] for name in ("id", "head", "files")}),
        (OWN, "other", (), None),
        (KNOWN, "sst2", (), KNOWN),
        (KNOWN, "sst2", ("folder=elsewhere",), None),
        (None, "mine", (), None),
    ],
)
def test_other_files_are_scored_as_the_recorded_task(
    recorded: dict[str, Any] | None,
    task: str,
    overrides: Sequence[str],
    found: dict[str, Any] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("orchestrator.models.recorded_task.read_recorded_task", lambda model, settings: recorded)
    settings = Settings.from_options()
    assert own_task_values("model", "folder", task, overrides, "validation", settings) == found
