"""Leaderboard of a task: groups of runs ranked by what their seeds show, with all that they left unsaid."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from orchestrator.registry.engines.dialects import select_items
from orchestrator.registry.groups.group_notes import group_notes
from orchestrator.registry.groups.group_records import GroupRecord
from orchestrator.registry.groups.groups import load_task_groups
from orchestrator.registry.groups.ranking import Order, RankedGroup, ranked_groups
from orchestrator.registry.groups.recipe_texts import recipe_texts
from orchestrator.registry.record_table import RecordTable
from orchestrator.registry.tables import ModelRow

LEADERBOARD_COLUMNS = (
    "task",
    "rank",
    "num_ranked",
    "tie",
    "metric",
    "split",
    "data",
    *("mean", "sd", "low", "high", "n", "median", "worst", "best"),
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
SHOWN_DIGITS = 8
"""Digits of a digest of data that the leaderboard has."""


def rank_groups(
    session: Session, task: str | None, by: Order, *, archived: bool, limit: int | None = None
) -> RecordTable:
    """Rank the groups, as `Registry.leaderboard_table` describes it."""
    groups = load_task_groups(session, task, archived=archived)
    shown = [one for one in ranked_groups(groups, by) if limit is None or one.rank <= limit]
    recipes, alike = recipe_texts(groups), _alike(groups)
    models = _load_labels(session, [one.group.best.model_folder for one in shown if one.group.best])
    records = [_record(one, recipes[id(one.group)], alike[_without_code(one.group)], models) for one in shown]
    return RecordTable(LEADERBOARD_COLUMNS, records, dict.fromkeys(_NUMBERS, "float64"))


def _load_labels(session: Session, folders: Iterable[str | None]) -> dict[str, str]:
    """Label of the registered model in each folder that has one."""
    is_shown = ModelRow.folder.in_(select_items(session, {folder for folder in folders if folder is not None}))
    labels = select(ModelRow.folder, ModelRow.name, ModelRow.version).where(is_shown)
    return {folder: f"{name}@{version}" for folder, name, version in session.connection().execute(labels)}


def _alike(groups: Iterable[GroupRecord]) -> dict[tuple[str | None, ...], list[str]]:
    """Keys of the groups that differ in the version of the code alone, by all that they share."""
    found: dict[tuple[str | None, ...], list[str]] = defaultdict(list)
    for group in groups:
        found[_without_code(group)].append(group.key)
    return found


def _without_code(group: GroupRecord) -> tuple[str | None, ...]:
    return group.task, group.metric, group.split, group.data, group.key.partition(".")[0]


def _record(one: RankedGroup, recipe: str, alike: Sequence[str], models: Mapping[str, str]) -> dict[str, Any]:
    """Values of the leaderboard's columns.

    Args:
        recipe: the values in which the group differs from others.
        alike: keys of the groups that differ from it in the version of the code alone, its own among them.
        models: labels of registered models by folder.
    """
    group, summary, best = one.group, one.group.summary, one.group.best
    interval = summary.interval if summary else None
    tested = group.tested
    folder = best.model_folder if best else None
    falls = group.is_better_lower
    return {
        "task": group.task,
        "rank": one.rank,
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
        "median": summary.median if summary else None,
        "worst": (summary.highest if falls else summary.lowest) if summary else None,
        "best": best.score if best else None,
        "completed": group.num_completed,
        "failed": group.num_failed,
        "pruned": group.num_pruned,
        "collapsed": group.num_collapsed,
        "nan": group.num_nan,
        "unfinished": group.num_unfinished,
        "baseline": best.baseline if best else None,
        "test": tested.test if tested else None,
        "test_run": tested.id if tested else None,
        "kind": group.kind,
        "init_from": group.parameters.get("recipe.init_from"),
        "size": group.parameters.get("recipe.size"),
        "recipe": recipe,
        "notes": "; ".join(group_notes(group, [key for key in alike if key != group.key])),
        "origin": group.origin,
        "model": models.get(str(folder), folder),
        "run": best.id if best else group.runs[-1].id,
        "group": group.key,
    }
