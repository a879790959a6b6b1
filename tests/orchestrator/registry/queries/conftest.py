"""A registry of sample runs that tests of queries only read, on SQLite and on PostgreSQL."""

from collections.abc import Iterator

import pytest

from orchestrator.registry import Registry
from tests.orchestrator.registry.queries.query_samples import fill


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """The sample runs, in a registry that a file's tests only read."""
    if request.param == "sqlite":
        location = str(tmp_path_factory.mktemp("query") / "registry.sqlite")
    else:
        location = request.getfixturevalue("postgres_module_location")
    with Registry(location) as registry:
        fill(registry)
        yield registry
