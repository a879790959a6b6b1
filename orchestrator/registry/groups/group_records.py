"""Groups of runs that differ only in seed and fold, as frozen values: what its runs came to and show."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from orchestrator.cells import setting_cell
from orchestrator.measurements import is_better_lower, is_direction_known
from orchestrator.registry.groups.model_origins import Origin, origin_sentence
from orchestrator.run_states import RunState
from orchestrator.significance.summary import Summary, summarize

_CODE_DIGITS = 8
LABEL_DIGITS = 8
"""Digits of a group's digest that lists show, without those of the code."""


def group_key(recipe_digest: str, code_version: str | None) -> str:
    """Key of the group of runs with this digest of all but the code, and of this code."""
    if code_version is None:
        return recipe_digest
    return f"{recipe_digest}.{code_digest(code_version)}"


@lru_cache
def code_digest(code_version: str) -> str:
    """Digest of a version of the code, as the keys of groups have it."""
    return hashlib.sha256(code_version.encode()).hexdigest()[:_CODE_DIGITS]


def group_code(key: str) -> str:
    """Digest of the code in a group's key; empty where it is not known.

    >>> group_code("3f2a77c0b1d2e3f4.1a2b3c4d"), group_code("3f2a77c0b1d2e3f4")
    ('1a2b3c4d', '')
    """
    return key.partition(".")[2]


def group_label(key: str, num_digits: int = LABEL_DIGITS) -> str:
    """Short form of a group's key.

    >>> group_label("3f2a77c0b1d2e3f4.1a2b3c4d"), group_label("3f2a77c0b1d2e3f4")
    ('3f2a77c0.1a2b3c4d', '3f2a77c0')
    """
    recipe, dot, code = key.partition(".")
    return f"{recipe[:num_digits]}{dot}{code}"


def distinct_labels(keys: Sequence[str]) -> list[str]:
    """Short forms of groups' keys, all with as many more digits as tell the keys apart.

    >>> distinct_labels(["3f2a77c0b1d2e3f4", "3f2a77c0b2d2e3f4"])
    ['3f2a77c0b1', '3f2a77c0b2']
    """
    lengths = range(LABEL_DIGITS, max(LABEL_DIGITS, *map(len, keys)) + 1)
    forms = ([group_label(key, num_digits) for key in keys] for num_digits in lengths)
    return next((labels for labels in forms if len(set(labels)) == len(keys)), list(keys))


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


_LONGEST_LIST = 3


def group_notes(group: GroupRecord, alike: Sequence[str] = ()) -> Iterator[str]:
    """Yield what a reader of the group's mean has to know.

    Args:
        alike: keys of groups that differ from it in the version of the code alone.
    """
    if group.refusal:
        yield f"score refused: {group.refusal}"
    elif not group.seeds:
        yield "no run completed with a score"
    yield from _refused_tests(group)
    counts = {
        "failed": group.num_in(RunState.FAILED),
        "pruned": group.num_in(RunState.PRUNED),
        "collapsed": group.num_collapsed,
        "NaN": group.num_nan,
        "not finished": group.num_unfinished,
    }
    told = [f"{number} {name}" for name, number in counts.items() if number]
    if told:
        yield f"of {len(group.runs)} runs {', '.join(told)}"
    yield from _repeats(group)
    if alike:
        yield f"the same was run with other code, too: {_listed(list(map(group_label, alike)))}"
    if group.pooled_versions:
        versions = [version or "not recorded" for version in group.pooled_versions]
        yield f"runs of {len(versions)} versions of the code taken together: {_listed(versions)}"
    if not is_direction_known(group.metric):
        yield f"whether a larger {group.metric} is better is not known: it is ranked so"
    if not group.refusal and (group.kind == "evaluate" or "trained" in (group.origin or "")):
        yield origin_sentence(group.origin, "its model", "these data")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_LONGEST_LIST]) + (", …" if len(names) > _LONGEST_LIST else "")


def _refused_tests(group: GroupRecord) -> Iterator[str]:
    """Yield why test scores of runs are refused, and of how many where others are shown."""
    num_tested = sum(run.test is not None for run in group.runs)
    for reason, number in Counter(run.test_refusal for run in group.runs if run.test_refusal).items():
        which = "test score" if number == num_tested else f"{number} of {num_tested} test scores"
        yield f"{which} refused: {reason}"


def _repeats(group: GroupRecord) -> Iterator[str]:
    """Yield how often seeds ran, those that came out otherwise first."""
    others = [seed for seed in group.repeats if seed.spread]
    same = [seed for seed in group.repeats if not seed.spread]
    if others:
        widest = max(seed.spread for seed in others)
        yield f"{_ran(others)}, scores differ by {widest:.2g} although nothing else does"
    if same:
        yield f"{_ran(same)}, same score"


def _ran(seeds: Sequence[SeedScore]) -> str:
    if len(seeds) == 1:
        named = "run" if seeds[0].seed is None else f"seed {seeds[0].seed} run"
        return f"{named} {len(seeds[0].runs)} times"
    return f"{len(seeds)} seeds run up to {max(len(seed.runs) for seed in seeds)} times"


def choice_sentence(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Sentence on what scores of trials and students were chosen on; None of evaluations alone.

    Args:
        rows: records of the leaderboard that are shown.
    """
    rows = [row for row in rows if row["kind"] != "evaluate"]
    if not rows:
        return None
    sizes = sorted({row["num_ranked"] for row in rows})
    best = f"the best of {'up to ' if len(sizes) > 1 else ''}{sizes[-1]} groups"
    of_many = f"; the first place was chosen on them, too: {best}" if sizes[-1] > 1 else ""
    tested = "; no step was chosen on `test`" if any(row["test"] is not None for row in rows) else ""
    return f"scores are on the validation data on which the best step of each trial was chosen{of_many}{tested}"


def noise_sentence(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Sentence on rankings without intervals; None where every ranking has them.

    Args:
        rows: records of the leaderboard that are shown.
    """
    known = {
        (row["task"], row["metric"], row["split"], row["data"]): row["low"] is not None for row in rows if row["n"]
    }
    if all(known.values()):
        return None
    tasks = {task for (task, *_), is_known in known.items() if not is_known}
    where = "" if not any(known.values()) else f" of {', '.join(sorted(tasks))}"
    return (
        f"no group{where} has several seeds that differ: how much a seed matters is not known, so no interval is told"
    )


def recipe_text(values: Mapping[str, Any]) -> str:
    """Values by path as one text; fields of a recipe by their own names.

    >>> recipe_text({"recipe.epochs": 3.0, "task.max_train_examples": 100})
    'epochs=3 task.max_train_examples=100'
    """
    return " ".join(f"{path.removeprefix('recipe.')}={_setting(value)}" for path, value in values.items())


def _setting(value: Any) -> str:
    return setting_cell(value) if isinstance(value, float) else str(value)
