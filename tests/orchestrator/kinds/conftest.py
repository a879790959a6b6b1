"""A recorder on an empty registry."""

import pytest

from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder


@pytest.fixture
def recorder(registry: Registry) -> Recorder:
    """A recorder on an empty registry, once per kind of database."""
    return Recorder(registry)
