"""Command `leaderboard`: groups of runs that differ only in their seed, ranked by what they show."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cells import setting_cell
from orchestrator.cli.frame import GlobalOptionsCommand, refuse_options
from orchestrator.cli.messages import notify
from orchestrator.cli.output import page_size, show_record, show_rows, show_table, show_text, shows_briefly
from orchestrator.cli.reading import current_reading, list_options
from orchestrator.cli.registry_reading import no_runs, open_registry, tell_archived
from orchestrator.measurements import is_better_lower, score_bounds
from orchestrator.progress import counted

if TYPE_CHECKING:
    from orchestrator.registry import Registry
    from orchestrator.registry.group_records import GroupRecord, GroupRun
    from orchestrator.significance.ranking import SeedNoise

_NUM_PLACES, _PAGE = 10, 30
"""Places of each task, and rows of a list of all groups on a terminal; `--limit` gives more of them."""

_NO_TRIALS = "no fine-tuned trials yet; run a sweep: `orchestrator run experiments/sweep_sst2.yaml`"
_MAY_BE_BEST = "≈"
_BY = {
    "mean": "ranked by the mean, in which few seeds and noisy ones count as much as others",
    "median": "ranked by the median",
    "best": "ranked by each group's best seed, the luckiest of n: more seeds alone raise it",
}


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator leaderboard sst2\norchestrator leaderboard --group 3f2a77c0.1a2b3c4d",
)
@click.argument("task", required=False)
@click.option("--all", "shows_all", is_flag=True, help=f"All groups, not the first {_NUM_PLACES} per task.")
@click.option("--group", "group", metavar="GROUP", help="One group with its runs; by id prefix or a run of it.")
@click.option(
    "--by",
    type=click.Choice(["lower", "mean", "median", "best"]),
    default="lower",
    show_default=True,
    help="Rank by; lower: pessimistic bound of the interval.",
)
@click.option("--across-code", is_flag=True, help="Pool runs that differ only in code version.")
@click.option("--archived", is_flag=True, help="Include archived runs.")
@list_options
def leaderboard(
    task: str | None,
    shows_all: bool,
    group: str | None,
    by: Any,
    across_code: bool,
    archived: bool,
    form: str | None,
    output: str | None,
) -> None:
    """Rank recipes by task, over their seeds.

    Runs that differ only in the seed form a group: one row, whose id --group and `compare` take. Scores on different
    data are ranked separately; trials, distilled models and evaluated models together. Seed variance is pooled over all
    rows of a ranking, so a row with one seed has a confidence interval, too. `≈`: not significantly worse than the best
    (multiple comparisons with the best, 95%). --limit is the number of rows per task (default: 10).
    """
    from orchestrator.errors import NotFoundError

    if group is not None:
        refuse_options(("task", "shows_all", "by", "across_code", "archived"), "does not go with --group")
        _show_group(group, form, output)
        return
    reading = current_reading()
    limit = page_size(_PAGE, form, output) if shows_all else reading.limit or _NUM_PLACES
    with open_registry() as registry:
        most = None if limit is None else reading.offset + limit
        table = registry.leaderboard(task, by=by, limit=most, archived=archived, across_code=across_code)
        num_archived = 0 if archived else registry.num_ranked_archived(task)
        if task is not None and not table.records and not num_archived:
            known = ", ".join(registry.ranked_tasks()) or "none yet"
            raise NotFoundError(f"no finished trial of task {task}; there are: {known}")
        empty = _no_groups(registry, num_archived)
    rows = [row for row in table.records if shows_all or (row["rank"] or row["num_ranked"]) > reading.offset]
    if shows_all:
        rankings = {(row["task"], row["metric"], row["split"], row["data"]): row["num_ranked"] for row in rows}
        _show_all(rows[reading.offset :][:limit], table.columns, form, output, empty, sum(rankings.values()))
    elif not shows_briefly(form, output):
        show_rows(rows, table.columns, form, output, empty=empty, total=len(rows))
    else:
        _show_briefly(rows, empty, by, several_tasks=task is None)
        if rows and by in _BY:
            notify(_BY[by])
        _tell_of(rows)
    tell_archived(num_archived)


def _show_all(
    rows: list[dict[str, Any]], columns: Sequence[str], form: str | None, output: str | None, empty: str, total: int
) -> None:
    """Show groups as a list, with what tells them apart.

    Args:
        total: number of groups that there are.
    """
    if shows_briefly(form, output):
        from orchestrator.registry.group_records import group_label

        differing = [name for name in ("init_from", "size") if len({row[name] for row in rows}) > 1]
        columns = ["group", "task", "kind", "metric", "seeds", "mean", "sd", *differing, "recipe", "notes"]
        rows = [row | {"group": group_label(row["group"]), "seeds": _seeds_text(row)} for row in rows]
    spare, below = ["kind", "metric", "sd", "size"], ["recipe", "notes", "init_from"]
    show_rows(rows, columns, form, output, empty=empty, spare=spare, below=below, total=total)


def _show_group(name: str, form: str | None, output: str | None) -> None:
    """Show one group: its numbers, its settings, and each of its runs."""
    from orchestrator.errors import NotFoundError, SeveralRunsError

    with open_registry() as registry:
        try:
            found = registry.group(name)
        except SeveralRunsError:
            raise
        except NotFoundError:
            registry.find_run(name)  # which tells the nearest name
            raise
        noise = registry.seed_noise(found)
        num_archived = len(registry.annotations.flagged("archived") & {run.id for run in found.runs})
    rows = (_run_row(found, run) for run in found.runs)
    runs = sorted(rows, key=lambda row: (row["seed"] is None, row["seed"], row["fold"] or 0))
    record = group_record(found, noise)
    if num_archived:
        notify(f"{num_archived} of its {counted(len(found.runs), 'run')} archived: the leaderboard leaves these out")
    if not shows_briefly(form, output):
        show_record({**record, "parameters": dict(found.parameters), "runs": runs}, form, output)
        return
    show_record({**record, **{path: setting_cell(value) for path, value in found.parameters.items()}}, form, output)
    show_text("\n")
    columns = ["seed", *(["fold"] if found.num_folds > 1 else []), "run", "of", "state", "score"]
    columns += [name for name in ("test", "collapsed") if any(row[name] for row in runs)]
    show_table(runs, [*columns, "finished_at"])


def group_record(group: "GroupRecord", noise: "SeedNoise | None") -> dict[str, Any]:
    """Numbers and notes of a group."""
    from orchestrator.registry.group_records import group_notes

    summary, best = group.summary, group.best
    interval = noise.interval(summary, score_bounds(group.metric)) if noise and summary else None
    return {
        "group": group.key,
        "task": group.task,
        "kind": group.kind,
        "metric": group.metric + (" (smaller is better)" if is_better_lower(group.metric) else ""),
        "split": group.split,
        "data": group.data,
        "code": group.code_version,
        "n": summary.n if summary else 0,
        "mean": summary.mean if summary else None,
        "sd": summary.sd if summary else None,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "median": summary.median if summary else None,
        "best": best.score if best else None,
        "best_run": best.id if best else None,
        "test": group.tested.test if group.tested else None,
        "notes": "; ".join(group_notes(group)),
    }


def _run_row(group: "GroupRecord", run: "GroupRun") -> dict[str, Any]:
    return {
        "seed": run.seed,
        "fold": run.fold,
        "run": run.id,
        "of": run.parent_id,
        "state": run.state,
        "score": None if group.refusal else run.score,
        "test": None if run.test_refusal else run.test,
        "collapsed": run.is_collapsed,
        "finished_at": run.finished_at,
    }


def _no_groups(registry: "Registry", num_archived: int) -> str:
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
        row["seeds"] = _seeds_text(row)
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
    below = ["recipe", "init_from"]
    show_rows(rows, [*columns, "group"], None, None, empty=empty, spare=spare, below=below, total=len(rows))


def _is_also_best(row: dict[str, Any]) -> bool:
    """Whether a group that does not stand first may be the best."""
    return bool(row["may_be_best"]) and row["rank"] > 1


def _differs_within_tasks(rows: list[dict[str, Any]], name: str) -> bool:
    """Whether places of one task have different values of a column."""
    return len({(row["task"], row[name]) for row in rows}) > len({row["task"] for row in rows})


def _seeds_text(row: dict[str, Any]) -> str:
    """Number of seeds that have a score, with their folds, and of runs there were, where these are more."""
    num_runs = sum(row[name] for name in ("completed", "failed", "pruned", "unfinished"))
    num_asked, folds = math.ceil(num_runs / (row["folds"] or 1)), f" × {row['folds']} folds" if row["folds"] else ""
    return f"{row['n']}{folds}" if num_asked == row["n"] else f"{row['n']} of {num_asked}{folds}"


def _tell_of(rows: list[dict[str, Any]]) -> None:
    """Say what the table's numbers hide: noise, doubts of single places, what the first place was chosen from."""
    from orchestrator.registry.group_records import ranking_sentences

    if not rows:
        return
    if any(map(_is_also_best, rows)):
        notify(f"{_MAY_BE_BEST} may be the best, too: the best mean is not significantly better")
    rankings = {(row["task"], row["metric"], row["split"], row["data"]) for row in rows}
    if len(rankings) > len({row["task"] for row in rows}):
        notify("scores on other data, splits or by other names are ranked apart: each has its own first place")
    for sentence in ranking_sentences(rows):
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
