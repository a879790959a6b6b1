"""Leaderboard of a task: groups of runs ranked by what their seeds show, with all that they left unsaid."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from sqlalchemy import ColumnElement, and_, select
from sqlalchemy.orm import Session

from orchestrator.registry.collection_pause import paused_collection
from orchestrator.registry.engines.dialects import select_items
from orchestrator.registry.groups.group_notes import group_notes
from orchestrator.registry.groups.group_records import GroupRecord
from orchestrator.registry.groups.group_settings import FOLDS_PATH, setting_values
from orchestrator.registry.groups.groups import load_groups, of_task
from orchestrator.registry.groups.ranking import Order, RankedGroup, ranked_groups
from orchestrator.registry.groups.recipe_texts import recipe_texts
from orchestrator.registry.groups.standings import Standing, load_standings, standing_of
from orchestrator.registry.record_table import RecordTable
from orchestrator.registry.tables import ModelRow, RunRow

LEADERBOARD_COLUMNS = (
    "task",
    "rank",
    "num_ranked",
    "tie",
    "metric",
    "split",
    "data",
    *("mean", "sd", "low", "high", "n", "folds", "median", "worst", "best"),
    *("completed", "failed", "pruned", "collapsed", "nan", "unfinished"),
    "baseline",
    "test",
    "test_run",
    "kind",
    "init_from",
    "size",
    "recipe",
    "notes",
    "origin",
    "model",
    "run",
    "group",
)
_NUMBERS = ("mean", "sd", "low", "high", "median", "worst", "best", "baseline", "test")
_INIT_FROM, _SIZE = "recipe.init_from", "recipe.size"
SHOWN_DIGITS = 8
"""Digits of a digest of data that the leaderboard has."""


@paused_collection()
def rank_groups(
    session: Session, task: str | None, by: Order, *, archived: bool, limit: int | None = None
) -> RecordTable:
    """Rank the groups, as `Registry.leaderboard_table` describes it."""
    asked = of_task(task, archived=archived)
    whole = load_groups(session, asked) if limit is None else None
    standings = load_standings(session, asked) if whole is None else [standing_of(group) for group in whole]
    ranked = [one for one in ranked_groups(standings, by) if limit is None or one.rank <= limit]
    shown = _load_shown(session, asked, [one.group for one in ranked]) if whole is None else whole
    groups = {_identity(group): group for group in shown}
    texts, alike = recipe_texts(standings), _alike(standings)
    models = _load_labels(session, [group.best.model_folder for group in shown if group.best])
    records = [
        _record(one, groups[identity], texts[id(one.group)], alike[_without_code(one.group)], models)
        for one in ranked
        if (identity := _identity(one.group)) in groups  # its runs may have been removed meanwhile
    ]
    return RecordTable(LEADERBOARD_COLUMNS, records, dict.fromkeys(_NUMBERS, "float64"))


def _load_shown(session: Session, asked: ColumnElement[bool], shown: Iterable[Standing]) -> list[GroupRecord]:
    """Load in full the groups whose standings are shown, with the runs that are asked for."""
    digests = {standing.digest for standing in shown}
    return load_groups(session, and_(asked, RunRow.group_key.in_(select_items(session, digests))))


def _identity(group: GroupRecord | Standing) -> tuple[str | None, ...]:
    return group.task, group.metric, group.split, group.data, group.key


def _without_code(group: Standing) -> tuple[str | None, ...]:
    return group.task, group.metric, group.split, group.data, group.digest


def _load_labels(session: Session, folders: Iterable[str | None]) -> dict[str, str]:
    """Label of the registered model in each folder that has one."""
    is_shown = ModelRow.folder.in_(select_items(session, {folder for folder in folders if folder is not None}))
    labels = select(ModelRow.folder, ModelRow.name, ModelRow.version).where(is_shown)
    return {folder: f"{name}@{version}" for folder, name, version in session.connection().execute(labels)}


def _alike(groups: Iterable[Standing]) -> dict[tuple[str | None, ...], list[str]]:
    """Keys of the groups that differ in the version of the code alone, by all that they share."""
    found: dict[tuple[str | None, ...], list[str]] = defaultdict(list)
    for group in groups:
        found[_without_code(group)].append(group.key)
    return found


def _record(
    one: RankedGroup[Standing], group: GroupRecord, recipe: str, alike: Sequence[str], models: Mapping[str, str]
) -> dict[str, Any]:
    """Values of the leaderboard's columns.

    Args:
        one: place of the group's standing.
        recipe: the values in which the group differs from others.
        alike: keys of the groups that differ from it in the version of the code alone, its own among them.
        models: labels of registered models by folder.
    """
    summary, best = group.summary, group.best
    interval = summary.interval if summary else None
    tested = group.tested
    folder = best.model_folder if best else None
    falls = group.is_better_lower
    settings = setting_values(group.settings, (_INIT_FROM, _SIZE, FOLDS_PATH))
    return {
        "task": group.task,
        "rank": one.rank if summary else None,
        "num_ranked": one.num_ranked,
        "tie": one.tie,
        "metric": group.metric,
        "split": group.split,
        "data": (group.data or "")[:SHOWN_DIGITS] or None,
        "mean": summary.mean if summary else None,
        "sd": summary.sd if summary else None,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "n": summary.n if summary else 0,
        "folds": settings.get(FOLDS_PATH),
        "median": summary.median if summary else None,
        "worst": (summary.highest if falls else summary.lowest) if summary else None,
        "best": _best_score(group),
        "completed": group.num_completed,
        "failed": group.num_failed,
        "pruned": group.num_pruned,
        "collapsed": group.num_collapsed,
        "nan": group.num_nan,
        "unfinished": group.num_unfinished,
        "baseline": _baseline(group),
        "test": tested.test if tested else None,
        "test_run": tested.id if tested else None,
        "kind": group.kind,
        "init_from": settings.get(_INIT_FROM),
        "size": settings.get(_SIZE),
        "recipe": recipe,
        "notes": "; ".join(group_notes(group, [key for key in alike if key != group.key])),
        "origin": group.origin,
        "model": models.get(str(folder), folder),
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
