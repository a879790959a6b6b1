"""A registry of this test's own, with a recorder for it; no variable of this machine leads elsewhere."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.base.settings import Settings
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder
from tests.orchestrator.execution.ray_head import RayHead, started_head


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of a home of its own, which commands that are called in this process have too."""
    for name in ("ORCHESTRATOR_STORAGE", "ORCHESTRATOR_REGISTRY", "RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ORCHESTRATOR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))
    (tmp_path / "home").mkdir()
    return Settings.from_options()


@pytest.fixture
def recorder(settings: Settings) -> Iterator[Recorder]:
    """A recorder of runs in the registry of these settings."""
    with Registry(settings.registry) as registry:
        yield Recorder(registry)


@pytest.fixture(scope="session")
def ray_head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayHead]:
    """A Ray head for all tests of a session that need one."""
    with started_head(tmp_path_factory.mktemp("h")) as head:
        yield head
