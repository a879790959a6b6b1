"""Trials that have a score, and groups of them, the best first: for whoever tells of a sweep."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from orchestrator.results import best_first
from orchestrator.run_states import RunState

Row = Mapping[str, Any]


def scored_trials(rows: Sequence[Row], metric: str) -> list[Row]:
    """Completed trials with a finite score, the best first; of equal ones the one with the lower number.

    Args:
        rows: records of `registry.trials.table`.
    """
    column = f"metrics.{metric}"
    scored = [row for row in rows if row["state"] == RunState.COMPLETED and _is_finite(row.get(column))]
    return sorted(scored, key=lambda row: (best_first(metric, row[column]), row["number"]))


def scored_groups(rows: Sequence[Row], metric: str) -> list[list[Row]]:
    """The scored trials of each group, which differ only in their seed: the group with the best mean first.

    Args:
        rows: records of `registry.trials.table`.
    """
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in scored_trials(rows, metric):
        groups[row["group"]].append(row)
    column = f"metrics.{metric}"
    return sorted(groups.values(), key=lambda group: best_first(metric, fmean(row[column] for row in group)))


def _is_finite(score: float | None) -> bool:
    return score is not None and math.isfinite(score)
