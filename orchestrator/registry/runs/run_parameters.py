"""Parameters of runs, written and read in a transaction: the values of their specs by dotted path."""

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from sqlalchemy import Select, Text, bindparam, select
from sqlalchemy.orm import Session

from orchestrator.registry.engines.dialects import json_object, select_items, upsert
from orchestrator.registry.engines.driver_statements import DriverStatement
from orchestrator.registry.engines.write_transactions import WriteTransaction
from orchestrator.registry.parameter_values import (
    KIND_END,
    PARAMETER_COLUMNS,
    decode_parameter,
    decode_stored,
    parameter_rows,
)
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


def load_parameters_of(
    session: Session, run_ids: Collection[str], paths: Collection[str] = (), *, without: Collection[str] = ()
) -> dict[str, dict[str, Any]]:
    """Load the parameters of several runs, by run and dotted path; a run without any has none.

    Args:
        paths: parameters that are asked for; all when empty.
        without: parameters that are left out.
    """
    stored = json_object(session, ParameterRow.path, ParameterRow.kind + KIND_END + ParameterRow.text)
    of_run = select(ParameterRow.run_id, stored).where(ParameterRow.run_id.in_(select_items(session, run_ids)))
    asked = of_run.where(ParameterRow.path.in_(paths)) if paths else of_run.where(ParameterRow.path.not_in(without))
    parameters: dict[str, dict[str, Any]] = {run_id: {} for run_id in run_ids}
    for run_id, own in session.connection().execute(asked.group_by(ParameterRow.run_id)):
        parameters[run_id] = {path: _decode(value) for path, value in own.items()}
    return parameters


_decode = lru_cache(maxsize=10_000)(decode_stored)
"""A few values stand in most recipes, and each is decoded once."""


def _of_run(run_id: Any) -> Select[str, str, str]:
    columns = select(ParameterRow.path, ParameterRow.kind, ParameterRow.text)
    return columns.where(ParameterRow.run_id == run_id).order_by(ParameterRow.path)


@lru_cache
def _select_statement(dialect: str) -> DriverStatement:
    return DriverStatement(_of_run(bindparam("run_id", type_=Text)), dialect, ("run_id",))


@lru_cache
def _upsert_statement(dialect: str) -> DriverStatement:
    keys, changing = PARAMETER_COLUMNS[:2], PARAMETER_COLUMNS[2:]
    return DriverStatement(upsert(dialect, ParameterRow.__table__, keys, changing), dialect, PARAMETER_COLUMNS)
