"""Trials that have a score, and groups of them, the best first: for whoever tells of a sweep."""

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from orchestrator.measurements import best_first, is_better_lower, score_bounds
from orchestrator.registry.groups.group_records import scores_of_seeds
from orchestrator.registry.parameter_values import is_source_digest
from orchestrator.run_states import RunState
from orchestrator.significance.summary import Summary, summarize

Row = Mapping[str, Any]
_FOLD = "params.fold"


@dataclass(frozen=True)
class ScoredGroup:
    """Scored trials that differ only in seed and fold."""

    rows: Sequence[Row]
    """Records of `registry.trials.table`, the best first."""
    scores: Sequence[float]
    """Score of each seed."""

    @cached_property
    def summary(self) -> Summary:
        """Statistics of the seeds' scores."""
        return summarize(self.scores)


def scored_trials(rows: Sequence[Row], metric: str) -> list[Row]:
    """Completed trials with a finite score, the best first; of equal ones the one with the lower number.

    Args:
        rows: records of `registry.trials.table`.
    """
    column = f"metrics.{metric}"
    completed = [row for row in rows if row["state"] == RunState.COMPLETED and row.get(column) is not None]
    scored = [row for row in completed if math.isfinite(row[column])]
    return sorted(scored, key=lambda row: (best_first(metric, row[column]), row["number"]))


def choice_words(num_scored: int) -> str:
    """Words on what the score of a sweep was chosen from, empty of one trial alone.

    >>> choice_words(8), choice_words(1)
    ('best of 8 trials on the validation data', '')
    """
    return f"best of {num_scored} trials on the validation data" if num_scored > 1 else ""


def scored_groups(rows: Sequence[Row], metric: str) -> list[ScoredGroup]:
    """The scored trials of each group, which differ only in seed and fold, in the order of the leaderboard.

    A group none of whose seeds has all of its folds is left out.

    Args:
        rows: records of `registry.trials.table`.
    """
    from orchestrator.significance.ranking import SeedNoise  # numpy is of use to few who tell of a run

    groups: dict[str, list[Row]] = defaultdict(list)
    scored = scored_trials(rows, metric)
    for row in scored:
        groups[row["group"]].append(row)
    found = [ScoredGroup(of_group, scores) for of_group in groups.values() if (scores := seed_scores(of_group, metric))]
    best = scored[:1]  # whose model a sweep keeps, so that its group comes first of equal ones
    noise, bounds = SeedNoise.of([one.summary for one in found]), score_bounds(metric)

    def place(one: ScoredGroup) -> tuple[Any, ...]:
        ends = (one.summary.mean,) * 2 if noise is None else noise.interval(one.summary, bounds)
        worse, mean = best_first(metric, ends[is_better_lower(metric)]), best_first(metric, one.summary.mean)
        return worse, mean, one.rows[0] not in best, one.rows[0]["group"]

    return sorted(found, key=place)


def seed_scores(rows: Sequence[Row], metric: str) -> list[float]:
    """Scores of a group's seeds: of each the mean over its folds, or its one trial's.

    Args:
        rows: scored trials of one group.
    """
    num_folds = int(rows[0].get("params.folds") or 1) if rows else 1
    scores = [(row["seed"], row.get(_FOLD), row[f"metrics.{metric}"]) for row in rows]
    return list(scores_of_seeds(scores, num_folds).values())


def replicate_text(row: Row) -> str:
    """Seed of a trial in words, and its fold where it has one."""
    fold = row.get(_FOLD)
    return f"seed {row['seed']}" + ("" if fold is None else f", fold {fold}")


def varying_paths(recipes: Sequence[Mapping[str, Any]]) -> set[str]:
    """Paths whose values differ between recipes; a path that a recipe lacks counts as None.

    Digests of what data were taken from are left out: those of the examples tell more.

    >>> sorted(varying_paths([{"size": "tiny", "epochs": 3}, {"size": "mini", "epochs": 3.0}, {"epochs": 3}]))
    ['size']
    """
    paths = {path for recipe in recipes for path in recipe if not is_source_digest(path)}
    return {path for path in paths if len({_hashable(recipe.get(path)) for recipe in recipes}) > 1}


def varied_parameters(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The `params.…` columns in which rows differ, sorted, without seed and fold, which tell no recipes apart."""
    recipes = [{name: value for name, value in row.items() if name.startswith("params.")} for row in rows]
    return sorted(name for name in varying_paths(recipes) if name not in ("params.seed", "params.fold"))


def _hashable(value: Any) -> Hashable:
    """Value, or a list's values as a tuple; equal where the values are."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else str(value) if isinstance(value, dict) else value
