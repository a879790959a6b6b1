"""A recorder on an empty registry."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder


@pytest.fixture
def recorder(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorder]:
    """A recorder on an empty SQLite registry: what kinds say of records is no matter of the database."""
    path = shutil.copyfile(empty_database, tmp_path_factory.mktemp("recorder") / "registry.sqlite")
    with Registry(str(path)) as registry:
        yield Recorder(registry)
