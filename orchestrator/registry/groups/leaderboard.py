"""Leaderboard of a task: groups of runs in the order of their scores, with all that these leave unsaid.

Scores on different validation data, or by different scores, say nothing about one another: they are ranked apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from statistics import fmean
from typing import Any, Literal, NamedTuple

from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from orchestrator.measurements import score_bounds
from orchestrator.registry.collection_pause import paused_collection
from orchestrator.registry.engines.dialects import select_items
from orchestrator.registry.groups.group_notes import group_notes, recipe_text
from orchestrator.registry.groups.group_records import FOLDS_PATH, GroupRecord
from orchestrator.registry.groups.groups import RANKED_KINDS, load_groups, of_task
from orchestrator.registry.groups.split_data import taken_path
from orchestrator.registry.groups.varying_paths import varying_paths
from orchestrator.registry.record_table import RecordTable
from orchestrator.registry.tables import ModelRow, RunRow
from orchestrator.run_states import RunState
from orchestrator.significance.ranking import SeedNoise, may_be_best
from orchestrator.significance.summary import Interval

Order = Literal["mean", "lower", "median", "best"]
"""Number that ranks groups: the mean, the worse end of its interval, the median, or the best seed."""

LEADERBOARD_COLUMNS = (
    *("task", "rank", "num_ranked", "may_be_best", "metric", "split", "data"),
    *("mean", "sd", "low", "high", "n", "folds", "median", "worst", "best"),
    *("completed", "failed", "pruned", "collapsed", "nan", "unfinished", "baseline", "test", "test_run"),
    *("kind", "init_from", "size", "recipe", "notes", "origin", "model", "run", "group"),
)
_NUMBERS = ("mean", "sd", "low", "high", "median", "worst", "best", "baseline", "test")
_INIT_FROM, _SIZE = "recipe.init_from", "recipe.size"
_OWN_COLUMNS = (_INIT_FROM, _SIZE, taken_path("validation"), taken_path("test"), "split")
"""Parameters that the leaderboard has columns of their own for."""
_NAMING = ("model", "teacher", "num_hidden_layers")
"""Parameters by which students and evaluated models are always known."""
_EXECUTION = "execution."
SHOWN_DIGITS = 8
"""Digits of a digest of data that the leaderboard has."""
_MIN_TOLD_APART = 10
"""Places of each ranking that a recipe is told apart from at least, however few are asked for."""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class RankedGroup(NamedTuple):
    """A group in its place."""

    group: GroupRecord
    rank: int
    num_ranked: int
    """Number of groups that it is ranked among, itself included."""
    interval: Interval | None
    """Interval of its mean, moderated over these; None without a score, or where no group has seeds that differ."""
    may_be_best: bool | None
    """Whether it may have the best true mean of these; None as the interval."""


def ranked_groups(groups: Sequence[GroupRecord], by: Order = "mean") -> list[RankedGroup]:
    """Rank groups within each task, score, split and data; of several data the newest come first."""
    rankings: dict[tuple[str, str, str, str], list[GroupRecord]] = defaultdict(list)
    for group in groups:
        rankings[group.task, group.metric, group.split, group.data or ""].append(group)
    newest_first = sorted(
        rankings.items(),
        key=lambda item: max(group.runs[-1].finished_at or _LONG_AGO for group in item[1]),
        reverse=True,
    )
    apart = sorted(newest_first, key=lambda item: (*item[0][:2], item[0][2] != "validation"))
    return [ranked for _, ranking in apart for ranked in _ranked(ranking, by)]


def _ranked(groups: Sequence[GroupRecord], by: Order) -> list[RankedGroup]:
    """Rank groups of one ranking; those without a score come last."""
    falls, bounds = groups[0].is_better_lower, score_bounds(groups[0].metric)
    scored = [(group, group.summary) for group in groups if group.summary is not None]
    summaries = [summary for _, summary in scored]
    noise = SeedNoise.of(summaries)
    best = may_be_best(summaries, noise, is_better_lower=falls) if noise else [None] * len(scored)
    sign, placed = 1.0 if falls else -1.0, []
    for (group, summary), one_may in zip(scored, best, strict=True):
        interval = noise.interval(summary, bounds) if noise else None
        value = summary.median if by == "median" else summary.mean
        if by == "lower" and interval is not None:
            value = interval.high if falls else interval.low
        elif by == "best":
            value = _best_score(group) or 0.0
        lacks_model = group.best is None or group.best.model_folder is None  # of equals one that can be used
        placed.append(((sign * value, sign * summary.mean, lacks_model, group.key), group, interval, one_may))
    placed.sort(key=lambda one: one[0])
    unscored = sorted((group for group in groups if group.summary is None), key=lambda group: group.key)
    found = [*(one[1:] for one in placed), *((group, None, None) for group in unscored)]
    return [
        RankedGroup(group, rank, len(groups), interval, one_may)
        for rank, (group, interval, one_may) in enumerate(found, start=1)
    ]


def load_noise(session: Session, group: GroupRecord) -> SeedNoise | None:
    """Load the noise of seeds in the ranking of a group, as the leaderboard has it."""
    found = load_groups(session, and_(of_task(group.task, archived=False), RunRow.metric == group.metric))
    same = {one.key: one.summary for one in found if (one.split, one.data) == (group.split, group.data)}
    return SeedNoise.of([summary for summary in {**same, group.key: group.summary}.values() if summary is not None])


@paused_collection()
def rank_groups(
    session: Session,
    task: str | None,
    by: Order,
    *,
    archived: bool,
    across_code: bool = False,
    limit: int | None = None,
) -> RecordTable:
    """Rank the groups, as `Registry.leaderboard_table` describes it."""
    groups = load_groups(session, of_task(task, archived=archived), across_code=across_code)
    ranked = ranked_groups(groups, by)
    if limit is not None:
        ranked = [one for one in ranked if one.rank <= max(limit, _MIN_TOLD_APART)]
    texts = _recipe_texts([one.group for one in ranked])
    shown = [one for one in ranked if limit is None or one.rank <= limit]
    twins: dict[tuple[str | None, ...], list[str]] = defaultdict(list)
    for group in groups:
        twins[_without_code(group)].append(group.key)
    models = _load_labels(session, [one.group.best.model_folder for one in shown if one.group.best])
    records = []
    for one in shown:
        group = one.group
        alike = [key for key in twins[_without_code(group)] if key != group.key]
        folder = group.best.model_folder if group.best else None
        more = {"recipe": texts[id(group)], "notes": "; ".join(group_notes(group, alike))}
        records.append(_record(one) | more | {"model": models.get(str(folder), folder)})
    return RecordTable(LEADERBOARD_COLUMNS, records, dict.fromkeys(_NUMBERS, "float64"))


def _without_code(group: GroupRecord) -> tuple[str | None, ...]:
    """All that tells a group from others but the version of the code."""
    return group.task, group.metric, group.split, group.data, group.key.partition(".")[0]


def _load_labels(session: Session, folders: Iterable[str | None]) -> dict[str, str]:
    """Label of the registered model in each folder that has one."""
    is_shown = ModelRow.folder.in_(select_items(session, {folder for folder in folders if folder is not None}))
    labels = select(ModelRow.folder, ModelRow.name, ModelRow.version).where(is_shown)
    return {folder: f"{name}@{version}" for folder, name, version in session.connection().execute(labels)}


def _record(one: RankedGroup) -> dict[str, Any]:
    """Values of the leaderboard's columns that the group has by itself."""
    group, summary, best, tested = one.group, one.group.summary, one.group.best, one.group.tested
    return {
        "task": group.task,
        "rank": one.rank if summary else None,
        "num_ranked": one.num_ranked,
        "may_be_best": one.may_be_best,
        "metric": group.metric,
        "split": group.split,
        "data": (group.data or "")[:SHOWN_DIGITS] or None,
        "mean": summary.mean if summary else None,
        "sd": summary.sd if summary else None,
        "low": one.interval.low if one.interval else None,
        "high": one.interval.high if one.interval else None,
        "n": summary.n if summary else 0,
        "folds": group.parameters.get(FOLDS_PATH),
        "median": summary.median if summary else None,
        "worst": (summary.highest if group.is_better_lower else summary.lowest) if summary else None,
        "best": _best_score(group),
        "completed": group.num_in(RunState.COMPLETED),
        "failed": group.num_in(RunState.FAILED),
        "pruned": group.num_in(RunState.PRUNED),
        "collapsed": group.num_collapsed,
        "nan": group.num_nan,
        "unfinished": group.num_unfinished,
        "baseline": _baseline(group),
        "test": tested.test if tested else None,
        "test_run": tested.id if tested else None,
        "kind": group.kind,
        "init_from": group.parameters.get(_INIT_FROM),
        "size": group.parameters.get(_SIZE),
        "origin": group.origin,
        "run": best.id if best else group.runs[-1].id,
        "group": group.key,
    }


def _best_score(group: GroupRecord) -> float | None:
    """Best score of the group: of its runs, or where each is of one fold of its seeds."""
    if group.num_folds == 1 or group.summary is None:
        return group.best.score if group.best else None
    return group.summary.lowest if group.is_better_lower else group.summary.highest


def _baseline(group: GroupRecord) -> float | None:
    """Score of what needs no reading, beside the best run, or where each run is of one fold on average."""
    known = [run.baseline for run in group.runs if run.is_scored and run.baseline is not None]
    if group.num_folds > 1 and known:
        return fmean(known)
    return group.best.baseline if group.best else None


def _recipe_texts(groups: Sequence[GroupRecord]) -> dict[int, str]:
    """Values in which each group differs from others of its task and kind, by its `id`."""
    by_kind: dict[tuple[str, str | None], list[GroupRecord]] = defaultdict(list)
    for group in groups:
        by_kind[group.task, group.kind if group.kind in RANKED_KINDS else None].append(group)
    texts = {}
    for (_, kind), some in by_kind.items():
        told = {*varying_paths([group.parameters for group in some]), *(_NAMING if kind else ())} - {*_OWN_COLUMNS}
        paths = sorted(path for path in told if not path.startswith(_EXECUTION))
        shows_code = len({group.code_version for group in some}) > 1
        for group in some:
            values = {path: group.parameters[path] for path in paths if path in group.parameters}
            code = {"code": group.code_version} if shows_code and group.code_version is not None else {}
            texts[id(group)] = recipe_text(values | code)
    rows = {id(group): _shown(group, texts[id(group)]) for group in groups}
    num_alike = Counter(rows.values())
    for group in groups:
        if num_alike[rows[id(group)]] > 1:
            texts[id(group)] = f"{texts[id(group)]} group={group.label}".lstrip()
    return texts


def _shown(group: GroupRecord, recipe: str) -> tuple[str | None, ...]:
    """All columns that tell a group's recipe apart."""
    own = [repr(group.parameters.get(path)) for path in _OWN_COLUMNS]
    return group.task, group.kind, group.metric, group.split, group.data, *own, recipe
