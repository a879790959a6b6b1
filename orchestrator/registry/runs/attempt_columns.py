"""Columns of an attempt that say what it was made with, and the changes of its code, kept once for all attempts."""

from dataclasses import asdict
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from orchestrator.provenance.machine import MadeWith
from orchestrator.registry.attempt_tables import AttemptRow, CodeDiffRow
from orchestrator.registry.engines.dialects import upsert_rows


def attempt_columns(session: Session, made_with: MadeWith | None) -> dict[str, Any]:
    """Columns of an attempt's row; the changes of its code are written to a row of their own."""
    if made_with is None:
        return {}
    code = asdict(made_with.code)
    diff, digest = code.pop("diff"), code["diff_digest"]
    if diff is not None:
        upsert_rows(session, CodeDiffRow, ("digest",), (), [{"digest": digest, "diff": diff}])
    return {
        "code": code,
        "diff_digest": digest if diff is not None else None,
        "command": made_with.command,
        "overrides": list(made_with.overrides),
        "environment": dict(made_with.environment),
    }


def load_code_diff(session: Session, run_id: str, number: int) -> str | None:
    """Changes of the code of an attempt that are in no commit; None where there were none, or none were kept."""
    statement = select(CodeDiffRow.diff).join(AttemptRow, AttemptRow.diff_digest == CodeDiffRow.digest)
    return session.scalar(statement.where(AttemptRow.run_id == run_id, AttemptRow.number == number))
