"""Groups of a leaderboard for a terminal: one group's record, columns that tell places apart, and what numbers hide."""

import math
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from orchestrator.base.formatting import setting_cell
from orchestrator.base.metric_names import is_better_lower, score_bounds
from orchestrator.registry.group_records import GroupRecord, group_notes
from orchestrator.registry.leaderboard import group_columns, ranking_sentences
from orchestrator.registry.parameters import group_label
from orchestrator.significance.ranking import SeedNoise

_MAY_BE_BEST = "≈"
_GROUP_FIELDS = (
    *("group", "task", "kind", "metric", "split", "data", "code", "n", "mean", "sd", "low", "high", "median"),
    *("best", "best_run", "test", "notes"),
)
RANKING = itemgetter("task", "metric", "split", "data")
"""Identity of the ranking that a group's row stands in."""
_BY = {
    "mean": "ranked by the mean, in which few seeds and noisy ones count as much as others",
    "median": "ranked by the median",
    "best": "ranked by each group's best seed, the luckiest of n: more seeds alone raise it",
}


def group_record(group: GroupRecord, noise: SeedNoise | None) -> dict[str, Any]:
    """Numbers and notes of a group."""
    told = group_columns(group) | {
        "data": group.data,
        "code": group.code_version,
        "notes": "; ".join(group_notes(group)),
    }
    told |= {"best_run": group.best.id if group.best else None}
    if noise and group.summary:
        told |= noise.interval(group.summary, score_bounds(group.metric))._asdict()
    if is_better_lower(group.metric):
        told["metric"] += " (smaller is better)"
    return {name: told[name] for name in _GROUP_FIELDS}


def own_settings(group: GroupRecord) -> dict[str, str]:
    """Parameters of a group without recipe fields at their defaults, in words."""
    from orchestrator.reports.run_facts import changed_recipe

    section, given = "recipe.", group.parameters
    recipe = {path.removeprefix(section): value for path, value in given.items() if path.startswith(section)}
    passed_over = {f"{section}{name}" for name in recipe.keys() - changed_recipe(recipe).keys()}
    return {path: setting_cell(value) for path, value in given.items() if path not in passed_over}


def brief_columns(rows: Sequence[dict[str, Any]], by: str, *, has_tasks: bool) -> list[str]:
    """Columns that tell places apart, in 80 characters where possible; those with words are added to the rows."""
    for row in rows:
        row["#"] = None if row["rank"] is None else f"{row['rank']}{f' {_MAY_BE_BEST}' if _is_also_best(row) else ''}"
        row["95 % of mean"] = None if row["low"] is None else f"{row['low']:.3f}–{row['high']:.3f}"
        row["seeds"] = _seeds_text(row)
        row["group"] = group_label(row["group"])
        row["best of n"] = row["best"]

    def has(name: str) -> bool:
        return any(row[name] not in (None, "") for row in rows)

    interval = ["95 % of mean"] if has("low") else []
    differing = [name for name in ("init_from", "size") if len({row[name] for row in rows}) > 1]
    return [
        *(["task"] if has_tasks else []),
        "#",
        *(name for name in ("data", "split", "kind") if _differs_within_tasks(rows, name)),
        "metric",
        "mean",
        *{"best": ["best of n"], "median": ["median"]}.get(by, interval),
        "seeds",
        *(["test"] if has("test") else []),
        *differing,
        *(name for name in ("recipe", "model") if has(name)),
    ]


def _is_also_best(row: Mapping[str, Any]) -> bool:
    return bool(row["may_be_best"]) and row["rank"] > 1


def _differs_within_tasks(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    """Whether places of one task have different values of a column."""
    return len({(row["task"], row[name]) for row in rows}) > len({row["task"] for row in rows})


def _seeds_text(row: Mapping[str, Any]) -> str:
    """Number of seeds that have a score, with their folds, and of runs there were, where these are more."""
    num_runs = sum(row[name] for name in ("completed", "failed", "pruned", "unfinished"))
    num_asked, folds = math.ceil(num_runs / (row["folds"] or 1)), f" × {row['folds']} folds" if row["folds"] else ""
    return f"{row['n']}{folds}" if num_asked == row["n"] else f"{row['n']} of {num_asked}{folds}"


def caveats(rows: Sequence[Mapping[str, Any]], by: str) -> Iterator[str]:
    """Yield what the numbers hide: noise, doubts of single places, what the first place was chosen from."""
    if by in _BY:
        yield _BY[by]
    if any(map(_is_also_best, rows)):
        yield f"{_MAY_BE_BEST} may be the best, too: the best mean is not significantly better"
    if len(set(map(RANKING, rows))) > len({row["task"] for row in rows}):
        yield "scores on other data, splits or by other names are ranked apart: each has its own first place"
    yield from ranking_sentences(rows)
    yield from _note_lines(rows)


def _note_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield each note once, with the places or groups that it is about: `2, 3: of 3 runs 1 failed`."""
    is_one_ranking = len(set(map(RANKING, rows))) == 1
    places: dict[str, list[str]] = {}
    for row in rows:
        place = str(row["rank"]) if is_one_ranking and row["rank"] is not None else f"group {row['group']}"
        for note in filter(None, row["notes"].split("; ")):
            places.setdefault(note, []).append(place)
    for note, named in places.items():
        which = f"all {len(rows)} groups" if len(named) == len(rows) > 1 else ", ".join(named)
        yield f"{which}: {note}"
    if any(row["collapsed"] for row in rows):
        yield "collapsed: no better than the majority class"
