"""Command `leaderboard`: groups of runs that differ only in their seed, ranked by what they show."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.commands.registry_reading import no_runs, open_registry, tell_archived
from orchestrator.cli.frame import GlobalOptionsCommand
from orchestrator.cli.messages import notify
from orchestrator.cli.output import show_rows, shows_briefly
from orchestrator.cli.reading import limit_option, output_options

if TYPE_CHECKING:
    from orchestrator.registry import Registry

_NO_TRIALS = "no fine-tuned trials yet; run a sweep: `orchestrator run experiments/sweep_sst2.yaml`"
_MAY_BE_BEST = "≈"
_BY = {
    "mean": "ranked by the mean, in which few seeds and noisy ones count as much as others",
    "median": "ranked by the median",
    "best": "ranked by each group's best seed, the luckiest of n: more seeds alone raise it",
}


@click.command(cls=GlobalOptionsCommand, example="orchestrator leaderboard sst2")
@click.argument("task", required=False)
@limit_option(default=10, show_default=True, help="Number of places for each task.")
@click.option(
    "--by",
    type=click.Choice(["lower", "mean", "median", "best"]),
    default="lower",
    show_default=True,
    help="Number that ranks: `lower` is the worse end of the mean's interval.",
)
@click.option("--across-code", is_flag=True, help="Pool runs that differ only in the version of the code.")
@click.option("--archived", is_flag=True, help="Rank archived runs, too.")
@output_options
def leaderboard(
    task: str | None,
    limit: int,
    by: Any,
    across_code: bool,
    archived: bool,
    form: str | None,
    output: str | None,
) -> None:
    """Rank recipes by task, over their seeds.

    Runs that differ only in the seed form one group: other data, task fields, threads or code are another group. Scores
    on other data are ranked apart. Trials, students (distill) and evaluated models are ranked together. The noise of
    seeds is estimated over all groups of a ranking, so that one seed has an interval, too. `≈`: may be the best, as the
    group with the best mean is not significantly better (multiple comparisons with the best, at 95 %).
    """
    from orchestrator.errors import NotFoundError

    with open_registry() as registry:
        table = registry.leaderboard(task, by=by, limit=limit, archived=archived, across_code=across_code)
        known = [] if table.records or task is None else registry.ranked_tasks()
        num_archived = 0 if archived else registry.num_ranked_archived(task)
        empty = no_groups(registry, num_archived)
    if task is not None and not table.records and not num_archived:
        raise NotFoundError(f"no finished trial of task {task}; there are: {', '.join(known) or 'none yet'}")
    rows = list(table.records)
    if not shows_briefly(form, output):
        show_rows(rows, list(table.columns), form, output, empty=empty)
        tell_archived(num_archived)
        return
    _show_briefly(rows, empty, by, several_tasks=task is None)
    if rows and by in _BY:
        notify(_BY[by])
    _tell_of(rows)
    tell_archived(num_archived)


def no_groups(registry: "Registry", num_archived: int) -> str:
    """Message in place of a board without groups.

    Args:
        num_archived: number of runs that it leaves out.
    """
    if num_archived:
        return "every run that could be ranked is archived"
    return _NO_TRIALS if registry.run_table(limit=1).records else no_runs(registry)


def _show_briefly(rows: list[dict[str, Any]], empty: str, by: str, *, several_tasks: bool) -> None:
    """Show the places with the columns that tell them apart, in 80 characters where that is possible."""
    from orchestrator.registry.group_records import group_label

    for row in rows:
        row["#"] = None if row["rank"] is None else f"{row['rank']}{f' {_MAY_BE_BEST}' if _is_also_best(row) else ''}"
        row["95 % of mean"] = None if row["low"] is None else f"{row['low']:.3f}–{row['high']:.3f}"
        row["seeds"] = seeds_text(row)
        row["group"] = group_label(row["group"])
        row["best of n"] = row["best"]
    interval = ["95 % of mean"] if any(row["low"] is not None for row in rows) else []
    columns = ["#", "metric", "mean", *{"best": ["best of n"], "median": ["median"]}.get(by, interval), "seeds"]
    columns += ["test"] if any(row["test"] is not None for row in rows) else []
    columns += [name for name in ("init_from", "size") if len({row[name] for row in rows}) > 1]
    columns += ["recipe"] if any(row["recipe"] for row in rows) else []
    for name in ("kind", "split", "data"):
        if _differs_within_tasks(rows, name):
            columns.insert(1, name)
    if several_tasks:
        columns.insert(0, "task")
    columns += ["model"] if any(row["model"] for row in rows) else []
    alike = ["task"] if len({row["task"] for row in rows}) == 1 else []  # which then tells nothing apart
    spare = ["size", "kind", "group", *alike, "model", "metric"]
    show_rows(rows, [*columns, "group"], None, None, empty=empty, spare=spare, below=["recipe", "init_from"])


def _is_also_best(row: dict[str, Any]) -> bool:
    """Whether a group that does not stand first may be the best."""
    return bool(row["may_be_best"]) and row["rank"] > 1


def _differs_within_tasks(rows: list[dict[str, Any]], name: str) -> bool:
    """Whether places of one task have different values of a column."""
    return len({(row["task"], row[name]) for row in rows}) > len({row["task"] for row in rows})


def seeds_text(row: dict[str, Any]) -> str:
    """Number of seeds that have a score, with their folds, and of runs there were, where these are more."""
    num_runs = sum(row[name] for name in ("completed", "failed", "pruned", "unfinished"))
    num_asked, folds = math.ceil(num_runs / (row["folds"] or 1)), f" × {row['folds']} folds" if row["folds"] else ""
    return f"{row['n']}{folds}" if num_asked == row["n"] else f"{row['n']} of {num_asked}{folds}"


def _tell_of(rows: list[dict[str, Any]]) -> None:
    """Say what the table's numbers hide: noise, doubts of single places, what the first place was chosen from."""
    from orchestrator.registry.group_records import choice_sentence, noise_sentence

    if not rows:
        return
    if any(map(_is_also_best, rows)):
        notify(f"{_MAY_BE_BEST} may be the best, too: the best mean is not significantly better")
    rankings = {(row["task"], row["metric"], row["split"], row["data"]) for row in rows}
    if len(rankings) > len({row["task"] for row in rows}):
        notify("scores on other data, splits or by other names are ranked apart: each has its own first place")
    for sentence in filter(None, (noise_sentence(rows), choice_sentence(rows))):
        notify(sentence)
    for line in _note_lines(rows):
        notify(line)


def _note_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield each note once, with the places that it is about: `2, 3: of 3 runs 1 failed`."""
    telling = [name for name in ("metric", "split", "data") if _differs_within_tasks(rows, name)]
    several_tasks = len({row["task"] for row in rows}) > 1
    places: dict[str, list[str]] = {}
    for row in rows:
        for note in filter(None, row["notes"].split("; ")):
            place = f"group {row['group']}" if row["rank"] is None else str(row["rank"])
            place = f"{row['task']} {place}" if several_tasks else place
            ranking = " ".join(str(row[name]) for name in telling if row[name] is not None)
            places.setdefault(note, []).append(f"{place} ({ranking})" if ranking else place)
    for note, named in places.items():
        which = f"all {len(rows)}" if len(named) == len(rows) > 1 else ", ".join(named)
        yield f"{which}: {note}"
    if any(row["collapsed"] for row in rows):
        yield "collapsed: no better than the majority class"
