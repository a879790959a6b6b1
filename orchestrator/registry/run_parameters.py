"""Parameters of a run, written and read in a session: the values of its spec by dotted path."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from orchestrator.registry.dialects import upsert_rows
from orchestrator.registry.parameter_values import decode_parameter, parameter_rows
from orchestrator.registry.tables import ParameterRow


def write_parameters(session: Session, parameters: Mapping[str, Mapping[str, Any]]) -> None:
    """Write all parameters of runs, by run, at once: short names depend on all of a run's."""
    rows = [row for run_id, values in parameters.items() for row in parameter_rows(run_id, values)]
    upsert_rows(session, ParameterRow, ("run_id", "path"), ("leaf", "kind", "text", "number"), rows)


def load_parameters(session: Session, run_id: str) -> dict[str, Any]:
    """Load the parameters of a run by dotted path."""
    columns = select(ParameterRow.path, ParameterRow.kind, ParameterRow.text).where(ParameterRow.run_id == run_id)
    return {
        path: decode_parameter(kind, text) for path, kind, text in session.execute(columns.order_by(ParameterRow.path))
    }
