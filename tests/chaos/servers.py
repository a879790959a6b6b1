"""Servers that an episode's laboratory is lent."""

from tests.chaos.episode import NotHereError
from tests.chaos.laboratory import Laboratory
from tests.orchestrator.postgres_server import Server, find_binaries, running_server


def lend_postgresql(laboratory: Laboratory) -> Server:
    """Start a PostgreSQL server for the laboratory's registry. Raises: NotHereError where it is not installed."""
    binaries = find_binaries()
    if binaries is None:
        raise NotHereError("PostgreSQL is not installed")
    server = laboratory.lent.enter_context(running_server(binaries))
    laboratory.registry = server.url
    return server
