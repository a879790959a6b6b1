"""Errors of the database as errors of the registry: which registry, what is wrong with it, what to do, wait or not.

Waiting helps where the server is down or starts, the connection broke, or another process holds a lock. It does not
help where the file is read-only, the disk is full, or a table is missing: somebody has to act first.
"""

import sqlite3

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError

from orchestrator.errors import RegistryError, RegistryUnavailableError
from orchestrator.registry.location import display_url, without_secrets

_SQLITE = (
    ("not a database", "is not a SQLite database; give another path with --registry"),
    ("unable to open", "cannot be opened; check that its folder exists and may be written"),
    ("readonly", "cannot be written; check the permissions of the file and its folder"),
    ("is locked", "is held by another process for too long; try again when that one is done"),
    ("disk is full", "cannot be written because the disk is full; free some space and resume"),
    ("disk I/O error", "cannot be read or written: the disk reports an error; check the disk, then resume"),
    ("malformed", "is damaged; restore it from a backup"),
    ("no such table", "lacks a table ({cause}); restore it from a backup"),
    ("no such column", "lacks a column ({cause}); restore it from a backup"),
    ("has no column", "lacks a column ({cause}); restore it from a backup"),
)
"""Part of SQLite's own message, and what it means for a person."""
_POSTGRESQL = {
    "25006": "cannot be written ({cause}); give the URL of the one that may be written",
    "42501": "cannot be used: {cause}; grant it, or give another user in the URL",
    "42703": "lacks a column ({cause}); restore it from a backup",
    "42P01": "lacks a table ({cause}); restore it from a backup",
    "53100": "cannot be written because the server's disk is full; free some space and resume",
}
"""SQLSTATE, and what it means for a person (PostgreSQL's documentation, appendix A)."""

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_PASSING_STATES = {
    "40001",  # serialization failure
    "40P01",  # deadlock
    "53300",  # too many connections
    "55P03",  # lock not available
    "57P01",  # shut down by an administrator
    "57P02",  # shut down by a crash
    "57P03",  # cannot connect now
}
_PASSING_REFUSALS = ("starting up", "shutting down", "recovery mode", "not yet accepting", "too many", "slots are")
"""Parts of a server's refusals to connect that pass; these come without an SQLSTATE."""


def translate(error: Exception, url: URL) -> RegistryError:
    """Error of the registry for an error of its database: a RegistryUnavailableError where waiting helps."""
    kind = RegistryUnavailableError if isinstance(error, DBAPIError) and _passes(error, url) else RegistryError
    return kind(explain(error, url))


def _passes(error: DBAPIError, url: URL) -> bool:
    """Whether the database may answer again without anybody's help."""
    if url.get_backend_name() == "sqlite":
        code = getattr(error.orig, "sqlite_errorcode", sqlite3.SQLITE_OK)
        return code & 0xFF in _BUSY  # the higher bits tell more about the same code
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return state in _PASSING_STATES or state.startswith("08")
    refusal = str(error.orig)
    is_refused = "FATAL" in refusal and not any(sign in refusal for sign in _PASSING_REFUSALS)
    return error.connection_invalidated or (_is_of_connection(error) and not is_refused)


def _is_of_connection(error: DBAPIError) -> bool:
    """Whether PostgreSQL's driver could not reach the server, or lost it."""
    return type(error.orig).__name__ in ("OperationalError", "InterfaceError", "ConnectionTimeout")


def explain(error: Exception, url: URL) -> str:
    """One sentence that names the registry, says what is wrong and what to do; secrets of the URL are not in it."""
    place = f"The registry {display_url(url)}"
    cause = _cause(error, url)
    if url.get_backend_name() == "sqlite":
        for sign, meaning in _SQLITE:
            if sign in cause:
                return f"{place} {meaning.format(cause=cause)}."
        if isinstance(error, OSError):
            return f"{place} cannot be opened: {error.strerror or cause} ({error.filename}); give another --registry."
    elif isinstance(error, DBAPIError):
        state = getattr(error.orig, "sqlstate", None)
        if state in _POSTGRESQL:
            return f"{place} {_POSTGRESQL[state].format(cause=cause)}."
        if error.connection_invalidated or "connect" in cause or (state is None and _is_of_connection(error)):
            advice = "Check that the server runs, its host, user, password and database."
            return f"{place} cannot be reached: {cause}. {advice}"
    if "FOREIGN KEY" in cause.upper() or ("run_id" in cause and "NULL" in cause.upper()):
        return f"{place} has no such run: {cause}."
    return f"{place} refused: {cause}."


def _cause(error: Exception, url: URL) -> str:
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    lines = without_secrets(str(original), url).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(original).__name__
