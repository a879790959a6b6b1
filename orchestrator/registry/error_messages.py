"""Messages for errors of the database: which registry, what is wrong with it, what to do."""

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError

from orchestrator.registry.location import display_url, without_secrets

_SQLITE = (
    ("not a database", "is not a SQLite database; give another path with --registry"),
    ("unable to open", "cannot be opened; check that its folder exists and may be written"),
    ("readonly", "cannot be written; check the permissions of the file and its folder"),
    ("is locked", "is held by another process for too long; try again when that one is done"),
    ("disk is full", "cannot be written because the disk is full; free some space and resume"),
    ("malformed", "is damaged; restore it from a backup"),
)
"""Part of SQLite's own message, and what it means for a person."""


def explain(error: Exception, url: URL) -> str:
    """One sentence that names the registry, says what is wrong and what to do; secrets of the URL are not in it."""
    place = f"The registry {display_url(url)}"
    cause = _cause(error, url)
    if url.get_backend_name() == "sqlite":
        for sign, meaning in _SQLITE:
            if sign in cause:
                return f"{place} {meaning}."
        if isinstance(error, OSError):
            return f"{place} cannot be opened: {error.strerror or cause} ({error.filename}); give another --registry."
    elif isinstance(error, DBAPIError) and (error.connection_invalidated or "connect" in cause):
        return f"{place} cannot be reached: {cause}. Check that the server runs, its host, user, password and database."
    if "FOREIGN KEY" in cause.upper():
        return f"{place} has no such run: {cause}."
    return f"{place} refused: {cause}."


def _cause(error: Exception, url: URL) -> str:
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    lines = without_secrets(str(original), url).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(original).__name__
