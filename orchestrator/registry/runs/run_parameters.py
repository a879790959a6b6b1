"""Parameters of a run, written and read in a transaction: the values of its spec by dotted path."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from sqlalchemy import Select, bindparam, select
from sqlalchemy.orm import Session

from orchestrator.registry.column_types import RunKey
from orchestrator.registry.engines.dialects import upsert
from orchestrator.registry.engines.driver_statements import DriverStatement
from orchestrator.registry.engines.write_transactions import WriteTransaction
from orchestrator.registry.parameter_values import PARAMETER_COLUMNS, decode_parameter, parameter_rows
from orchestrator.registry.tables import ParameterRow


def write_parameters(transaction: WriteTransaction, parameters: Mapping[str, Mapping[str, Any]]) -> None:
    """Write parameters of runs, by run."""
    rows = [row for run_id, values in parameters.items() for row in parameter_rows(run_id, values)]
    transaction.insert_rows(_upsert_statement(transaction.dialect), rows)


def read_parameters(transaction: WriteTransaction, run_id: str) -> dict[str, Any]:
    """Read the parameters of a run by dotted path, to write by them."""
    rows = transaction.read(_select_statement(transaction.dialect), (run_id,))
    return {path: decode_parameter(kind, text) for path, kind, text in rows}


def load_parameters(session: Session, run_id: str) -> dict[str, Any]:
    """Load the parameters of a run by dotted path."""
    return {path: decode_parameter(kind, text) for path, kind, text in session.execute(_of_run(run_id))}


def _of_run(run_id: Any) -> Select[str, str, str]:
    columns = select(ParameterRow.path, ParameterRow.kind, ParameterRow.text)
    return columns.where(ParameterRow.run_id == run_id).order_by(ParameterRow.path)


@lru_cache
def _select_statement(dialect: str) -> DriverStatement:
    return DriverStatement(_of_run(bindparam("run_id", type_=RunKey)), dialect, ("run_id",))


@lru_cache
def _upsert_statement(dialect: str) -> DriverStatement:
    keys, changing = PARAMETER_COLUMNS[:2], PARAMETER_COLUMNS[2:]
    return DriverStatement(upsert(dialect, ParameterRow.__table__, keys, changing), dialect, PARAMETER_COLUMNS)
