"""Test scores that are refused, left out of aggregates: they are of models that were made with the test data."""

from collections.abc import Collection
from dataclasses import replace

from sqlalchemy.orm import Session

from orchestrator.progress import counted
from orchestrator.registry.groups.model_origins import load_test_refusals
from orchestrator.registry.queries.field_reader import FieldColumns

_TEST = "metrics.test."


def are_of_tests(fields: Collection[str]) -> list[str]:
    """Those of some fields that are measurements on the test split, as of `best(metrics.test.f1)`."""
    return [field for field in fields if _TEST in field]


def without_refused(
    session: Session, read: FieldColumns, fields: Collection[str], ids: str
) -> tuple[FieldColumns, list[str]]:
    """Values without those of refused test scores, and a note on how many runs have one.

    Args:
        fields: fields that are measurements on the test split.
        ids: name of the column with the ids of runs.
    """
    run_ids = read.values[ids]
    having = {
        run_id for name in fields for run_id, value in zip(run_ids, read.values[name], strict=True) if value is not None
    }
    refused = load_test_refusals(session, having)
    if not refused:
        return read, []
    kept = {
        name: [None if run_id in refused else value for run_id, value in zip(run_ids, read.values[name], strict=True)]
        for name in fields
    }
    note = f"left out: the test score of {counted(len(refused), 'run')}, refused; `orchestrator runs show` says why"
    return replace(read, values={**read.values, **kept}), [note]
