"""Leaderboard of a task: groups of runs in the order of their scores, with all that these leave unsaid.

Scores on different validation data, or by different scores, say nothing about one another: they are ranked apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from orchestrator.base.formatting import setting_cell
from orchestrator.base.metric_names import BASELINE, COLLAPSED, is_better_lower, score_bounds
from orchestrator.registry.dialects import select_items
from orchestrator.registry.group_records import (
    FOLDS_PATH,
    GroupRecord,
    GroupRun,
    Row,
    group_notes,
    load_groups,
    scored_trials,
)
from orchestrator.registry.parameters import varying_paths
from orchestrator.registry.records import RANKED_KINDS, RecordTable, paused_collection
from orchestrator.registry.roll_up import Numbers, Ranking, joined_key, load_rankings, numbers_of
from orchestrator.registry.tables import MODELS, RUNS
from orchestrator.significance.ranking import SeedNoise, SeedStatistics
from orchestrator.significance.summary import Summary

Order = Literal["lower", "mean", "median", "best"]
"""Number that ranks groups: the worse end of the mean's interval, the mean, the median, or the best seed."""

LEADERBOARD_COLUMNS = (
    *("task", "rank", "num_ranked", "num_scored", "may_be_best", "metric", "split", "data"),
    *("mean", "sd", "low", "high", "n", "folds", "median", "worst", "best"),
    *("completed", "failed", "pruned", COLLAPSED, "nan", "unfinished", "baseline", "test", "test_run"),
    *("kind", "init_from", "size", "recipe", "notes", "origin", "model", "run", "group"),
)
_NUMBERS = ("mean", "sd", "low", "high", "median", "worst", "best", "baseline", "test")
_INIT_FROM, _SIZE = "recipe.init_from", "recipe.size"
_OWN_COLUMNS = {_INIT_FROM, _SIZE, "data.validation_digest", "data.test_digest", "split"}
"""Parameters that the leaderboard has columns of their own for."""
_NAMING = ("model", "teacher", "num_hidden_layers")
"""Parameters by which students and evaluated models are always known."""
SHOWN_DIGITS = 8
"""Digits of a digest of data that the leaderboard has."""
_MIN_TOLD_APART = 10
"""Places of each ranking that a recipe is told apart from at least, however few are asked for."""


def noise_of(numbers: Numbers) -> SeedNoise | None:
    """Noise of the seeds of a ranking's groups; None where no group has seeds that differ.

    Of groups that differ in the version of the code alone one counts: mostly they have the same seeds, whose scores
    are no more evidence the second time.
    """
    most_told_first = numbers[np.lexsort((-numbers["n"], numbers["sd"] == 0))]
    told = most_told_first[np.unique(most_told_first["key"], return_index=True)[1]]
    return SeedNoise.of_columns(told["n"], told["mean"], told["sd"])


def noise_among(groups: Sequence[GroupRecord]) -> SeedNoise | None:
    """Noise of the seeds of groups that are ranked together, as `noise_of`."""
    return noise_of(numbers_of(groups))


def in_order(
    numbers: Numbers, metric: str, by: Order, noise: SeedNoise | None, limit: int | None = None
) -> NDArray[np.intp]:
    """Places of the first groups of a ranking in an array of their numbers, the best first; without a score last."""
    sign = 1.0 if is_better_lower(metric) else -1.0
    value = numbers["mean" if by == "lower" else by]
    if by == "lower" and noise is not None:
        least, most = score_bounds(metric) or (-np.inf, np.inf)
        end = value + sign * noise.half_widths(np.maximum(numbers["n"], 1), value, numbers["sd"])
        value = np.where((least <= value) & (value <= most), np.clip(end, least, most), end)
    value = np.where(numbers["n"] > 0, sign * value, np.inf)
    first = np.arange(len(numbers))
    if limit is not None and limit < len(numbers):  # few of many need to be sorted
        first = np.flatnonzero(value <= np.partition(value, limit)[limit])
    few, value = numbers[first], value[first]
    # Of equals, one that can be used comes first.
    means = np.where(few["n"] > 0, sign * few["mean"], 0.0)
    return first[np.lexsort((few["code"], few["key"], -few["has_model"], means, value))][:limit]


def trial_groups(rows: Sequence[Row], metric: str) -> list[GroupRecord]:
    """The scored trials of a sweep, by group, in the order of the leaderboard; their parameters are those of the rows.

    A group none of whose seeds has all of its folds is left out.
    """
    of_group: dict[str, list[GroupRun]] = defaultdict(list)
    parameters: dict[str, dict[str, Any]] = {}
    for place, row in enumerate(scored_trials(rows, metric)):
        folder = None if place else ""  # a sweep keeps the best trial's model: of equals its group comes first
        score, baseline = (row.get(f"metrics.{name}{metric}") for name in ("", BASELINE))
        place_of = row["id"], row["seed"], row.get("params.fold"), row["state"]
        of_group[row["group"]].append(GroupRun(*place_of, score, baseline, model_folder=folder))
        own = {name: value for name, value in row.items() if name.startswith("params.")}
        parameters.setdefault(row["group"], own | {FOLDS_PATH: row.get("params.folds") or 1})
    groups = [
        GroupRecord(key, "sweep", "", metric, "validation", runs, parameters=parameters[key])
        for key, runs in of_group.items()
    ]
    scored = [group for group in groups if group.seeds]
    numbers = numbers_of(scored)
    return [scored[place] for place in in_order(numbers, metric, "lower", noise_of(numbers))]


def load_noise(connection: Connection, group: GroupRecord) -> SeedNoise | None:
    """Load the noise of seeds in the ranking of a group, as the leaderboard has it."""
    numbers = load_rankings(connection, group.task).get(Ranking.of(group), numbers_of([]))
    own = numbers_of([group])
    is_other = (numbers["key"] != own["key"]) | (numbers["code"] != own["code"])
    return noise_of(np.concatenate([numbers[is_other], own]))


@paused_collection()
def rank_groups(
    connection: Connection, task: str | None, by: Order, *, archived: bool, across_code: bool, limit: int | None
) -> RecordTable:
    """Rank the groups, as `Registry.leaderboard` describes it."""
    rankings = load_rankings(connection, task, archived=archived, across_code=across_code)
    order = {one: (*one[:2], one.split != "validation", -numbers["newest"].max()) for one, numbers in rankings.items()}
    most = None if limit is None else max(limit, _MIN_TOLD_APART)
    noises = {ranking: noise_of(rankings[ranking]) for ranking in sorted(rankings, key=order.__getitem__)}
    shown: dict[Ranking, list[str]] = {}
    for ranking, noise in noises.items():
        first = rankings[ranking][in_order(rankings[ranking], ranking.metric, by, noise, most)]
        shown[ranking] = [joined_key(*pair) for pair in first[["key", "code"]].tolist()]
    digests = select_items({key.partition(".")[0] for keys in shown.values() for key in keys})
    found = load_groups(connection, RUNS.c.group_key.in_(digests), archived=archived, across_code=across_code)
    groups = {(Ranking.of(group), group.key): group for group in found}
    of_digest: dict[tuple[Ranking, str], list[str]] = defaultdict(list)
    for ranking, key in sorted(groups):
        of_digest[ranking, key.partition(".")[0]].append(key)
    texts = _recipe_texts([groups[ranking, key] for ranking, keys in shown.items() for key in keys])
    folders = {group.best.model_folder for group in found if group.best and group.best.model_folder is not None}
    labels = select(MODELS.c.folder, MODELS.c.name, MODELS.c.version)
    labels = labels.where(MODELS.c.folder.in_(select_items(folders)))
    models = {folder: f"{name}@{version}" for folder, name, version in connection.execute(labels)}
    records = []
    for ranking, keys in shown.items():
        numbers, noise, metric = rankings[ranking], noises[ranking], ranking.metric
        means = np.where(numbers["n"] > 0, numbers["mean"] if is_better_lower(metric) else -numbers["mean"], np.inf)
        best = SeedStatistics(*numbers[np.argmin(means)][[*SeedStatistics._fields]].item())
        num_scored = int(np.count_nonzero(numbers["n"]))
        for rank, key in enumerate(keys[:limit], start=1):
            group = groups[ranking, key]
            told = group_columns(group) | {"num_ranked": len(numbers), "num_scored": num_scored}
            told["rank"] = rank if group.seeds else None
            if noise is not None and group.summary is not None:
                told["low"], told["high"] = noise.interval(group.summary, score_bounds(metric))
                told["may_be_best"] = noise.may_be_best(group.summary, best, num_scored)
            folder = group.best.model_folder if group.best else None
            alike = [twin for twin in of_digest[ranking, key.partition(".")[0]] if twin != key]
            told |= {"model": models.get(str(folder), folder), "notes": "; ".join(group_notes(group, alike))}
            records.append(told | {"recipe": texts[id(group)]})
    return RecordTable(LEADERBOARD_COLUMNS, records, dict.fromkeys(_NUMBERS, "float64"))


def group_columns(group: GroupRecord) -> dict[str, Any]:
    """Values of the leaderboard's columns that the group has by itself."""
    summary, best, tested = group.summary, group.best, group.tested
    told: dict[str, Any] = summary._asdict() if summary else {**dict.fromkeys(Summary._fields), "n": 0}
    return {
        **dict.fromkeys(LEADERBOARD_COLUMNS),
        **{name: told[name] for name in ("mean", "sd", "n", "median")},
        **{name: getattr(group, name) for name in ("task", "metric", "split", "kind", "origin", "baseline")},
        "data": (group.data or "")[:SHOWN_DIGITS] or None,
        "folds": group.parameters.get(FOLDS_PATH),
        "worst": told["highest" if is_better_lower(group.metric) else "lowest"],
        "best": group.best_score,
        **group.counts,
        "test": tested.test if tested else None,
        "test_run": tested.id if tested else None,
        "init_from": group.parameters.get(_INIT_FROM),
        "size": group.parameters.get(_SIZE),
        "run": best.id if best else group.runs[-1].id,
        "group": group.key,
    }


def _recipe_texts(groups: Sequence[GroupRecord]) -> dict[int, str]:
    """Values in which each group differs from others of its task and kind, by its `id`."""
    by_kind: dict[tuple[str, str | None], list[GroupRecord]] = defaultdict(list)
    for group in groups:
        by_kind[group.task, group.kind if group.kind in RANKED_KINDS else None].append(group)
    texts = {}
    for (_, kind), some in by_kind.items():
        told = {*varying_paths([group.parameters for group in some]), *(_NAMING if kind else ())} - _OWN_COLUMNS
        paths = sorted(path for path in told if not path.startswith("execution."))
        shows_code = len({group.code_version for group in some}) > 1
        for group in some:
            values = {path: group.parameters[path] for path in paths if path in group.parameters}
            code = {"code": group.code_version} if shows_code and group.code_version is not None else {}
            texts[id(group)] = recipe_text(values | code)
    return texts


def recipe_text(values: Mapping[str, Any]) -> str:
    """Values by path as one text; fields of a recipe by their own names.

    >>> recipe_text({"recipe.epochs": 3.0, "task.max_train_examples": 100})
    'epochs=3 task.max_train_examples=100'
    """
    texts = {path: setting_cell(value) if isinstance(value, float) else str(value) for path, value in values.items()}
    return " ".join(f"{path.removeprefix('recipe.')}={text}" for path, text in texts.items())


def ranking_sentences(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what shown places of the leaderboard leave unsaid: whose noise is unknown, what scores were chosen on."""
    scored = [row for row in rows if row["n"]]
    if unknown := {row["task"] for row in scored if row["low"] is None}:
        where = f" of {', '.join(sorted(unknown))}" if any(row["low"] is not None for row in scored) else ""
        matters = "how much a seed matters is not known, so no interval is told"
        yield f"no group{where} has several seeds that differ: {matters}"
    chosen = [row for row in scored if row["kind"] != "evaluate"]
    if sizes := sorted({row["num_scored"] for row in chosen}):
        best = f"the best of {'up to ' if len(sizes) > 1 else ''}{sizes[-1]} groups"
        of_many = f"; the first place was chosen on them, too: {best}" if sizes[-1] > 1 else ""
        tested = "; no step was chosen on `test`" if any(row["test"] is not None for row in chosen) else ""
        yield f"scores are on the validation data on which the best step of each trial was chosen{of_many}{tested}"
