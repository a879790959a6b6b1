"""A registry of this test's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.registry import Registry


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """An empty registry."""
    with Registry(str(tmp_path / "registry.sqlite")) as opened:
        yield opened
