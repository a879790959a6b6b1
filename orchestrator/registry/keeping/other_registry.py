"""Another registry, opened for reading whatever it is: a database of this or an older revision, or an export."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from orchestrator.errors import InputError, RegistryError
from orchestrator.registry.database import Database
from orchestrator.registry.keeping.portable_form import OnRows, is_portable, read_portable
from orchestrator.registry.keeping.registry_copy import copy_registry
from orchestrator.registry.location import resolve_url
from orchestrator.registry.revisions import NEWEST_REVISION


@contextmanager
def open_other(location: str, on_rows: OnRows = lambda table, rows: None) -> Iterator[Database]:
    """Open a registry by what `Registry` takes, or by the path of an export; it is only read.

    What is not at the newest revision, or is no database, is brought into a temporary file first.

    Raises: RegistryError where there is none; InputError for an export that is incomplete or changed.
    """
    with TemporaryDirectory(prefix="orchestrator-registry-") as name:
        scratch = Path(name) / "registry.sqlite"
        if "://" not in location and is_portable(Path(location).expanduser()):
            read_portable(Path(location).expanduser(), scratch, on_rows)
            other = Database(str(scratch), read_only=True)
        else:
            other = Database(location, read_only=True)
            revision = other.current_revision()
            if revision is None:
                raise RegistryError(f"There is no registry at {other}; check the path.")
            if revision != NEWEST_REVISION:
                other.close()
                copy_registry(location, scratch)
                other = Database(str(scratch), read_only=True)
        try:
            yield other
        finally:
            other.close()


def refuse_same(target: Database, location: str) -> None:
    """Refuse to join a registry to itself. Raises: InputError."""
    url = resolve_url(location) if "://" in location or location.startswith("file:") else None
    path = Path(location).expanduser() if url is None else Path(str(url.database))
    own = Path(str(target.url.database))
    is_file = target.dialect == "sqlite" and path.exists() and own.exists() and path.samefile(own)
    if is_file or (url is not None and url == target.url):
        raise InputError(f"{target} is the registry itself; name another one")
