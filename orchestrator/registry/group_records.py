"""Groups of runs that differ only in seed and fold, as frozen values: loaded, and what their runs came to in words."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property, lru_cache
from statistics import fmean
from typing import Any, NamedTuple

import sqlalchemy as sql

from orchestrator.cells import setting_cell
from orchestrator.measurements import best_first, is_better_lower, is_direction_known
from orchestrator.registry.dialects import key_of_name
from orchestrator.registry.model_origins import (
    Origin,
    SplitData,
    load_origins,
    load_test_refusals,
    origin_sentence,
    use_of,
)
from orchestrator.registry.parameters import is_source_digest
from orchestrator.registry.records import is_flagged, load_parameters_of, paused_collection
from orchestrator.registry.tables import PARAMETERS, RUNS, SERIES
from orchestrator.run_states import RunState
from orchestrator.significance.summary import Summary, summarize

LABEL_DIGITS = 8
"""Digits of a group's digest that lists show, without those of the code."""
SEED_PATH, FOLD_PATH, FOLDS_PATH = "recipe.seed", "recipe.fold", "task.split.folds"
"""Parameters with a run's seed, its fold, and the number of folds that each seed is validated on."""
_EVALUATION = "evaluate"
RANKED_KINDS = ("distill", _EVALUATION)
"""Kinds of runs without trials whose own scores are ranked."""
_NUM_GROUP_COLUMNS = 5
"""Number of the columns that tell groups apart, the first ones of a run's row; the last one is the code's version."""
Row = Mapping[str, Any]
"""Record of a trial, as `registry.trials.table` has it."""


def group_key(recipe_digest: str, code_version: str | None) -> str:
    """Key of the group of runs with this digest of all but the code, and of this code."""
    return recipe_digest if code_version is None else f"{recipe_digest}.{code_digest(code_version)}"


@lru_cache
def code_digest(code_version: str) -> str:
    """Digest of a version of the code, as the keys of groups have it."""
    return hashlib.sha256(code_version.encode()).hexdigest()[:8]


def group_code(key: str) -> str:
    """Digest of the code in a group's key; empty where it is not known."""
    return key.partition(".")[2]


def group_label(key: str) -> str:
    """Short form of a group's key.

    >>> group_label("3f2a77c0b1d2e3f4.1a2b3c4d"), group_label("3f2a77c0b1d2e3f4")
    ('3f2a77c0.1a2b3c4d', '3f2a77c0')
    """
    recipe, dot, code = key.partition(".")
    return f"{recipe[:LABEL_DIGITS]}{dot}{code}"


class GroupRun(NamedTuple):
    """One run or trial of a group."""

    id: str
    seed: int | None
    fold: int | None
    """Fold that it was validated on, where its task has folds."""
    state: RunState
    score: float | None
    """Score that ranks; None where there is none, or it is NaN."""
    baseline: float | None = None
    """Score of what needs no reading of the text."""
    test: float | None = None
    """Score on the test split, of one that was scored there too."""
    is_collapsed: bool = False
    """Whether it never left the baseline."""
    model_folder: str | None = None
    predictions_path: str | None = None
    finished_at: datetime | None = None
    parent_id: str | None = None
    test_refusal: str | None = None
    """Reason why its score on the test split is not shown; None where it may be."""

    @property
    def is_scored(self) -> bool:
        """Whether it completed with a score that is a finite number."""
        return self.state == RunState.COMPLETED and self.score is not None and math.isfinite(self.score)


class SeedScore(NamedTuple):
    """Score of one seed: the mean over its folds of the mean of the runs on each."""

    seed: int | None
    score: float
    num_runs: int
    spread: float
    """Largest difference between scores of runs on the same fold."""


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
    versions: Sequence[str | None] = (None,)
    """Versions of the code that ran, several where their runs are taken together; None of one that was not recorded."""
    origin: Origin | None = None
    """Earlier use of the score's data; None where it is not known what the model was chosen on."""
    refusal: str | None = None
    """Reason why its score is not shown, nor ranked; None where it may be."""

    @property
    def label(self) -> str:
        return group_label(self.key)

    @property
    def code_version(self) -> str | None:
        """Version of the code that ran; None where it was not recorded, or runs of several are taken together."""
        return self.versions[0] if len(self.versions) == 1 else None

    @property
    def num_folds(self) -> int:
        """Number of folds of the training data that each seed is validated on; 1 without any."""
        return int(self.parameters.get(FOLDS_PATH, 1))

    @cached_property
    def _scored_runs(self) -> list[GroupRun]:
        return [] if self.refusal else [run for run in self.runs if run.is_scored]

    @cached_property
    def seeds(self) -> Sequence[SeedScore]:
        """Score of each seed, by seed; a seed that lacks some of the folds has none."""
        runs: dict[int | None, dict[int | None, list[float]]] = defaultdict(lambda: defaultdict(list))
        for run in self._scored_runs:
            runs[run.seed][run.fold].append(run.score or 0.0)
        seeds = []
        for seed in sorted(runs, key=lambda seed: (seed is None, seed or 0)):
            folds = list(runs[seed].values())
            if len(folds) >= self.num_folds:
                spread = max(max(scores) - min(scores) for scores in folds)
                seeds.append(SeedScore(seed, _mean(list(map(_mean, folds))), sum(map(len, folds)), spread))
        return seeds

    @property
    def scores(self) -> list[float]:
        return [seed.score for seed in self.seeds]

    @cached_property
    def summary(self) -> Summary | None:
        """Statistics of the seeds' scores; None where no run completed with a score."""
        return summarize(self.scores) if self.seeds else None

    @cached_property
    def best(self) -> GroupRun | None:
        """Run with the best score, of equal ones one with a model before others, then the newest."""
        return min(
            reversed(self._scored_runs),
            key=lambda run: (best_first(self.metric, run.score), run.model_folder is None),
            default=None,
        )

    @property
    def best_score(self) -> float | None:
        """Best score of its runs, or where each is of one fold, of its seeds."""
        if self.num_folds == 1 or self.summary is None:
            return self.best.score if self.best else None
        return self.summary.lowest if is_better_lower(self.metric) else self.summary.highest

    @property
    def baseline(self) -> float | None:
        """Score of what needs no reading, beside the best run, or where each run is of one fold on average."""
        known = [run.baseline for run in self.runs if run.is_scored and run.baseline is not None]
        if self.num_folds > 1 and known:
            return fmean(known)
        return self.best.baseline if self.best else None

    @property
    def tested(self) -> GroupRun | None:
        """Run whose score on the test split stands for the group: the best on validation of those that may show one."""
        may_show = [run for run in self._scored_runs if run.test is not None and run.test_refusal is None]
        tested = [run for run in may_show if math.isfinite(run.test or 0.0)]
        return min(reversed(tested), key=lambda run: best_first(self.metric, run.score), default=None)

    @cached_property
    def counts(self) -> dict[str, int]:
        """Numbers of runs by their end. Of completed ones: `collapsed`, whose scores count, and `nan`, which do not."""
        states = Counter(run.state for run in self.runs)
        completed = [run for run in self.runs if run.state == RunState.COMPLETED]
        ended = {state.lower(): states[state] for state in (RunState.COMPLETED, RunState.FAILED, RunState.PRUNED)}
        return {
            **ended,
            "collapsed": sum(run.is_collapsed for run in completed),
            "nan": sum(not run.is_scored for run in completed),
            "unfinished": len(self.runs) - sum(ended.values()),
        }


def _mean(scores: Sequence[float]) -> float:
    return sum(scores) / len(scores)


def is_ranked() -> sql.ColumnElement[bool]:
    """Condition for runs that belong to a group."""
    has_score = sql.and_(RUNS.c.task.is_not(None), RUNS.c.metric.is_not(None))
    return sql.and_(has_score, sql.or_(RUNS.c.parent_id.is_not(None), RUNS.c.kind.in_(RANKED_KINDS)))


@paused_collection()
def load_groups(
    connection: sql.Connection, *conditions: sql.ColumnElement[bool], archived: bool = True, across_code: bool = False
) -> list[GroupRecord]:
    """Load the groups of the runs for which conditions are true, with these runs alone.

    A group's runs come from any number of sweeps. Runs of a task without a score that ranks are in no group.

    Args:
        archived: whether archived runs and their trials are among them.
        across_code: whether runs that differ in the version of the code are one group.
    """
    if not archived:
        conditions = (*conditions, sql.not_(is_flagged("archived")))
    found: dict[tuple[Any, ...], list[sql.Row[Any]]] = defaultdict(list)
    for row in connection.execute(_ranked_runs().where(*conditions)).all():
        found[row[: _NUM_GROUP_COLUMNS - across_code]].append(row)
    parameters = load_parameters_of(connection, [rows[-1].id for rows in found.values()])
    origins = load_origins(connection, parameters)
    tested = [row.id for rows in found.values() for row in rows if row.test is not None or row.split == "test"]
    refusals = load_test_refusals(connection, tested) if tested else {}
    groups = []
    for rows in found.values():
        last, is_evaluated = rows[-1], rows[-1].kind == _EVALUATION
        own = {path: value for path, value in parameters[last.id].items() if path not in (SEED_PATH, FOLD_PATH)}
        data = SplitData.of(own, last.split)
        versions = tuple(dict.fromkeys(row.code_version for row in rows))
        code = last.code_version if len(versions) == 1 else None
        refused = {} if is_evaluated else refusals
        groups.append(
            GroupRecord(
                key=group_key(last.group_key, code),
                kind=last.kind,
                task=last.task,
                metric=last.metric,
                split=last.split,
                runs=[GroupRun._make((*row[_NUM_GROUP_COLUMNS + 1 :], refused.get(row.id))) for row in rows],
                data=data.taken,
                parameters=own,
                versions=versions,
                origin=use_of(origins[last.id], data) or (None if is_evaluated else "chosen"),
                refusal=next((refusals[row.id] for row in rows if is_evaluated and row.id in refusals), None),
            )
        )
    return groups


@cache
def _ranked_runs() -> sql.Select[Any]:
    """Statement that selects the runs of groups with their scores: unfinished ones first, then the oldest."""
    parent = RUNS.alias()
    split, seed, fold = (PARAMETERS.alias() for _ in range(3))
    score, baseline, test, collapsed = (SERIES.alias() for _ in range(4))
    scored_split, is_alone = sql.func.coalesce(split.c.text, "validation"), RUNS.c.parent_id.is_(None)
    of_group = RUNS.c.task, RUNS.c.metric, RUNS.c.group_key, scored_split.label("split"), RUNS.c.code_version
    of_run: tuple[Any, ...] = (  # in the order of `GroupRun`
        RUNS.c.id,
        sql.func.coalesce(RUNS.c.seed, sql.cast(seed.c.number, sql.BigInteger)),
        sql.cast(fold.c.number, sql.BigInteger),
        RUNS.c.state,
        score.c.value,
        baseline.c.value,
        test.c.value.label("test"),
        sql.func.coalesce(collapsed.c.value, 0.0) != 0.0,
        RUNS.c.model_folder,
        RUNS.c.predictions_path,
        RUNS.c.finished_at,
        RUNS.c.parent_id,
    )
    kind = sql.func.coalesce(parent.c.kind, RUNS.c.kind).label("kind")
    statement = sql.select(*of_group, kind, *of_run).outerjoin(parent, parent.c.key == RUNS.c.parent_id)
    rows: tuple[tuple[Any, ...], ...] = (
        (split, split.c.path == "split", is_alone, RUNS.c.kind == _EVALUATION),
        (seed, seed.c.path == SEED_PATH, is_alone),
        (fold, fold.c.path == FOLD_PATH),
        (score, score.c.name == key_of_name(scored_split + "." + RUNS.c.metric)),
        (baseline, baseline.c.name == key_of_name(sql.literal("validation.baseline.") + RUNS.c.metric)),
        (test, test.c.name == key_of_name(sql.literal("test.") + RUNS.c.metric), RUNS.c.kind != _EVALUATION),
        (collapsed, collapsed.c.name == "validation.collapsed"),
    )
    for row, *its in rows:
        statement = statement.outerjoin(row, sql.and_(row.c.run_id == RUNS.c.key, *its))
    return statement.where(is_ranked()).order_by(RUNS.c.finished_at.is_not(None), RUNS.c.finished_at, RUNS.c.id)


def group_notes(group: GroupRecord, alike: Sequence[str] = ()) -> Iterator[str]:
    """Yield what a reader of the group's mean has to know.

    Args:
        alike: keys of groups that differ from it in the version of the code alone.
    """
    if group.refusal:
        yield f"score refused: {group.refusal}"
    elif not group.seeds:
        yield "no run completed with a score"
    num_tested = sum(run.test is not None for run in group.runs)
    for reason, number in Counter(run.test_refusal for run in group.runs if run.test_refusal).items():
        which = "test score" if number == num_tested else f"{number} of {num_tested} test scores"
        yield f"{which} refused: {reason}"
    names = {"nan": "NaN", "unfinished": "not finished"}
    told = [f"{num} {names.get(name, name)}" for name, num in group.counts.items() if num and name != "completed"]
    if told:
        yield f"of {len(group.runs)} runs {', '.join(told)}"
    if repeated := [seed for seed in group.seeds if seed.num_runs > group.num_folds]:
        which = "run" if repeated[0].seed is None else f"seed {repeated[0].seed} run"
        which = which if len(repeated) == 1 else f"{len(repeated)} seeds run up to"
        widest, most = max(seed.spread for seed in repeated), max(seed.num_runs for seed in repeated)
        outcome = f"scores differ by up to {widest:.2g} although nothing else does" if widest else "same score"
        yield f"{which} {most} times, {outcome}"
    if alike:
        yield f"the same was run with other code, too: {listed(list(map(group_label, alike)))}"
    if len(group.versions) > 1:
        versions = [version or "not recorded" for version in group.versions]
        yield f"runs of {len(versions)} versions of the code taken together: {listed(versions)}"
    if not is_direction_known(group.metric):
        yield f"whether a larger {group.metric} is better is not known: it is ranked so"
    if not group.refusal and (group.kind == "evaluate" or "trained" in (group.origin or "")):
        yield origin_sentence(group.origin, "its model", "these data")


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first of some names as one text."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def ranking_sentences(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what shown places of the leaderboard leave unsaid: whose noise is unknown, what scores were chosen on."""
    scored = [row for row in rows if row["n"]]
    if unknown := {row["task"] for row in scored if row["low"] is None}:
        where = f" of {', '.join(sorted(unknown))}" if any(row["low"] is not None for row in scored) else ""
        matters = "how much a seed matters is not known, so no interval is told"
        yield f"no group{where} has several seeds that differ: {matters}"
    chosen = [row for row in rows if row["kind"] != "evaluate"]
    if sizes := sorted({row["num_ranked"] for row in chosen}):
        best = f"the best of {'up to ' if len(sizes) > 1 else ''}{sizes[-1]} groups"
        of_many = f"; the first place was chosen on them, too: {best}" if sizes[-1] > 1 else ""
        tested = "; no step was chosen on `test`" if any(row["test"] is not None for row in chosen) else ""
        yield f"scores are on the validation data on which the best step of each trial was chosen{of_many}{tested}"


def recipe_text(values: Mapping[str, Any]) -> str:
    """Values by path as one text; fields of a recipe by their own names.

    >>> recipe_text({"recipe.epochs": 3.0, "task.max_train_examples": 100})
    'epochs=3 task.max_train_examples=100'
    """
    texts = {path: setting_cell(value) if isinstance(value, float) else str(value) for path, value in values.items()}
    return " ".join(f"{path.removeprefix('recipe.')}={text}" for path, text in texts.items())


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
