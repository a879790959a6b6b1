"""Creation of a run in a session: its row, its experiment, its spec as parameters, and its tags."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from orchestrator.registry.engines.dialects import upsert
from orchestrator.registry.parameter_values import (
    PARAMETER_COLUMNS,
    encode_parameter,
    flatten,
    parameter_rows,
    run_group_digest,
)
from orchestrator.registry.runs.inheritance import add_tags
from orchestrator.registry.runs.run_parameters import load_parameters
from orchestrator.registry.tables import ExperimentRow, ParameterRow, RunRow

_COLUMNS_OF_THEIR_OWN = ("kind", "name", "tags")
"""Fields of a spec that are columns of the run, and so no parameters."""


def insert_run(session: Session, row: Mapping[str, Any], fingerprint: str, tags: Sequence[str]) -> None:
    """Insert a run with all that its spec says; a run of that id which is there already stays as it is.

    Args:
        row: columns of the run, its spec among them; its experiment and its group follow from them.
        fingerprint: digest of the spec.
    """
    parameters = _parameters_of(row["spec"])
    given = {
        **row,
        "group_key": run_group_digest(row["kind"], parameters),
        "experiment_id": _experiment_id(session, row["name"], fingerprint),
    }
    statement = upsert(session.get_bind().dialect.name, RunRow.__table__, ("id",)).returning(RunRow.id)
    if session.execute(statement, given).first() is None:
        return
    rows = parameter_rows(row["id"], parameters)
    if rows:
        session.execute(insert(ParameterRow), [dict(zip(PARAMETER_COLUMNS, values, strict=True)) for values in rows])
    add_tags(session, row["id"], tags)


def replace_spec(session: Session, run: RunRow, spec: Mapping[str, Any], fingerprint: str) -> None:
    """Replace the spec of a run by one with the same fields; its experiment, which is its trials' too, follows."""
    parameters = load_parameters(session, run.id)
    for path, value in _parameters_of(spec).items():
        if path in parameters and parameters[path] != value:
            parameters[path] = value
            stored = dict(zip(PARAMETER_COLUMNS[2:], encode_parameter(value), strict=True))
            row = update(ParameterRow).where(ParameterRow.run_id == run.id, ParameterRow.path == path)
            session.execute(row.values(**stored))
    run.spec, run.group_key = dict(spec), run_group_digest(run.kind, parameters)
    run.experiment_id = _experiment_id(session, run.name, fingerprint)
    trials = update(RunRow).where(RunRow.parent_id == run.id)
    session.execute(trials.values(experiment_id=run.experiment_id).execution_options(synchronize_session=False))


def _parameters_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    return flatten({key: value for key, value in spec.items() if key not in _COLUMNS_OF_THEIR_OWN})


def _experiment_id(session: Session, name: str, fingerprint: str) -> int:
    key = {"fingerprint": fingerprint, "name": name}
    session.execute(upsert(session.get_bind().dialect.name, ExperimentRow.__table__, tuple(key)), key)
    return session.scalars(select(ExperimentRow.id).filter_by(**key)).one()
