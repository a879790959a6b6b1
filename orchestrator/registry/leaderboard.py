"""Leaderboard of a task: recipes ranked by the mean score of their trials, which differ only in the seed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from sqlalchemy import Row, Select, and_, literal, select
from sqlalchemy.orm import Session, aliased

from orchestrator.registry.parameter_values import decode_parameter
from orchestrator.registry.run_frames import make_frame
from orchestrator.registry.tables import MetricRow, ModelRow, ParameterRow, RunRow
from orchestrator.run_states import RunState

if TYPE_CHECKING:
    import pandas

LEADERBOARD_COLUMNS = (
    "task",
    "rank",
    "metric",
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
_OWN_COLUMNS = ("recipe.init_from", "recipe.size", "recipe.seed")
LeaderboardLine = dict[str, Any]


def leaderboard_frame(session: Session, task: str | None) -> pandas.DataFrame:
    """Table of the groups of trials, best mean first, as `Registry.leaderboard` describes it."""
    groups: dict[tuple[str, str, str], dict[int, Any]] = defaultdict(dict)
    for row in session.execute(_scored_trials(task)):
        groups[row.task, row.metric, row.group_key][row.seed] = row  # a later trial of the same seed replaces it
    lines = [_line(list(seeds.values())) for seeds in groups.values()]
    _add_recipes(session, lines)
    _add_models(session, lines)
    lines.sort(key=lambda line: (line["task"], line["metric"], -line["mean"], line["run"]))
    for _, ranked in groupby(lines, key=lambda line: (line["task"], line["metric"])):
        for rank, line in enumerate(ranked, start=1):
            line["rank"] = rank
    return make_frame(lines, list(LEADERBOARD_COLUMNS)).astype(dict.fromkeys(_NUMBERS, "float64"))


def _scored_trials(task: str | None) -> Select[Any]:
    """Statement that selects completed trials with their scores, oldest first."""
    score, baseline, test = aliased(MetricRow), aliased(MetricRow), aliased(MetricRow)

    def is_of(metric: Any, split: str, prefix: str = "") -> Any:
        return and_(metric.run_id == RunRow.id, metric.split == split, metric.name == literal(prefix) + RunRow.metric)

    columns: list[Any] = [RunRow.task, RunRow.metric, RunRow.group_key, RunRow.seed, RunRow.id, RunRow.model_folder]
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
        "run": best.id,
        "model": best.model_folder,
    }


def _add_recipes(session: Session, lines: Sequence[LeaderboardLine]) -> None:
    """Add the recipe of each group: its start model and size, and the other values in which groups of a task differ."""
    recipes: dict[str, dict[str, Any]] = {line["run"]: {} for line in lines}
    columns = select(ParameterRow.run_id, ParameterRow.path, ParameterRow.kind, ParameterRow.text)
    for run_id, path, kind, text in session.execute(columns.where(ParameterRow.run_id.in_(list(recipes)))):
        recipes[run_id][path] = decode_parameter(kind, text)
    by_task: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for line in lines:
        by_task[line["task"]].append(recipes[line["run"]])
    for line in lines:
        recipe, others = recipes[line["run"]], by_task[line["task"]]
        line["init_from"], line["size"] = recipe.get("recipe.init_from"), recipe.get("recipe.size")
        differing = [
            f"{path.removeprefix('recipe.')}={value}"
            for path, value in sorted(recipe.items())
            if path not in _OWN_COLUMNS and any(other.get(path) != value for other in others)
        ]
        line["recipe"] = " ".join(differing)


def _add_models(session: Session, lines: Sequence[LeaderboardLine]) -> None:
    """Replace the folder of a model by its registered name, where it has one."""
    labels = {
        folder: f"{name}@{version}"
        for folder, name, version in session.execute(select(ModelRow.folder, ModelRow.name, ModelRow.version))
    }
    for line in lines:
        line["model"] = labels.get(line["model"], line["model"])
