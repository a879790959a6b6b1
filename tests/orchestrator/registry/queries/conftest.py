"""Registries that a file's tests only read, on SQLite and on PostgreSQL."""

from collections.abc import Iterator

import pytest

from orchestrator.registry import Registry
from tests.orchestrator.registry.queries.query_samples import fill


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def module_location(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where a file's registry can be."""
    if request.param == "sqlite":
        return str(tmp_path_factory.mktemp("query") / "registry.sqlite")
    return str(request.getfixturevalue("postgres_module_location"))


@pytest.fixture(scope="module")
def filled(module_location: str) -> Iterator[Registry]:
    """The sample runs."""
    with Registry(module_location) as registry:
        fill(registry)
        yield registry
