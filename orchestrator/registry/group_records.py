"""Groups of runs that differ only in seed and fold, as frozen values: loaded, and what their runs came to in words."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property
from statistics import fmean
from typing import Any, NamedTuple

import sqlalchemy as sql

from orchestrator.base.console import names_text
from orchestrator.base.errors import InputError, NotFoundError, SeveralRunsError
from orchestrator.base.metric_names import BASELINE, COLLAPSED, best_first, is_better_lower, is_direction_known
from orchestrator.base.run_states import RunState
from orchestrator.registry import model_origins, records
from orchestrator.registry.dialects import key_of_name
from orchestrator.registry.parameters import LABEL_DIGITS, START, group_code, group_key, group_label
from orchestrator.registry.tables import PARAMETERS, RUNS, SERIES
from orchestrator.significance.summary import Summary, summarize

SEED_PATH, FOLD_PATH, FOLDS_PATH = "recipe.seed", "recipe.fold", "task.split.folds"
"""Parameters with a run's seed, its fold, and the number of folds that each seed is validated on."""
_EVALUATION = "evaluate"
Row = Mapping[str, Any]
"""Record of a trial, as `registry.trials.table` has it."""


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

    A seed that ran on several folds, or again, counts once, by the mean of its runs.
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
    origin: model_origins.Origin | None = None
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

        def order(run: GroupRun) -> tuple[Any, bool]:
            return best_first(self.metric, run.score), run.model_folder is None

        return min(reversed(self._scored_runs), key=order, default=None)

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
        states = [run.state for run in self.runs]
        completed = [run for run in self.runs if run.state == RunState.COMPLETED]
        ended = {state.lower(): states.count(state) for state in (RunState.COMPLETED, RunState.FAILED, RunState.PRUNED)}
        return {
            **ended,
            COLLAPSED: sum(run.is_collapsed for run in completed),
            "nan": sum(not run.is_scored for run in completed),
            "unfinished": len(self.runs) - sum(ended.values()),
        }


def _mean(scores: Sequence[float]) -> float:
    return sum(scores) / len(scores)


@records.paused_collection()
def load_groups(
    connection: sql.Connection, *conditions: sql.ColumnElement[bool], archived: bool = True, across_code: bool = False
) -> list[GroupRecord]:
    """Load the groups of the runs for which conditions are true, with these runs alone.

    Runs of a task without a score that ranks are in no group. Runs that differ in the version of the code are one group
    where `across_code`.
    """
    if not archived:
        conditions = (*conditions, sql.not_(records.is_flagged("archived")))
    found: dict[tuple[Any, ...], list[sql.Row[Any]]] = defaultdict(list)
    for row in connection.execute(_ranked_runs().where(*conditions)).all():
        found[row[:4] if across_code else row[:5]].append(row)
    parameters = records.load_parameters_of(connection, [rows[-1].id for rows in found.values()])
    origins = model_origins.load_origins(connection, parameters)
    tested = [row.id for rows in found.values() for row in rows if row.test is not None or row.split == "test"]
    refusals = model_origins.load_test_refusals(connection, tested) if tested else {}
    groups = []
    for rows in found.values():
        last, is_evaluated = rows[-1], rows[-1].kind == _EVALUATION
        own = {path: value for path, value in parameters[last.id].items() if path not in (SEED_PATH, FOLD_PATH, START)}
        data = model_origins.SplitData.of(own, last.split)
        versions = tuple(dict.fromkeys(row.code_version for row in rows))
        refused = [refusals.get(row.id) for row in rows]
        runs = [(*row[6:], None if is_evaluated else why) for row, why in zip(rows, refused, strict=True)]
        groups.append(
            GroupRecord(
                key=group_key(last.group_key, last.code_version if len(versions) == 1 else None),
                **{name: getattr(last, name) for name in ("kind", "task", "metric", "split")},
                runs=list(map(GroupRun._make, runs)),
                data=data.taken,
                parameters=own,
                versions=versions,
                origin=model_origins.use_of(origins[last.id], data) or (None if is_evaluated else "chosen"),
                refusal=next(filter(None, refused), None) if is_evaluated else None,
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
    columns: tuple[Any, ...] = (  # the first five tell groups apart; those of a run stand in the order of `GroupRun`
        *(RUNS.c.task, RUNS.c.metric, RUNS.c.group_key, scored_split.label("split"), RUNS.c.code_version),
        sql.func.coalesce(parent.c.kind, RUNS.c.kind).label("kind"),
        RUNS.c.id,
        sql.func.coalesce(RUNS.c.seed, sql.cast(seed.c.number, sql.BigInteger)),
        sql.cast(fold.c.number, sql.BigInteger),
        *(RUNS.c.state, score.c.value, baseline.c.value, test.c.value.label("test")),
        sql.func.coalesce(collapsed.c.value, 0.0) != 0.0,
        *(RUNS.c.model_folder, RUNS.c.predictions_path, RUNS.c.finished_at, RUNS.c.parent_id),
    )
    rows: tuple[tuple[Any, ...], ...] = (
        (split, split.c.path == "split", is_alone, RUNS.c.kind == _EVALUATION),
        (seed, seed.c.path == SEED_PATH, is_alone),
        (fold, fold.c.path == FOLD_PATH),
        (score, score.c.name == key_of_name(scored_split + "." + RUNS.c.metric)),
        (baseline, baseline.c.name == key_of_name(sql.literal(f"validation.{BASELINE}") + RUNS.c.metric)),
        (test, test.c.name == key_of_name(sql.literal("test.") + RUNS.c.metric), RUNS.c.kind != _EVALUATION),
        (collapsed, collapsed.c.name == f"validation.{COLLAPSED}"),
    )
    statement = sql.select(*columns).outerjoin(parent, parent.c.key == RUNS.c.parent_id)
    for row, *its in rows:
        statement = statement.outerjoin(row, sql.and_(row.c.run_id == RUNS.c.key, *its))
    return statement.where(records.is_ranked()).order_by(RUNS.c.finished_at.is_not(None), RUNS.c.finished_at, RUNS.c.id)


def find_group(connection: sql.Connection, name: str, state: sql.ColumnElement[RunState]) -> GroupRecord:
    """Find the group that a name means, as `Registry.group` describes it.

    A whole digest, or one as lists show it, means that group, although longer ones begin with it, or a run is called
    so. A sweep stands for its own trials, where they are one group, without those of other sweeps that the group has.
    """
    digest, _, code = name.lower().partition(".")
    is_called = RUNS.c.group_key.between(digest, f"{digest}g")  # by the index; no digit comes after f
    groups = []
    if len(digest) >= records.MIN_ID_DIGITS:  # as the leaderboard shows it
        groups = load_groups(connection, is_called, archived=False) or load_groups(connection, is_called)
    groups = [group for group in groups if group_code(group.key).startswith(code)]
    shown = [group for group in groups if len(digest) >= LABEL_DIGITS and group_code(group.key) == code]
    if len({group.key for group in shown}) == 1:  # one whose code is unknown has no more to its name than others
        groups = shown
    named = records.newest_called(connection, name, state) if groups and not shown else None
    if named is not None:
        raise SeveralRunsError(f"{name!r} is the name of run {named.id}, and begins a group's digest; give that id.")
    if len(keys := sorted({group.key for group in groups})) > 1:
        begun = names_text(keys, records.MAX_CANDIDATES)
        raise SeveralRunsError(f"{name!r} begins the digests of several groups; give more of it: {begun}.")
    if not groups:
        if (run := records.find_run(connection, name, state)) is None:
            no_group = f"No group's id begins with {name!r}, and no run is called so"
            raise NotFoundError(f"{no_group}; groups: orchestrator leaderboard --all")
        groups = load_groups(connection, RUNS.c.parent_id == run.id) or load_groups(connection, RUNS.c.id == run.id)
        if not groups:
            raise InputError(f"run {run.id} ({run.kind}) has no score that ranks; name a sweep, trial or evaluation")
    if len(groups) > 1:
        told = [f"{one.label} ({one.metric}, run {one.runs[-1].id})" for one in groups]
        ids = names_text(told, records.MAX_CANDIDATES)
        raise InputError(f"{name} stands for {len(groups)} groups; name one by its id: {ids}")
    return groups[0]


def group_notes(group: GroupRecord, alike: Sequence[str] = ()) -> Iterator[str]:
    """Yield what a reader of the group's mean has to know; `alike` are keys of groups that differ in the code alone."""
    if group.refusal:
        yield f"score refused: {group.refusal}"
    num_tested = sum(run.test is not None for run in group.runs)
    for reason, number in Counter(run.test_refusal for run in group.runs if run.test_refusal).items():
        which = "test score" if number == num_tested else f"{number} of {num_tested} test scores"
        yield f"{which} refused: {reason}"
    names = {"nan": "NaN", "unfinished": "not finished"}
    told = [f"{num} {names.get(name, name)}" for name, num in group.counts.items() if num and name != "completed"]
    if told:
        yield told[0].removeprefix("1 ") if len(group.runs) == 1 else f"of {len(group.runs)} runs {', '.join(told)}"
    if repeated := [seed for seed in group.seeds if seed.num_runs > group.num_folds]:
        which = "run" if repeated[0].seed is None else f"seed {repeated[0].seed} run"
        which = which if len(repeated) == 1 else f"{len(repeated)} seeds run up to"
        widest, most = max(seed.spread for seed in repeated), max(seed.num_runs for seed in repeated)
        outcome = f"scores differ by up to {widest:.2g} although nothing else does" if widest else "same score"
        yield f"{which} {most} times, {outcome}"
    if alike and group.seeds:
        others = names_text(list(map(group_label, alike)), 3)
        yield f"the same was run with other code, too: {others} (pooled by --across-code)"
    if len(group.versions) > 1:
        versions = [version or "not recorded" for version in group.versions]
        yield f"runs of {len(versions)} versions of the code taken together: {names_text(versions, 3)}"
    if not is_direction_known(group.metric):
        yield f"whether a larger {group.metric} is better is not known: it is ranked so"
    if not group.refusal and (group.kind == _EVALUATION or "trained" in (group.origin or "")):
        yield model_origins.origin_sentence(group.origin, "its model", "these data")


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
