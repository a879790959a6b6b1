"""Refusal of a database that another program has made: nothing is read from it, and nothing written into it."""

from collections.abc import Collection

from orchestrator.errors import RegistryError

VERSION_TABLE = "registry_revision"
"""Table that every registry has: it holds the revision of the others."""


def refuse_foreign(tables: Collection[str], place: str) -> None:
    """Refuse a database that has tables, and not the one that every registry has. Raises: RegistryError.

    Args:
        tables: names of all tables of the database.
        place: what messages call the database.
    """
    if tables and VERSION_TABLE not in tables:
        raise RegistryError(
            f"The database {place} is another program's: it has a table {min(tables)!r} that is not the "
            "registry's; give the registry a database of its own, or on PostgreSQL a schema of its own."
        )
