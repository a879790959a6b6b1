"""Kinds of places that the storage writes to."""

from pathlib import Path
from uuid import uuid4

import pytest

from tests.orchestrator.s3_server import new_s3_root


@pytest.fixture(params=["local", "file", "memory", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty folder, once per kind of path."""
    if request.param == "memory":
        return f"memory://{uuid4().hex}"
    if request.param == "s3":
        request.getfixturevalue("s3_server")
        return new_s3_root()
    return str(tmp_path) if request.param == "local" else f"file://{tmp_path}"
