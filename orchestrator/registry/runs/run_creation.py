"""Creation of a run in a session: its row, its spec as parameters, and its tags."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import insert, update
from sqlalchemy.orm import Session

from orchestrator.errors import InputError
from orchestrator.registry.column_types import replace_unstorable
from orchestrator.registry.engines.dialects import upsert
from orchestrator.registry.group_tables import OpenRunRow
from orchestrator.registry.parameter_values import encode_parameter, flatten, run_group_digest
from orchestrator.registry.runs.inheritance import add_tags
from orchestrator.registry.runs.run_names import record_names
from orchestrator.registry.runs.run_parameters import load_parameters
from orchestrator.registry.tables import ParameterRow, StoredRun

_COLUMNS_OF_THEIR_OWN = ("kind", "name", "tags")
"""Fields of a spec that are columns of the run, and so no parameters."""


def insert_run(session: Session, row: Mapping[str, Any], fingerprint: str, tags: Sequence[str]) -> None:
    """Insert a run with all that its spec says; a run of that id which is there already stays as it is.

    Args:
        row: columns of the run, its spec among them; its group follows from them.
        fingerprint: digest of the spec.
    """
    parameters = _parameters_of(row["spec"])
    given = {
        **row,
        "fingerprint": fingerprint,
        "group_key": run_group_digest(row["kind"], parameters),
    }
    statement = upsert(session.get_bind().dialect.name, StoredRun.__table__, ("id",)).returning(StoredRun.id)
    if session.execute(statement, given).first() is None:
        if session.get_one(StoredRun, row["id"]).removed_at is not None:
            raise InputError(f"run {row['id']} was removed; to bring it back: orchestrator runs restore {row['id']}")
        return
    if parameters:
        record_names(session, parameters)
        rows = [{"run_id": row["id"], "path": path, **_encoded(value)} for path, value in parameters.items()]
        session.execute(insert(ParameterRow), rows)
    session.execute(insert(OpenRunRow), [{"run_id": row["id"]}])
    add_tags(session, row["id"], tags)


def replace_spec(session: Session, run: StoredRun, spec: Mapping[str, Any], fingerprint: str) -> None:
    """Replace the spec of a run by one with the same fields."""
    parameters = load_parameters(session, run.id)
    for path, value in _parameters_of(spec).items():
        if path in parameters and parameters[path] != value:
            parameters[path] = value
            row = update(ParameterRow).where(ParameterRow.run_id == run.id, ParameterRow.path == path)
            session.execute(row.values(**_encoded(value)))
    run.spec, run.fingerprint, run.group_key = dict(spec), fingerprint, run_group_digest(run.kind, parameters)


def _parameters_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    flat = flatten({key: value for key, value in spec.items() if key not in _COLUMNS_OF_THEIR_OWN})
    return {replace_unstorable(path): value for path, value in flat.items()}


def _encoded(value: Any) -> dict[str, Any]:
    return dict(zip(("kind", "text", "number"), encode_parameter(value), strict=True))
