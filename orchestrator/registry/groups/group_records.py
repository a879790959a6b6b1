"""Groups of runs that differ only in seed and fold, as frozen values: what its runs came to and show."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from orchestrator.measurements import is_better_lower
from orchestrator.registry.groups.group_keys import group_label
from orchestrator.registry.groups.model_origins import Origin
from orchestrator.run_states import RunState
from orchestrator.significance.summary import Summary, summarize

SEED_PATH, FOLD_PATH, FOLDS_PATH = "recipe.seed", "recipe.fold", "task.split.folds"
"""Parameters with a run's seed, its fold, and the number of folds that each seed is validated on."""


class GroupRun(NamedTuple):
    """One run or trial of a group."""

    id: str
    seed: int | None
    state: RunState
    score: float | None
    """Score that ranks; None where there is none, or it is NaN."""
    baseline: float | None
    """The score of what needs no reading of the text."""
    test: float | None
    """The score on the test split, of one that was scored there too."""
    is_collapsed: bool
    """Whether it never left the baseline."""
    model_folder: str | None
    finished_at: datetime | None
    parent_id: str | None
    test_refusal: str | None = None
    """Reason why its score on the test split is not shown; None where it may be."""
    fold: int | None = None
    """Fold that it was validated on, where its task has folds."""

    @property
    def is_scored(self) -> bool:
        """Whether it completed with a score that is a finite number."""
        return self.state == RunState.COMPLETED and self.score is not None and math.isfinite(self.score)


class SeedScore(NamedTuple):
    """Score of one seed: the mean of its runs, one for each fold, where it ran more than once."""

    seed: int | None
    score: float
    runs: Sequence[GroupRun]

    @property
    def spread(self) -> float:
        """Difference between the highest and the lowest run of a fold, or of all: 0 where they repeat one another."""
        by_fold: dict[int | None, list[float]] = defaultdict(list)
        for run in self.runs:
            by_fold[run.fold].append(run.score or 0.0)
        return max(max(scores) - min(scores) for scores in by_fold.values())


@dataclass(frozen=True)
class GroupRecord:
    """Runs that differ only in seed and fold: of one recipe and task, on the same data, with the same threads and code.

    Nothing of a group is left out. A seed that ran on folds of the data, or again, counts once in `n`, by the mean of
    its runs: folds are no seeds, the same bits are no new evidence, and runs that differ although nothing else does are
    told in `repeats`.
    """

    key: str
    """Digest of all that its runs have in common but the code, and after a dot that of the code, where it is known."""
    kind: str
    """Kind of its runs, or of the run whose trials they are: sweep, probe, distill, evaluate."""
    task: str
    metric: str
    """Score that ranks."""
    split: str
    """Split that the score is of."""
    runs: Sequence[GroupRun]
    """Every run of the group that was asked for, those that have not ended first, then the oldest."""
    data: str | None = None
    """Digest of the data that were scored; None where it was not recorded."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that its runs have in common, by dotted path."""
    code_version: str | None = None
    """Version of the code that ran; None where it was not recorded, or runs of several are taken together."""
    pooled_versions: Sequence[str | None] = ()
    """Versions of the code whose runs are taken together, where these are several."""
    origin: Origin | None = None
    """Earlier use of the score's data; None where it is not known what the model was chosen on."""
    refusal: str | None = None
    """Reason why its score is not shown, nor ranked; None where it may be."""

    @property
    def label(self) -> str:
        """Short form of the key, which `groups show` and `groups compare` take."""
        return group_label(self.key)

    @property
    def is_better_lower(self) -> bool:
        """Whether a smaller score is better."""
        return is_better_lower(self.metric)

    @cached_property
    def seeds(self) -> Sequence[SeedScore]:
        """Score of each seed that has one, by seed; of folds, a seed that lacks some has none."""
        runs: dict[int | None, list[GroupRun]] = defaultdict(list)
        for run in self._scored_runs:
            runs[run.seed].append(run)
        found = scores_of_seeds([(run.seed, run.fold, run.score or 0.0) for run in self._scored_runs], self.num_folds)
        return [SeedScore(seed, score, runs[seed]) for seed, score in found.items()]

    @cached_property
    def summary(self) -> Summary | None:
        """Statistics of the seeds' scores; None where no run completed with a score."""
        return summarize(self.scores) if self.seeds else None

    @property
    def scores(self) -> list[float]:
        """Score of each seed."""
        return [seed.score for seed in self.seeds]

    @cached_property
    def best(self) -> GroupRun | None:
        """Run with the best score, the newest of equal ones, one with a model before others."""
        return max(
            reversed(self._scored_runs),
            key=lambda run: (self._sign * (run.score or 0.0), run.model_folder is not None),
            default=None,
        )

    @property
    def best_score(self) -> float | None:
        """Best score of its runs, or where each is of one fold, of its seeds."""
        if self.num_folds == 1 or self.summary is None:
            return self.best.score if self.best else None
        return self.summary.lowest if self.is_better_lower else self.summary.highest

    @property
    def tested(self) -> GroupRun | None:
        """Run whose score on the test split stands for the group: the best on validation of those that may show one.

        Of equals it is the newest.
        """
        shown = [run for run in self._scored_runs if run.test_refusal is None]
        tested = [run for run in shown if run.test is not None and math.isfinite(run.test)]
        return max(reversed(tested), key=lambda run: self._sign * (run.score or 0.0), default=None)

    @property
    def _sign(self) -> float:
        return -1.0 if self.is_better_lower else 1.0

    @cached_property
    def _scored_runs(self) -> list[GroupRun]:
        return [] if self.refusal else [run for run in self.runs if run.is_scored]

    @property
    def num_folds(self) -> int:
        """Number of folds of the training data that each seed is validated on; 1 without any."""
        return int(self.parameters.get(FOLDS_PATH, 1))

    @property
    def repeats(self) -> Sequence[SeedScore]:
        """Seeds that ran more than once."""
        return [seed for seed in self.seeds if len(seed.runs) > self.num_folds]

    def num_in(self, *states: RunState) -> int:
        """Number of runs in one of these states, with whatever score."""
        return sum(run.state in states for run in self.runs)

    @property
    def num_unfinished(self) -> int:
        """Number of runs that have not ended, or were stopped."""
        return len(self.runs) - self.num_in(RunState.COMPLETED, RunState.FAILED, RunState.PRUNED)

    @property
    def num_collapsed(self) -> int:
        """Number of completed runs that never left the baseline; their scores count."""
        return sum(run.is_collapsed and run.state == RunState.COMPLETED for run in self.runs)

    @property
    def num_nan(self) -> int:
        """Number of completed runs whose score is no finite number; it counts nowhere."""
        return sum(run.state == RunState.COMPLETED and not run.is_scored for run in self.runs)


def scores_of_seeds(scores: Iterable[tuple[int | None, int | None, float]], num_folds: int) -> dict[int | None, float]:
    """Score of each seed, by seed: the mean over its folds of the mean of the runs on each.

    A seed that lacks a fold has none.

    Args:
        scores: seed, fold (None without folds), and score of each run.
    """
    runs: dict[int | None, dict[int | None, list[float]]] = defaultdict(lambda: defaultdict(list))
    for seed, fold, score in scores:
        runs[seed][fold].append(score)
    return {
        seed: _mean([_mean(of_fold) for of_fold in runs[seed].values()])
        for seed in sorted(runs, key=lambda seed: (seed is None, seed or 0))
        if len(runs[seed]) >= num_folds
    }


def _mean(scores: Sequence[float]) -> float:
    """Mean of scores, a single one as it is."""
    return scores[0] if len(scores) == 1 else sum(scores) / len(scores)
