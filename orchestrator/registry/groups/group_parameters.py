"""Parameters of several runs at once: what runs of a group have in common, and what tells their data and models."""

from collections.abc import Collection
from functools import lru_cache
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from orchestrator.registry.column_types import name_of_key
from orchestrator.registry.engines.dialects import json_object, select_runs
from orchestrator.registry.parameter_values import KIND_END, decode_stored
from orchestrator.registry.tables import NameRow, ParameterRow


def load_parameters_of(
    session: Session, run_ids: Collection[str], paths: Collection[str] = (), *, without: Collection[str] = ()
) -> dict[str, dict[str, Any]]:
    """Load the parameters of several runs, by run and dotted path; a run without any has none.

    Args:
        paths: parameters that are asked for; all when empty.
        without: parameters that are left out.
    """
    stored = json_object(session, name_of_key(ParameterRow.path), ParameterRow.kind + KIND_END + ParameterRow.text)
    of_run = select(ParameterRow.run_id, stored).where(ParameterRow.run_id.in_(select_runs(session, run_ids)))
    named = select(NameRow.key).where(NameRow.text.in_(paths or without))
    asked = of_run.where(ParameterRow.path.in_(named) if paths else ParameterRow.path.not_in(named))
    parameters: dict[str, dict[str, Any]] = {run_id: {} for run_id in run_ids}
    for run_id, own in session.connection().execute(asked.group_by(ParameterRow.run_id)):
        parameters[run_id] = {path: _decode(value) for path, value in own.items()}
    return parameters


_decode = lru_cache(maxsize=10_000)(decode_stored)
"""A few values stand in most recipes, and each is decoded once."""
