"""Trials that have a score, and groups of them, the best first: for whoever tells of a sweep."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.measurements import best_first
from orchestrator.registry.groups.group_records import GroupRecord, GroupRun
from orchestrator.registry.groups.group_settings import FOLDS_PATH
from orchestrator.registry.groups.ranking import place
from orchestrator.registry.parameter_values import KIND_END
from orchestrator.run_states import RunState

Row = Mapping[str, Any]
_FOLD = "params.fold"


def scored_trials(rows: Sequence[Row], metric: str) -> list[Row]:
    """Completed trials with a finite score, the best first; of equal ones the one with the lower number.

    Args:
        rows: records of `registry.trials.table`.
    """
    column = f"metrics.{metric}"
    scored = [row for row in rows if row["state"] == RunState.COMPLETED and _is_finite(row.get(column))]
    return sorted(scored, key=lambda row: (best_first(metric, row[column]), row["number"]))


def choice_words(num_scored: int) -> str:
    """Words on what the score of a sweep was chosen from, empty of one trial alone.

    >>> choice_words(8), choice_words(1)
    ('best of 8 trials on the validation data', '')
    """
    return f"best of {num_scored} trials on the validation data" if num_scored > 1 else ""


def scored_groups(rows: Sequence[Row], metric: str) -> list[list[Row]]:
    """The scored trials of each group, which differ only in seed and fold, in the order of the leaderboard.

    So a single lucky seed stands after groups of several. A group none of whose seeds has all of its folds is left out.

    Args:
        rows: records of `registry.trials.table`.
    """
    groups: dict[str, list[Row]] = defaultdict(list)
    scored = scored_trials(rows, metric)
    for row in scored:
        groups[row["group"]].append(row)
    records = [(_record(group, metric, scored[0]["id"]), group) for group in groups.values()]
    whole = [(place(record), group) for record, group in records if record.scores]
    return [group for _, group in sorted(whole, key=lambda pair: pair[0])]


def seed_scores(rows: Sequence[Row], metric: str) -> list[float]:
    """Scores of a group's seeds: of each the mean over its folds, or its one trial's.

    Args:
        rows: scored trials of one group.
    """
    return _record(rows, metric, "").scores if rows else []


def replicate_text(row: Row) -> str:
    """Seed of a trial in words, and its fold where it has one."""
    fold = row.get(_FOLD)
    return f"seed {row['seed']}" + ("" if fold is None else f", fold {fold}")


def _record(rows: Sequence[Row], metric: str, best_id: str) -> GroupRecord:
    """Scored trials of one group as the leaderboard takes them, in its order; the best of all has a model."""
    runs = [
        GroupRun(
            id=row["id"],
            seed=row["seed"],
            state=RunState.COMPLETED,
            score=row[f"metrics.{metric}"],
            baseline=None,
            test=None,
            is_collapsed=False,
            model_folder=row["id"] if row["id"] == best_id else None,
            finished_at=row["finished_at"],
            parent_id=row["parent"],
            fold=row.get(_FOLD),
        )
        for row in sorted(rows, key=lambda row: (row["finished_at"], row["id"]))
    ]
    folds = rows[0].get("params.folds")
    settings = {} if folds is None else {FOLDS_PATH: f"number{KIND_END}{folds}"}
    return GroupRecord(rows[0]["group"], "sweep", rows[0]["task"], metric, "validation", runs, settings=settings)


def _is_finite(score: float | None) -> bool:
    return score is not None and math.isfinite(score)
