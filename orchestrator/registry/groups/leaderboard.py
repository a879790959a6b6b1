"""Leaderboard of a task: groups of runs ranked by what their seeds show, with all that they left unsaid.

Scores on different validation data, or by different scores, say nothing about one another: they are ranked apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from orchestrator.registry.groups.group_notes import group_notes, recipe_text
from orchestrator.registry.groups.group_records import GroupRecord
from orchestrator.registry.groups.groups import RANKED_KINDS, load_task_groups
from orchestrator.registry.groups.varying_paths import varying_paths
from orchestrator.registry.record_table import RecordTable
from orchestrator.registry.tables import ModelRow
from orchestrator.significance.many_comparisons import holm
from orchestrator.significance.summary import LEVEL
from orchestrator.significance.welch import means_p_value

Order = Literal["lower", "mean", "median", "best"]
"""Number that ranks groups: the end of the mean's interval that is the worse one, the mean, median, or best seed."""
ORDERS: tuple[Order, ...] = ("lower", "mean", "median", "best")

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
_OWN_COLUMNS = ("recipe.init_from", "recipe.size", "data.validation_digest", "data.test_digest", "split")
_NAMING = ("model", "teacher", "num_hidden_layers")
"""Parameters by which students and evaluated models are always known."""
_EXECUTION = "execution."
_CODE = "code"
SHOWN_DIGITS = 8
"""Digits of a digest of data that the leaderboard has."""


@dataclass(frozen=True)
class RankedGroup:
    """A group in its place."""

    group: GroupRecord
    rank: int
    num_ranked: int
    """Number of groups that it is ranked among, itself included."""
    tie: bool | None
    """Whether its mean cannot be told from that of the group above, in view of how many are ranked; None for the first,
    or where noise is not known."""
    recipe: Mapping[str, Any]
    """Values in which the groups of its task and kind differ, by path."""
    alike: Sequence[str]
    """Groups that differ from it in the version of the code alone, by key."""


def rank_groups(
    session: Session, task: str | None, by: Order, *, archived: bool, limit: int | None = None
) -> RecordTable:
    """Rank the groups, as `Registry.leaderboard_table` describes it."""
    ranked = ranked_groups(load_task_groups(session, task, archived=archived), by)
    labels = select(ModelRow.folder, ModelRow.name, ModelRow.version)
    models = {folder: f"{name}@{version}" for folder, name, version in session.connection().execute(labels)}
    records = [_record(one, models) for one in ranked if limit is None or one.rank <= limit]
    return RecordTable(LEADERBOARD_COLUMNS, records, dict.fromkeys(_NUMBERS, "float64"))


def ranked_groups(groups: Sequence[GroupRecord], by: Order = "lower") -> list[RankedGroup]:
    """Rank groups within each task, score, split and data; of several data the newest come first."""
    differing = _differing(groups)
    alike = _alike(groups)
    rankings: dict[tuple[str, str, str, str], list[GroupRecord]] = defaultdict(list)
    for group in groups:
        rankings[group.task, group.metric, group.split, group.data or ""].append(group)
    newest_first = sorted(rankings.items(), key=lambda item: max(map(_finished_at, item[1])), reverse=True)
    ranked = []
    for _, ranking in sorted(newest_first, key=lambda item: (*item[0][:2], item[0][2] != "validation")):
        ranking.sort(key=lambda group: place(group, by))
        for number, (group, tie) in enumerate(zip(ranking, _ties(ranking), strict=True)):
            others = [other for other in alike[_without_code(group)] if other != group.key]
            ranked.append(RankedGroup(group, number + 1, len(ranking), tie, differing[id(group)], others))
    return ranked


def _finished_at(group: GroupRecord) -> datetime:
    return max((run.finished_at for run in group.runs if run.finished_at), default=datetime.min.replace(tzinfo=UTC))


def place(group: GroupRecord, by: Order = "lower") -> tuple[Any, ...]:
    """Sort key: groups with a score, with what ranks them, by that; of equals one with a model that can be used."""
    if group.summary is None or group.best is None:
        return (2, 0.0, 0.0, True, group.key)
    is_known, value = _PLACES[by](group)
    sign = 1.0 if group.is_better_lower else -1.0
    return (int(not is_known), sign * value, sign * group.summary.mean, group.best.model_folder is None, group.best.id)


def _lower(group: GroupRecord) -> tuple[bool, float]:
    """The worse end of the interval; the mean of a group whose seeds show no noise."""
    assert group.summary is not None
    interval = group.summary.interval
    if interval is None:
        return False, group.summary.mean
    return True, interval.high if group.is_better_lower else interval.low


def _best(group: GroupRecord) -> tuple[bool, float]:
    assert group.best is not None
    return True, group.best.score or 0.0


_PLACES: Mapping[Order, Callable[[GroupRecord], tuple[bool, float]]] = {
    "lower": _lower,
    "mean": lambda group: (True, group.summary.mean if group.summary else 0.0),
    "median": lambda group: (True, group.summary.median if group.summary else 0.0),
    "best": _best,
}


def _ties(ranking: Sequence[GroupRecord]) -> list[bool | None]:
    """Whether each group cannot be told from the one above it: Welch's tests, corrected by Holm's method.

    Groups that share one true mean are to be called different in one ranking of twenty at most, however long it is.
    Uncorrected, neighbors in the order of intervals' ends differ in far more: of three seeds each, which now and then
    have a small spread by luck, in 0.20 of rankings of 10 groups and in 0.31 of 30 (4,000 rankings drawn from one
    normal distribution). Corrected, it is 0.02 and 0.01, and 0.04 of 3 groups: that neighbors are chosen by the scores
    themselves does not take the rate above 0.05, since groups that are next to each other are close.
    """
    p_values = [
        means_p_value(above.scores, group.scores) if above.seeds and group.seeds else None
        for above, group in pairwise(ranking)
    ]
    corrected = iter(holm([p_value for p_value in p_values if p_value is not None]))
    return [None, *(None if p_value is None else next(corrected) >= 1 - LEVEL for p_value in p_values)]


def _differing(groups: Sequence[GroupRecord]) -> dict[int, dict[str, Any]]:
    """Values in which a group differs from others of its task and kind, by the group's identity."""
    by_kind: dict[tuple[str, str], list[GroupRecord]] = defaultdict(list)
    for group in groups:
        by_kind[group.task, group.kind if group.kind in RANKED_KINDS else ""].append(group)
    found = {}
    for (_, kind), of_kind in by_kind.items():
        told = [_told(group) for group in of_kind]
        paths = sorted((varying_paths(told) | set(_NAMING if kind else ())) - set(_OWN_COLUMNS))
        for group, values in zip(of_kind, told, strict=True):
            found[id(group)] = {path: values[path] for path in paths if path in values}
        rows = [_row(group, found[id(group)]) for group in of_kind]
        num_alike = Counter(rows)
        for group, row in zip(of_kind, rows, strict=True):
            if num_alike[row] > 1:  # of runs of before all that tells groups apart was recorded
                found[id(group)]["group"] = group.label
    return found


def _row(group: GroupRecord, differing: Mapping[str, Any]) -> tuple[str, ...]:
    """All by which a person can tell a group from others of its task."""
    own = [repr(group.parameters.get(path)) for path in _OWN_COLUMNS]
    return group.metric, group.split, str(group.data), *own, recipe_text(differing)


def _told(group: GroupRecord) -> dict[str, Any]:
    code = {} if group.code_version is None else {_CODE: group.code_version}
    told = {path: value for path, value in group.parameters.items() if not path.startswith(_EXECUTION)}
    return told | code


def _without_code(group: GroupRecord) -> tuple[str | None, ...]:
    """All that a group's runs share but for the version of the code."""
    return group.task, group.metric, group.split, group.data, group.key.partition(".")[0]


def _alike(groups: Iterable[GroupRecord]) -> dict[tuple[str | None, ...], list[str]]:
    found: dict[tuple[str | None, ...], list[str]] = defaultdict(list)
    for group in groups:
        found[_without_code(group)].append(group.key)
    return found


def _record(one: RankedGroup, models: Mapping[str, str]) -> dict[str, Any]:
    """Values of the leaderboard's columns."""
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
        "recipe": recipe_text(one.recipe),
        "notes": "; ".join(group_notes(group, one.alike)),
        "origin": group.origin,
        "model": models.get(str(folder), folder),
        "run": best.id if best else group.runs[-1].id,
        "group": group.key,
    }
