"""The portable form of a registry: one file of JSON lines with every row, the same from SQLite and from PostgreSQL.

    {"format": "bert-orchestrator registry", "version": 1, "revision": "0009"}
    {"table": "experiments", "columns": ["id", "name", "fingerprint", "created_at"]}
    [1, "first", "3f…", "2026-11-23T12:00:00.000000"]
    …
    {"rows": 4711, "sha256": "9c…"}          of all bytes above

Tables follow those they need, and rows have one order, so that the same content gives the same bytes. Numbers that only
one database knows (experiments' ids) are given anew. A file is compressed by the ending of its name (`.gz`, `.zst`) and
recognized by its first bytes. What is read goes into a SQLite file at the revision that wrote it, which is then
upgraded.
"""

import base64
import hashlib
import json
import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from sqlalchemy import Column, Connection, DateTime, Float, LargeBinary, Select, Table, insert
from sqlalchemy.exc import SQLAlchemyError

from orchestrator.errors import InputError
from orchestrator.registry.engines.dialects import open_engine
from orchestrator.registry.keeping.compressed_files import BROKEN, is_compressed, read_decompressed, write_compressed
from orchestrator.registry.keeping.table_copy import ROWS_AT_ONCE, ordered_rows, tables_in
from orchestrator.registry.location import resolve_url
from orchestrator.registry.revisions import known_revisions, upgrade_schema

FORMAT, VERSION = "bert-orchestrator registry", 1
OnRows = Callable[[str, int], None]
"""Told the table at work and the number of rows so far."""
_Encode = Callable[[Any], Any]


def is_portable(path: Path) -> bool:
    """Whether a file begins as one in portable form, compressed or not."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError:
        return False
    return is_compressed(start) or start.startswith(b'{"f')


def write_portable(
    reading: Connection, revision: str, path: Path, *, ending: str, on_rows: OnRows = lambda table, rows: None
) -> int:
    """Write all rows to a file; returns how many.

    Args:
        ending: ending of the name by which the file is compressed: `.gz`, `.zst`, or anything else for plain text.
    """
    with write_compressed(path, ending) as file:
        return write_lines(reading, revision, file, on_rows)


def write_lines(
    reading: Connection,
    revision: str,
    file: IO[bytes],
    on_rows: OnRows = lambda table, rows: None,
    rows_of: Callable[[Table, str], Select[Any]] = ordered_rows,
) -> int:
    """Write rows as lines; returns how many.

    Args:
        rows_of: statement for the rows of a table, in order, given the dialect; all of them when left out.
    """
    digest, num_rows = hashlib.sha256(), 0

    def write(values: Any) -> None:
        line = _json(values) + b"\n"
        digest.update(line)
        file.write(line)

    write({"format": FORMAT, "version": VERSION, "revision": revision})
    new_ids: dict[Any, int] = {}
    for table in tables_in(reading):
        columns = list(table.columns)
        write({"table": table.name, "columns": [column.name for column in columns]})
        encoders = {n: encode for n, column in enumerate(columns) if (encode := _encoder(column)) is not None}
        experiment = next((n for n, column in enumerate(columns) if column.name == "experiment_id"), None)
        for row in reading.execute(rows_of(table, reading.dialect.name)).yield_per(ROWS_AT_ONCE):
            values = list(row)
            if table.name == "experiments":
                values[0] = new_ids.setdefault(values[0], len(new_ids) + 1)
            elif experiment is not None:
                values[experiment] = new_ids[values[experiment]]
            for n, encode in encoders.items():
                if values[n] is not None:
                    values[n] = encode(values[n])
            write(values)
            num_rows += 1
            if num_rows % ROWS_AT_ONCE == 0:
                on_rows(table.name, num_rows)
    last_line = _json({"rows": num_rows, "sha256": digest.hexdigest()})
    file.write(last_line + b"\n")
    return num_rows


def read_portable(path: Path, scratch: Path, on_rows: OnRows = lambda table, rows: None) -> int:
    """Read a file in portable form into a new SQLite file, and bring that to the newest revision; returns its rows.

    Raises: InputError for a file that is another one, incomplete, changed, or of a newer version of this package.
    """
    try:
        with read_decompressed(path) as file:
            return read_lines(file, scratch, str(path), on_rows)
    except BROKEN as error:  # some of which are kinds of OSError
        raise InputError(f"{path} is cut short or damaged ({error}); export it again") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None


def read_lines(file: IO[bytes], scratch: Path, place: str, on_rows: OnRows = lambda table, rows: None) -> int:
    """Read lines of the portable form as `read_portable` does. `place` is what messages call their source."""
    lines = _Lines(file, place)
    revision = _checked_revision(lines.next_value(), place)
    engine = open_engine(resolve_url(str(scratch)))
    try:
        upgrade_schema(engine, place, to=revision)
        with engine.execution_options(writing=True).begin() as connection:
            connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
            num_rows = _insert_all(connection, lines, on_rows)
        upgrade_schema(engine, place)
    except (SQLAlchemyError, sqlite3.Error) as error:
        cause = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise InputError(f"{place}, line {lines.number}: the rows do not fit together: {cause}") from error
    finally:
        engine.dispose()
    return num_rows


def _checked_revision(header: Any, place: str) -> str:
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InputError(f"{place} is no registry in portable form; such a file is written by: orchestrator db export")
    version, revision = header.get("version"), str(header.get("revision"))
    if version != VERSION or revision not in known_revisions():
        raise InputError(
            f"{place} is of version {version}, revision {revision}, newer than this version knows; upgrade "
            "bert-orchestrator"
        )
    return revision


class _Lines:
    """Lines of a file with their number and the digest of those that were read."""

    def __init__(self, file: IO[bytes], place: str) -> None:
        self._file, self._place = file, place
        self._digest = hashlib.sha256()
        self.digest_before = ""
        self.number = 0

    def error(self, what: str) -> InputError:
        """Error about the line that was read last."""
        return InputError(f"{self._place}, line {self.number}: {what}")

    def next_value(self) -> Any:
        """The next line's value. Raises: InputError where there is none, or it is no JSON."""
        line = self._file.readline()
        if not line.endswith(b"\n"):
            raise InputError(f"{self._place} ends after line {self.number}, which is too early; export it again")
        self.number += 1
        self.digest_before = self._digest.hexdigest() if line.startswith(b'{"rows"') else ""
        self._digest.update(line)
        try:
            return json.loads(line)
        except ValueError:
            raise self.error("no JSON; is it a registry's export?") from None


def _insert_all(connection: Connection, lines: _Lines, on_rows: OnRows) -> int:
    """Insert the rows of all tables, and compare their number and digest with what the last line says."""
    tables = {table.name: table for table in tables_in(connection)}
    num_rows, value = 0, lines.next_value()
    while isinstance(value, dict) and "table" in value:
        name, names = value["table"], value.get("columns")
        table = tables.get(name)
        if table is None or not isinstance(names, list) or set(names) != set(table.columns.keys()):
            raise lines.error(f"table {name!r} is not as its revision has it")
        decoders = [_decoder(table.c[column]) for column in names]
        rows: list[dict[str, Any]] = []
        while isinstance(value := lines.next_value(), list):
            rows.append(_decoded(value, names, decoders, lines))
            num_rows += 1
            if len(rows) == ROWS_AT_ONCE:
                connection.execute(insert(table), rows)
                on_rows(name, num_rows)
                rows = []
        if rows:
            connection.execute(insert(table), rows)
    if not isinstance(value, dict) or (value.get("rows"), value.get("sha256")) != (num_rows, lines.digest_before):
        raise lines.error("it was changed since it was written; export it again")
    return num_rows


def _decoded(
    values: Sequence[Any], names: Sequence[str], decoders: Sequence[_Encode | None], lines: _Lines
) -> dict[str, Any]:
    try:
        return {
            name: value if decode is None or value is None else decode(value)
            for name, decode, value in zip(names, decoders, values, strict=True)
        }
    except (ValueError, TypeError) as error:
        raise lines.error(str(error)) from None


def _json(values: Any) -> bytes:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


def _encoder(column: Column[Any]) -> _Encode | None:
    if isinstance(column.type, DateTime):
        return lambda value: value.isoformat(timespec="microseconds")
    if isinstance(column.type, Float):
        return lambda value: float(value) if abs(value) != float("inf") else str(value)
    if isinstance(column.type, LargeBinary):
        return lambda value: base64.b64encode(value).decode()
    return None


def _decoder(column: Column[Any]) -> _Encode | None:
    if isinstance(column.type, DateTime):
        return datetime.fromisoformat
    if isinstance(column.type, Float):
        return float
    if isinstance(column.type, LargeBinary):
        return base64.b64decode
    return None
