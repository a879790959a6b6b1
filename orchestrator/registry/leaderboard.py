"""Leaderboard of a task: recipes ranked by the mean score of their trials, which differ only in the seed.

Scores on different validation data say nothing about one another: they are ranked apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from sqlalchemy import Row, Select, and_, literal, select
from sqlalchemy.orm import Session, aliased

from orchestrator.registry.parameter_values import decode_parameter, without_as_before
from orchestrator.registry.run_frames import make_frame
from orchestrator.registry.tables import MetricRow, ModelRow, ParameterRow, RunRow
from orchestrator.run_states import RunState

if TYPE_CHECKING:
    import pandas

LEADERBOARD_COLUMNS = (
    "task",
    "rank",
    "metric",
    "data",
    "mean",
    "sd",
    "n",
    "best",
    "baseline",
    "test",
    "init_from",
    "size",
    "recipe",
    "model",
    "run",
    "group",
)
_NUMBERS = ("mean", "sd", "best", "baseline", "test")
_VALIDATION_DATA = "data.validation_digest"
_OWN_COLUMNS = ("recipe.init_from", "recipe.size", "recipe.seed", _VALIDATION_DATA)
_SHOWN_DIGITS = 8
_IDS_PER_STATEMENT = 5_000
LeaderboardLine = dict[str, Any]


def leaderboard_frame(session: Session, task: str | None) -> pandas.DataFrame:
    """Table of the groups of trials, best mean first, as `Registry.leaderboard` describes it."""
    groups: dict[tuple[str, str, str], dict[int, Any]] = defaultdict(dict)
    for row in session.execute(_scored_trials(task)):
        groups[row.task, row.metric, row.group_key][row.seed] = row  # a later trial of the same seed replaces it
    lines = [_line(list(seeds.values())) for seeds in groups.values()]
    _add_recipes(session, lines)
    _add_models(session, lines)
    lines.sort(key=lambda line: (-line["mean"], line["run"]))
    for number, ranking in enumerate(_rankings(lines)):
        for rank, line in enumerate(ranking, start=1):
            line |= {"ranking": number, "rank": rank}
    lines.sort(key=lambda line: (line["ranking"], line["rank"]))
    return make_frame(lines, list(LEADERBOARD_COLUMNS)).astype(dict.fromkeys(_NUMBERS, "float64"))


def _rankings(lines: Iterable[LeaderboardLine]) -> list[list[LeaderboardLine]]:
    """Lines that may be compared, each in their order: by task, metric and validation data, the newest data first."""
    rankings: dict[tuple[str, str, str], list[LeaderboardLine]] = defaultdict(list)
    for line in lines:
        rankings[line["task"], line["metric"], line["data"] or ""].append(line)
    newest_first = sorted(rankings.items(), key=lambda item: max(line["finished_at"] for line in item[1]), reverse=True)
    return [ranking for _, ranking in sorted(newest_first, key=lambda item: item[0][:2])]


def _scored_trials(task: str | None) -> Select[Any]:
    """Statement that selects completed trials with their scores, oldest first."""
    score, baseline, test = aliased(MetricRow), aliased(MetricRow), aliased(MetricRow)

    def is_of(metric: Any, split: str, prefix: str = "") -> Any:
        return and_(metric.run_id == RunRow.id, metric.split == split, metric.name == literal(prefix) + RunRow.metric)

    columns: list[Any] = [RunRow.task, RunRow.metric, RunRow.group_key, RunRow.seed, RunRow.id, RunRow.model_folder]
    columns.append(RunRow.finished_at)
    columns += [score.value.label("score"), baseline.value.label("baseline"), test.value.label("test")]
    statement = (
        select(*columns)
        .join(score, is_of(score, "validation"))
        .outerjoin(baseline, is_of(baseline, "validation", "baseline."))
        .outerjoin(test, is_of(test, "test"))
        .where(RunRow.parent_id.is_not(None), RunRow.state == RunState.COMPLETED, score.value.is_not(None))
        .order_by(RunRow.finished_at, RunRow.id)
    )
    return statement if task is None else statement.where(RunRow.task == task)


def _line(trials: Sequence[Row[Any]]) -> LeaderboardLine:
    scores = [trial.score for trial in trials]
    best = max(trials, key=lambda trial: trial.score)
    tested = [trial for trial in trials if trial.test is not None]
    return {
        "task": best.task,
        "metric": best.metric,
        "group": best.group_key,
        "mean": fmean(scores),
        "sd": stdev(scores) if len(scores) > 1 else None,
        "n": len(scores),
        "best": best.score,
        "baseline": best.baseline,
        "test": max(tested, key=lambda trial: trial.score).test if tested else None,
        "finished_at": max(trial.finished_at for trial in trials),
        "run": best.id,
        "model": best.model_folder,
    }


def _add_recipes(session: Session, lines: Sequence[LeaderboardLine]) -> None:
    """Add the recipe of each group: its start model, size and data, and what else tells groups of a task apart."""
    recipes = _load_recipes(session, [line["run"] for line in lines])
    by_task: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for line in lines:
        by_task[line["task"]].append(recipes[line["run"]])
    varying = {task: varying_paths(of_task) for task, of_task in by_task.items()}
    for line in lines:
        recipe = recipes[line["run"]]
        line["init_from"], line["size"] = recipe.get("recipe.init_from"), recipe.get("recipe.size")
        line["data"] = (recipe.get(_VALIDATION_DATA) or "")[:_SHOWN_DIGITS] or None
        differing = [
            f"{path.removeprefix('recipe.')}={value}"
            for path, value in sorted(recipe.items())
            if path not in _OWN_COLUMNS and path in varying[line["task"]]
        ]
        line["recipe"] = " ".join(differing)


def _load_recipes(session: Session, run_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    recipes: dict[str, dict[str, Any]] = {run_id: {} for run_id in run_ids}
    columns = select(ParameterRow.run_id, ParameterRow.path, ParameterRow.kind, ParameterRow.text)
    for start in range(0, len(run_ids), _IDS_PER_STATEMENT):
        some = run_ids[start : start + _IDS_PER_STATEMENT]
        for run_id, path, kind, text in session.execute(columns.where(ParameterRow.run_id.in_(some))):
            recipes[run_id][path] = decode_parameter(kind, text)
    return {run_id: without_as_before(recipe) for run_id, recipe in recipes.items()}


def varying_paths(recipes: Sequence[Mapping[str, Any]]) -> set[str]:
    """Paths whose values differ between recipes; a path that a recipe lacks counts as None.

    >>> sorted(varying_paths([{"size": "tiny", "epochs": 3}, {"size": "mini", "epochs": 3.0}, {"epochs": 3}]))
    ['size']
    """
    values: dict[str, set[Hashable]] = defaultdict(set)
    num_having: Counter[str] = Counter()
    for recipe in recipes:
        num_having.update(recipe.keys())
        for path, value in recipe.items():
            values[path].add(_hashable(value))
    for path, number in num_having.items():
        if number < len(recipes):
            values[path].add(None)
    return {path for path, found in values.items() if len(found) > 1}


def _hashable(value: Any) -> Hashable:
    """Value, or a list's values as a tuple; equal where the values are."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else str(value) if isinstance(value, dict) else value


def _add_models(session: Session, lines: Sequence[LeaderboardLine]) -> None:
    """Replace the folder of a model by its registered name, where it has one."""
    labels = {
        folder: f"{name}@{version}"
        for folder, name, version in session.execute(select(ModelRow.folder, ModelRow.name, ModelRow.version))
    }
    for line in lines:
        line["model"] = labels.get(line["model"], line["model"])
