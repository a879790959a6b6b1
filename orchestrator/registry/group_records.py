"""Groups of runs that differ only in seed and fold, as frozen values: what its runs came to and show."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from orchestrator.cells import setting_cell
from orchestrator.measurements import best_first, is_better_lower, is_direction_known
from orchestrator.registry.model_origins import Origin, origin_sentence
from orchestrator.registry.parameters import is_source_digest
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
    """Digest of the code in a group's key; empty where it is not known."""
    return key.partition(".")[2]


def group_label(key: str, num_digits: int = LABEL_DIGITS) -> str:
    """Short form of a group's key.

    >>> group_label("3f2a77c0b1d2e3f4.1a2b3c4d"), group_label("3f2a77c0b1d2e3f4")
    ('3f2a77c0.1a2b3c4d', '3f2a77c0')
    """
    recipe, dot, code = key.partition(".")
    return f"{recipe[:num_digits]}{dot}{code}"


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
    """Score of one seed: the mean over its folds of the mean of the runs on each."""

    seed: int | None
    score: float
    folds: Sequence[Sequence[float]]
    """Scores of its runs, those of each fold apart; those of all in one where its task has no folds."""

    @property
    def num_runs(self) -> int:
        return sum(map(len, self.folds))


@dataclass(frozen=True)
class GroupRecord:
    """Runs that differ only in seed and fold: of one recipe and task, on the same data, with the same threads and code.

    A seed that ran on folds of the data, or again, counts once, by the mean of its runs: folds are no seeds, and the
    same bits are no new evidence.
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
    """Those that have not ended first, then the oldest."""
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
        return group_label(self.key)

    @cached_property
    def seeds(self) -> Sequence[SeedScore]:
        """Score of each seed, by seed; a seed that lacks some of the folds has none."""
        runs: dict[int | None, dict[int | None, list[float]]] = defaultdict(lambda: defaultdict(list))
        for run in self._scored_runs:
            runs[run.seed][run.fold].append(run.score or 0.0)
        return [
            SeedScore(seed, _mean([_mean(scores) for scores in runs[seed].values()]), [*runs[seed].values()])
            for seed in sorted(runs, key=lambda seed: (seed is None, seed or 0))
            if len(runs[seed]) >= self.num_folds
        ]

    @cached_property
    def summary(self) -> Summary | None:
        """Statistics of the seeds' scores; None where no run completed with a score."""
        return summarize(self.scores) if self.seeds else None

    @property
    def scores(self) -> list[float]:
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
        return self.summary.lowest if is_better_lower(self.metric) else self.summary.highest

    @property
    def tested(self) -> GroupRun | None:
        """Run whose score on the test split stands for the group: the best on validation of those that may show one."""
        may_show = [run for run in self._scored_runs if run.test_refusal is None]
        tested = [run for run in may_show if run.test is not None and math.isfinite(run.test)]
        return max(reversed(tested), key=lambda run: self._sign * (run.score or 0.0), default=None)

    @property
    def _sign(self) -> float:
        return -1.0 if is_better_lower(self.metric) else 1.0

    @cached_property
    def _scored_runs(self) -> list[GroupRun]:
        return [] if self.refusal else [run for run in self.runs if run.is_scored]

    @property
    def num_folds(self) -> int:
        """Number of folds of the training data that each seed is validated on; 1 without any."""
        return int(self.parameters.get(FOLDS_PATH, 1))

    @cached_property
    def counts(self) -> dict[str, int]:
        """Numbers of runs by their end. Of completed ones: `collapsed`, whose scores count, and `nan`, which do not."""
        completed = [run for run in self.runs if run.state == RunState.COMPLETED]
        ended = (RunState.COMPLETED, RunState.FAILED, RunState.PRUNED)
        return {
            **{state.lower(): sum(run.state == state for run in self.runs) for state in ended},
            "collapsed": sum(run.is_collapsed for run in completed),
            "nan": sum(not run.is_scored for run in completed),
            "unfinished": sum(run.state not in ended for run in self.runs),
        }


def _mean(scores: Sequence[float]) -> float:
    return sum(scores) / len(scores)


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
    names = {"nan": "NaN", "unfinished": "not finished"}
    counts = {names.get(name, name): number for name, number in group.counts.items() if number and name != "completed"}
    if told := [f"{number} {name}" for name, number in counts.items()]:
        yield f"of {len(group.runs)} runs {', '.join(told)}"
    yield from _repeats(group)
    if alike:
        yield f"the same was run with other code, too: {listed(list(map(group_label, alike)))}"
    if group.pooled_versions:
        versions = [version or "not recorded" for version in group.pooled_versions]
        yield f"runs of {len(versions)} versions of the code taken together: {listed(versions)}"
    if not is_direction_known(group.metric):
        yield f"whether a larger {group.metric} is better is not known: it is ranked so"
    if not group.refusal and (group.kind == "evaluate" or "trained" in (group.origin or "")):
        yield origin_sentence(group.origin, "its model", "these data")


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first of some names as one text."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def _refused_tests(group: GroupRecord) -> Iterator[str]:
    """Yield why test scores of runs are refused, and of how many where others are shown."""
    num_tested = sum(run.test is not None for run in group.runs)
    for reason, number in Counter(run.test_refusal for run in group.runs if run.test_refusal).items():
        which = "test score" if number == num_tested else f"{number} of {num_tested} test scores"
        yield f"{which} refused: {reason}"


def _repeats(group: GroupRecord) -> Iterator[str]:
    """Yield how often seeds ran, those that came out otherwise first."""
    repeated = [seed for seed in group.seeds if seed.num_runs > group.num_folds]
    spreads = [max(max(scores) - min(scores) for scores in seed.folds) for seed in repeated]
    if others := [seed for seed, spread in zip(repeated, spreads, strict=True) if spread]:
        yield f"{_ran(others)}, scores differ by {max(spreads):.2g} although nothing else does"
    if same := [seed for seed, spread in zip(repeated, spreads, strict=True) if not spread]:
        yield f"{_ran(same)}, same score"


def _ran(seeds: Sequence[SeedScore]) -> str:
    if len(seeds) == 1:
        named = "run" if seeds[0].seed is None else f"seed {seeds[0].seed} run"
        return f"{named} {seeds[0].num_runs} times"
    return f"{len(seeds)} seeds run up to {max(seed.num_runs for seed in seeds)} times"


def choice_sentence(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Sentence on what the scores of shown trials and students were chosen on; None of evaluations alone."""
    rows = [row for row in rows if row["kind"] != "evaluate"]
    if not rows:
        return None
    sizes = sorted({row["num_ranked"] for row in rows})
    best = f"the best of {'up to ' if len(sizes) > 1 else ''}{sizes[-1]} groups"
    of_many = f"; the first place was chosen on them, too: {best}" if sizes[-1] > 1 else ""
    tested = "; no step was chosen on `test`" if any(row["test"] is not None for row in rows) else ""
    return f"scores are on the validation data on which the best step of each trial was chosen{of_many}{tested}"


def noise_sentence(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Sentence on shown rankings without intervals; None where every ranking has them."""
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
    texts = {path: setting_cell(value) if isinstance(value, float) else str(value) for path, value in values.items()}
    return " ".join(f"{path.removeprefix('recipe.')}={text}" for path, text in texts.items())


Row = Mapping[str, Any]
"""Record of a trial, as `registry.trials.table` has it."""


def scored_trials(rows: Sequence[Row], metric: str) -> list[Row]:
    """Completed trials with a finite score, the best first; of equal ones the one with the lower number."""
    column = f"metrics.{metric}"
    completed = [row for row in rows if row["state"] == RunState.COMPLETED and row.get(column) is not None]
    scored = [row for row in completed if math.isfinite(row[column])]
    return sorted(scored, key=lambda row: (best_first(metric, row[column]), row["number"]))


def choice_words(num_scored: int) -> str:
    """Words on what the score of a sweep was chosen from, empty of one trial alone."""
    return f"best of {num_scored} trials on the validation data" if num_scored > 1 else ""


def replicate_text(row: Row) -> str:
    """Seed of a trial in words, and its fold where it has one."""
    fold = row.get("params.fold")
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
