"""Errors of the database as errors of the registry: which registry, what is wrong with it, what to do, wait or not.

Waiting helps where the server is down or starts, the connection broke, or another process holds a lock. It does not
help where the file is read-only, the disk is full, or a table is missing: somebody has to act first.
"""

import sqlite3

from sqlalchemy import URL
from sqlalchemy.exc import SQLAlchemyError

from orchestrator.errors import InputError, RegistryError, RegistryUnavailableError
from orchestrator.registry.location import display_url, without_secrets

_MEANINGS = {
    ("not a database",): "is not a SQLite database; give another path with --registry",
    ("unable to open",): "cannot be opened; check that it is a file, and that its folder exists and may be written",
    ("readonly", "25006"): "cannot be written ({cause}); check the permissions of the file and its folder, or the URL",
    ("42501",): "cannot be used: {cause}; grant it, or give another user in the URL",
    ("is locked",): "is held by another process for too long; try again when that one is done",
    ("disk is full", "53100"): "cannot be written because the disk is full; free some space and resume",
    ("disk I/O error",): "cannot be read or written: the disk reports an error; check the disk, then resume",
    ("malformed", "no such table", "no such column", "has no column", "42703", "42P01"): (
        "is damaged ({cause}); restore it from a backup"
    ),
}
"""Parts of SQLite's own message, or SQLSTATEs (PostgreSQL's documentation, appendix A), and what they mean."""
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_PASSING = ("08", "40001", "40P01", "53300", "55P03", "57P01", "57P02", "57P03")
"""Beginnings of SQLSTATEs: connection, serialization, deadlock, too many connections, lock, shutdown, crash, start."""
_PASSING_REFUSALS = ("starting up", "shutting down", "recovery mode", "not yet accepting", "too many", "slots are")
"""Parts of a server's refusals to connect that pass; these come without an SQLSTATE."""
_OUT_OF_RANGE = "22003"
_TOO_LARGE = "A number is larger than the registry holds: a seed or step from 2**63 on, a parameter from 1.8e308 on."


def is_of_database(error: Exception) -> bool:
    """Whether an error comes from the database, SQLAlchemy or a driver (those of psycopg have an SQLSTATE)."""
    return isinstance(error, SQLAlchemyError | sqlite3.Error | OverflowError) or hasattr(error, "sqlstate")


def translate(error: Exception, url: URL) -> InputError | RegistryError:
    """Error of the registry for an error of its database: a RegistryUnavailableError where waiting helps.

    Its one sentence names the registry, says what is wrong and what to do; secrets of the URL are not in it.
    """
    original = getattr(error, "orig", None) or error
    state: str | None = getattr(original, "sqlstate", None)
    if isinstance(original, OverflowError) or state == _OUT_OF_RANGE:
        return InputError(_TOO_LARGE)
    place = f"The registry {display_url(url)}"
    lines = without_secrets(str(original), url).strip().splitlines()
    cause = lines[0].rstrip(".") if lines else type(original).__name__
    kind = RegistryUnavailableError if _passes(original, state) else RegistryError
    for signs, meaning in _MEANINGS.items():
        if any(sign in (state or cause) for sign in signs):
            return kind(f"{place} {meaning.format(cause=cause)}.")
    if _is_of_connection(original, state) or (state is not None and "connect" in cause):
        advice = "Check that the server runs, its host, user, password and database."
        return kind(f"{place} cannot be reached: {cause}. {advice}")
    if "FOREIGN KEY" in cause.upper() or ("run_id" in cause and "NULL" in cause.upper()):
        return kind(f"{place} has no such run: {cause}.")
    return kind(f"{place} refused: {cause}.")


def _passes(original: BaseException, state: str | None) -> bool:
    """Whether the database may answer again without anybody's help."""
    if isinstance(original, sqlite3.Error):
        return getattr(original, "sqlite_errorcode", 0) & 0xFF in _BUSY  # the higher bits tell more of the same code
    if state is not None:
        return state.startswith(_PASSING)
    is_refused = "FATAL" in str(original) and not any(sign in str(original) for sign in _PASSING_REFUSALS)
    return _is_of_connection(original, state) and not is_refused


def _is_of_connection(original: BaseException, state: str | None) -> bool:
    """Whether PostgreSQL's driver could not reach the server, or lost it."""
    is_of_psycopg = not isinstance(original, sqlite3.Error) and state is None
    return is_of_psycopg and type(original).__name__ in ("OperationalError", "InterfaceError", "ConnectionTimeout")
