"""Runs to try things on, and a whole registry as plain values to compare."""

from typing import Any

from sqlalchemy import select

from orchestrator.provenance.made_with import MadeWith
from orchestrator.provenance.source_code import SourceCode
from orchestrator.registry import Registry
from orchestrator.registry.tables import BaseRow
from orchestrator.results import ModelResult, TrialResult
from orchestrator.run_states import RunState


def new_run(registry: Registry, **changes: Any) -> str:
    """A run's id; every argument of `registry.lifecycle.create` can be changed."""
    given = {"kind": "pretrain", "name": "sample", "fingerprint": "f" * 64, "spec": {"kind": "pretrain"}}
    return registry.lifecycle.create(**{**given, **changes})


def model_result(digest: str = "d" * 64, **changes: Any) -> ModelResult:
    """A classifier's folder."""
    given = {"folder": f"storage/{digest}", "digest": digest, "num_parameters": 4_385_920, "head": "classification"}
    return ModelResult(**{**given, **changes})


def trial_result(key: str = "k0", **changes: Any) -> TrialResult:
    """A completed trial."""
    given: dict[str, Any] = {"number": 0, "parameters": {"learning_rate": 1e-4}, "state": RunState.COMPLETED, "seed": 0}
    return TrialResult(key=key, **{**given, **changes})


def made_with(commit: str, diff: str | None = None) -> MadeWith:
    """Make of an attempt at a commit, with changes or without."""
    digest = None if diff is None else f"{diff:x>64}"
    code = SourceCode("0.1.0", commit, diff, digest, len(diff or ""), ("bert_core/a.py",) if diff else ())
    return MadeWith(code, "orchestrator run a.yaml", ("seed=1",), {"hostname": "a", "versions": {"python": "3.11"}})


def everything(registry: Registry) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table."""
    with registry._database.session(writing=False) as session:
        return {
            name: sorted((tuple(row) for row in session.execute(select(table))), key=repr)
            for name, table in BaseRow.metadata.tables.items()
        }
