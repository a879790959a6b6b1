"""The page of a task: its groups of runs ranked by what their seeds show, for each score and each data."""

from itertools import groupby
from typing import TYPE_CHECKING, Any

from orchestrator.cells import cell
from orchestrator.progress import counted
from orchestrator.registry.leaderboard import SHOWN_DIGITS, ranking_sentences, recipe_text
from orchestrator.registry.parameters import group_label
from orchestrator.reports.blocks import Block, Page, Section, Table, Words, run_cell
from orchestrator.reports.charts import Spread, seed_spread

if TYPE_CHECKING:
    from orchestrator.registry.group_records import GroupRecord
    from orchestrator.registry.registry import Registry

_MOST_GROUPS, _MOST_ROWS = 30, 200
"""Groups of each ranking in its picture, and in its table."""
_Identity = tuple[str, str, str]
_COLUMNS = (
    *("rank", "may_be_best", "mean", "low", "high", "sd", "n", "best", "baseline", "test"),
    *("init_from", "size", "recipe", "notes", "model", "run", "group"),
)
_TOLD_ONCE = ("n", "baseline", "init_from", "size", "notes")
_ORDER = (
    "Ranked by the worse end of the mean's 95 % interval, by the noise of seeds over all groups. A group may be the "
    "best where the best mean is not significantly better (multiple comparisons with the best, at 95 %)."
)


def task_page(registry: "Registry", task: str) -> Page:
    """Make the page of a task that has been tried."""
    records = registry.leaderboard(task, limit=_MOST_ROWS).records
    drawn = [row["run"] for row in records if row["mean"] is not None and row["rank"] <= _MOST_GROUPS]
    shown = registry.groups_of(drawn, archived=False)
    groups = {_identity(group.key, group.metric, group.data): group for group in shown}
    num_archived = registry.num_ranked_archived(task)
    left_out = f"; {counted(num_archived, 'archived run')} left out" if num_archived else ""
    sections, num_groups = [], 0
    for (metric, split, data), some in groupby(records, key=lambda row: (row["metric"], row["split"], row["data"])):
        ranking = [dict(row, may_be_best="≈" if row["may_be_best"] and row["rank"] > 1 else "") for row in some]
        num_groups += ranking[0]["num_ranked"]
        on_data = f", data {data}" if data else ""
        sections.append(Section(f"{metric} on {split}{on_data}", _blocks(ranking, groups, metric)))
    return Page(f"Task {task}", f"{num_groups} groups of runs that differ only in their seed{left_out}", sections)


def _identity(key: str, metric: str, data: str | None) -> _Identity:
    """Identity of a group of a task: its key, the metric, and the data that it was scored on."""
    return key, metric, (data or "")[:SHOWN_DIGITS]


def _blocks(ranking: list[dict[str, Any]], groups: "dict[_Identity, GroupRecord]", metric: str) -> list[Block]:
    """The spread of the best groups as a picture, then all of them as a table."""
    scored = [row for row in ranking if row["mean"] is not None][:_MOST_GROUPS]
    spreads = [_spread(groups[_identity(row["group"], row["metric"], row["data"])], row) for row in scored]
    chart: list[Block] = [seed_spread(spreads, metric)] if spreads else []
    words: list[Block] = [Words(_ORDER)]
    for sentence in ranking_sentences(ranking):
        words.append(Words(f"{sentence[0].upper()}{sentence[1:]}."))
    if ranking[0]["num_ranked"] > len(ranking):
        words.append(Words(f"The first {len(ranking)} of {ranking[0]['num_ranked']} groups."))
    rows = [row | {"group": group_label(row["group"]), "run": row["run"] and run_cell(row["run"])} for row in ranking]
    if same := same_in_all(rows):
        told = ", ".join(f"{name} {cell(rows[0][name])}" for name in same)
        words.append(Words(f"The same in all groups: {told}."))
    return [*chart, *words, Table(shown_columns(rows), rows)]


def shown_columns(ranking: list[dict[str, Any]]) -> list[str]:
    """Columns that tell something of some group: the others would push the last ones out of the page."""
    one_seed_each = all(row["best"] == row["mean"] for row in ranking)
    silent = {*same_in_all(ranking), *(["best"] if one_seed_each else [])}
    return [name for name in _COLUMNS if name not in silent and any(row[name] not in (None, "") for row in ranking)]


def same_in_all(ranking: list[dict[str, Any]]) -> list[str]:
    """Columns with one value in all of several groups, which a sentence tells in less room than a column."""
    return [name for name in _TOLD_ONCE if len(ranking) > 1 and _has_one_value([row[name] for row in ranking])]


def _has_one_value(values: list[Any]) -> bool:
    return values[0] not in (None, "") and all(value == values[0] for value in values)


def _spread(group: "GroupRecord", row: dict[str, Any]) -> Spread:
    values = {name: row[name] for name in ("init_from", "size") if row[name] is not None}
    label = f"{row['rank']}. {recipe_text(values)} {row['recipe'] or ''}".strip()
    interval = None if row["low"] is None else (row["low"], row["high"])
    return Spread(label, group.scores, row["mean"], interval)
