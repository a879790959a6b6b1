"""A folder with the inputs of small specs, and a recorder."""

from pathlib import Path

import pytest

from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder
from orchestrator.settings import Settings
from tests.orchestrator.small_specs import write_inputs


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The current folder has the inputs of small specs."""
    monkeypatch.chdir(tmp_path)
    return write_inputs(tmp_path)


@pytest.fixture
def recorder(registry: Registry) -> Recorder:
    """A recorder on an empty registry, once per kind of database."""
    return Recorder(registry)
