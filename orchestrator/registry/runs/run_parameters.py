"""Parameters of a run, written and read in a transaction: the values of its spec by dotted path."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from sqlalchemy import Integer, Select, bindparam, select, type_coerce
from sqlalchemy.orm import Session

from orchestrator.registry.column_types import replace_unstorable
from orchestrator.registry.engines.write_transactions import Prepared, WriteTransaction
from orchestrator.registry.parameter_values import decode_parameter, encode_parameter
from orchestrator.registry.runs.run_names import name_keys
from orchestrator.registry.tables import NameRow, ParameterRow


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
            ParameterRow.__table__,  # type: ignore[arg-type]
            columns | {"number": numbers},
            ["path", "run_id"],
            ["kind", "text", "number"],
        )


def read_parameters(transaction: WriteTransaction, key: int) -> dict[str, Any]:
    """Read the parameters of a run by dotted path, to write by them."""
    rows = transaction.read(_select_statement(transaction.dialect), {"key": key})
    return {path: decode_parameter(kind, text) for path, kind, text in rows}


def load_parameters(session: Session, run_id: str) -> dict[str, Any]:
    """Load the parameters of a run by dotted path."""
    rows = session.execute(_of_run(ParameterRow.run_id == run_id))
    return {path: decode_parameter(kind, text) for path, kind, text in rows}


def _of_run(is_its: Any) -> Select[str, str, str]:
    columns = select(NameRow.text, ParameterRow.kind, ParameterRow.text)
    return columns.join(NameRow, NameRow.key == ParameterRow.path).where(is_its).order_by(NameRow.text)


@lru_cache
def _select_statement(dialect: str) -> Prepared:
    is_its = type_coerce(ParameterRow.run_id, Integer) == bindparam("key", type_=Integer)
    return Prepared(_of_run(is_its), dialect, ["key"])
