"""Parameters of a run, the values of its spec by dotted path; and names of parameters and measurements, which rows have
as integers: found or made as they are written.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Integer, Select, bindparam, select, type_coerce

from orchestrator.registry.column_types import replace_unstorable
from orchestrator.registry.engines.dialects import list_value, select_list, upsert_rows
from orchestrator.registry.engines.write_transactions import Prepared, WriteTransaction
from orchestrator.registry.parameter_values import decode_parameter, encode_parameter
from orchestrator.registry.tables import NAMES, PARAMETERS


def write_parameters(transaction: WriteTransaction, parameters: Mapping[int, Mapping[str, Any]]) -> None:
    """Write parameters of runs, by the run's key."""
    rows = [
        (replace_unstorable(path), key, *encode_parameter(value))
        for key, own in parameters.items()
        for path, value in own.items()
    ]
    if rows:
        paths, runs, kinds, texts, numbers = map(list, zip(*rows, strict=True))
        keys = name_keys(transaction, paths)
        columns = {"path": [keys[path] for path in paths], "run_id": runs, "kind": kinds, "text": texts}
        transaction.upsert(
            PARAMETERS,
            columns | {"number": numbers},
            ["path", "run_id"],
            ["kind", "text", "number"],
        )


def read_parameters(transaction: WriteTransaction, key: int) -> dict[str, Any]:
    """Read the parameters of a run by dotted path, to write by them."""
    rows = transaction.read(_select_statement(transaction.dialect), {"key": key})
    return {path: decode_parameter(kind, text) for path, kind, text in rows}


def load_parameters(connection: Connection, run_id: str) -> dict[str, Any]:
    """Load the parameters of a run by dotted path."""
    rows = connection.execute(_of_run(PARAMETERS.c.run_id == run_id))
    return {path: decode_parameter(kind, text) for path, kind, text in rows}


def _of_run(is_its: Any) -> Select[str, str, str]:
    columns = select(NAMES.c.text, PARAMETERS.c.kind, PARAMETERS.c.text)
    return columns.join(NAMES, NAMES.c.key == PARAMETERS.c.path).where(is_its).order_by(NAMES.c.text)


@lru_cache
def _select_statement(dialect: str) -> Prepared:
    is_its = type_coerce(PARAMETERS.c.run_id, Integer) == bindparam("key", type_=Integer)
    return Prepared(_of_run(is_its), dialect, ["key"])


def name_keys(transaction: WriteTransaction, texts: Iterable[str]) -> dict[str, int]:
    """Keys of names, which are made where they are not there yet."""
    keys, new = transaction.keys, transaction.new_keys
    wanted = dict.fromkeys(texts)
    missing = sorted(text for text in wanted if text not in keys and text not in new)  # in one order, against deadlocks
    if missing:
        _find(transaction, missing)
        if unknown := [text for text in missing if text not in new]:
            transaction.upsert(NAMES, {"text": unknown}, ["text"], [])
            _find(transaction, unknown)
    return {text: keys.get(text) or new[text] for text in wanted}


def _find(transaction: WriteTransaction, texts: list[str]) -> None:
    found = transaction.read(_find_statement(transaction.dialect), {"texts": list_value(transaction.dialect, texts)})
    transaction.new_keys.update(found)


@lru_cache
def _find_statement(dialect: str) -> Prepared:
    named = select(NAMES.c.text, NAMES.c.key).where(NAMES.c.text.in_(select_list(dialect, "texts")))
    return Prepared(named, dialect, ["texts"])


def record_names(connection: Connection, texts: Iterable[str]) -> None:
    """Record names, for rows that come after."""
    upsert_rows(connection, NAMES, ("text",), (), [{"text": text} for text in sorted(set(texts))])
