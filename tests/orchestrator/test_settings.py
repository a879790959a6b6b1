"""Where things are kept: which of option, environment and default wins.

Alone: .venv/bin/pytest tests/orchestrator/test_settings.py
"""

from pathlib import Path

import pytest

from orchestrator.settings import Settings


def test_defaults_lie_in_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings.from_options(environ={})
    assert settings.home == tmp_path / ".orchestrator"
    assert settings.storage == str(tmp_path / ".orchestrator" / "storage")
    assert settings.registry == f"sqlite:///{tmp_path}/.orchestrator/registry.sqlite"
    assert settings.address is None


def test_an_option_wins_over_the_environment_and_that_over_the_default(tmp_path: Path) -> None:
    environ = {
        "ORCHESTRATOR_HOME": str(tmp_path / "env"),
        "ORCHESTRATOR_STORAGE": "s3://bucket/lab",
        "ORCHESTRATOR_REGISTRY": "postgresql://h/db",
        "RAY_ADDRESS": "10.0.0.1:6379",
    }
    assert Settings.from_options(environ=environ) == Settings(
        tmp_path / "env", "s3://bucket/lab", "postgresql://h/db", "10.0.0.1:6379"
    )
    given = Settings.from_options(tmp_path / "opt", "gs://x", "sqlite:///y.db", "auto", environ=environ)
    assert given == Settings(tmp_path / "opt", "gs://x", "sqlite:///y.db", "auto")


def test_a_relative_storage_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Settings.from_options(storage="data", environ={}).storage == str(tmp_path / "data")
