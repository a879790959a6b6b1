"""A folder with the inputs of small specs."""

from pathlib import Path

import pytest

from orchestrator.settings import Settings
from tests.orchestrator.small_specs import write_inputs


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The current folder has the inputs of small specs."""
    monkeypatch.chdir(tmp_path)
    return write_inputs(tmp_path)
