"""Kinds of places that the storage writes to."""

from pathlib import Path
from uuid import uuid4

import pytest


@pytest.fixture(params=["local", "file", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty folder, once per kind of path."""
    if request.param == "memory":
        return f"memory://{uuid4().hex}"
    return str(tmp_path) if request.param == "local" else f"file://{tmp_path}"
