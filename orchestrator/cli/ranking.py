"""Command `leaderboard`: groups of runs that differ only in their seed, ranked by what they show."""

import math
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cells import setting_cell
from orchestrator.cli.frame import refuse_options
from orchestrator.cli.messages import notify
from orchestrator.cli.output import page_size, show_record, show_rows, show_table, show_text
from orchestrator.cli.reading import current_reading
from orchestrator.cli.registry_reading import no_runs, table_command, tell_archived
from orchestrator.errors import NotFoundError, SeveralRunsError
from orchestrator.measurements import is_better_lower, score_bounds
from orchestrator.progress import counted

if TYPE_CHECKING:
    from orchestrator.registry import Registry
    from orchestrator.registry.group_records import GroupRecord
    from orchestrator.significance.ranking import SeedNoise

_NUM_PLACES = 10
"""Places of each task; `--limit` gives more of them."""

_NO_TRIALS = "no fine-tuned trials yet; run a sweep: `orchestrator run experiments/sweep_sst2.yaml`"
_MAY_BE_BEST = "≈"
_GROUP_FIELDS = (
    *("group", "task", "kind", "metric", "split", "data", "code", "n", "mean", "sd", "low", "high", "median"),
    *("best", "best_run", "test", "notes"),
)
_RANKING = itemgetter("task", "metric", "split", "data")
"""Identity of the ranking that a group's row stands in."""
_BY = {
    "mean": "ranked by the mean, in which few seeds and noisy ones count as much as others",
    "median": "ranked by the median",
    "best": "ranked by each group's best seed, the luckiest of n: more seeds alone raise it",
}


@table_command(example="leaderboard sst2\nleaderboard --group 3f2a77c0.1a2b3c4d")
@click.argument("task", required=False)
@click.option("--all", "shows_all", is_flag=True, help=f"All groups, not the first {_NUM_PLACES} per task.")
@click.option("--group", "group", metavar="GROUP", help="One group with its runs; by id prefix or a run of it.")
@click.option(
    "--by",
    type=click.Choice(["lower", "mean", "median", "best"]),
    default="lower",
    help="Rank by; lower: pessimistic bound of the interval.",
)
@click.option("--across-code", is_flag=True, help="Pool runs that differ only in code version.")
@click.option("--archived", is_flag=True, help="Include archived runs.")
def leaderboard(
    registry: "Registry",
    task: str | None,
    shows_all: bool,
    group: str | None,
    by: Any,
    across_code: bool,
    archived: bool,
) -> None:
    """Rank recipes by task, over their seeds.

    Runs that differ only in the seed form a group: one row, whose id --group and `compare` take. Scores on different
    data are ranked separately; trials, distilled models and evaluated models together. Seed variance is pooled over all
    rows of a ranking, so a row with one seed has a confidence interval, too. `≈`: not significantly worse than the best
    (multiple comparisons with the best, 95%). --limit is the number of rows per task (default: 10).
    """
    if group is not None:
        refuse_options(("task", "shows_all", "by", "across_code", "archived"), "does not go with --group")
        _show_group(registry, group)
        return
    reading = current_reading()
    limit = page_size() if shows_all else reading.limit or _NUM_PLACES
    most = None if limit is None else reading.offset + limit
    table = registry.leaderboard(task, by=by, limit=most, archived=archived, across_code=across_code)
    num_archived = 0 if archived else registry.num_ranked_archived(task)
    if task is not None and not table.records and not num_archived:
        known = ", ".join(registry.ranked_tasks()) or "none yet"
        raise NotFoundError(f"no finished trial of task {task}; there are: {known}")
    if shows_all:
        total = sum({_RANKING(row): row["num_ranked"] for row in table.records}.values())
        rows = table.records[reading.offset :][:limit]
    else:  # the offset is one of each ranking
        rows = [row for row in table.records if (row["rank"] or row["num_ranked"]) > reading.offset]
        total = len(rows)
    columns: Sequence[str] = table.columns
    if reading.is_brief:
        columns = _brief_columns(rows, by, has_tasks=task is None)
        columns = ["group", *columns] if shows_all else [*columns, "group"]
    own = [] if shows_all else ["group"]
    alike = ["task"] if len({row["task"] for row in rows}) == 1 else []  # which then tells nothing apart
    spare = ["size", "kind", *own, *alike, "model", "metric"]
    empty = "every run that could be ranked is archived"
    if not rows and not num_archived:
        empty = _NO_TRIALS if registry.run_table(limit=1).records else no_runs(registry)
    show_rows(rows, columns, empty=empty, spare=spare, below=["recipe", "init_from"], total=total)
    if rows and reading.is_brief:
        _tell_of(rows, by)
    tell_archived(num_archived)


def _show_group(registry: "Registry", name: str) -> None:
    try:
        found = registry.group(name)
    except SeveralRunsError:
        raise
    except NotFoundError:
        registry.run(name)  # which tells the nearest name
        raise
    record = group_record(found, registry.seed_noise(found))
    num_archived = len(registry.annotations.flagged("archived") & {run.id for run in found.runs})
    runs = [
        {
            "seed": run.seed,
            "fold": run.fold,
            "run": run.id,
            "of": run.parent_id,
            "state": run.state,
            "score": None if found.refusal else run.score,
            "test": None if run.test_refusal else run.test,
            "collapsed": run.is_collapsed,
            "finished_at": run.finished_at,
        }
        for run in sorted(found.runs, key=lambda run: (run.seed is None, run.seed, run.fold or 0))
    ]
    if num_archived:
        notify(f"{num_archived} of its {counted(len(found.runs), 'run')} archived: the leaderboard leaves these out")
    if not current_reading().is_brief:
        record |= {"parameters": dict(found.parameters), "runs": runs}
        show_record(record)
        return
    record |= {path: setting_cell(value) for path, value in found.parameters.items()}
    show_record(record)
    show_text("\n")
    columns = ["seed", *(["fold"] if found.num_folds > 1 else []), "run", "of", "state", "score"]
    columns += [name for name in ("test", "collapsed") if any(row[name] for row in runs)]
    show_table(runs, [*columns, "finished_at"])


def group_record(group: "GroupRecord", noise: "SeedNoise | None") -> dict[str, Any]:
    """Numbers and notes of a group."""
    from orchestrator.registry.group_records import group_notes
    from orchestrator.registry.leaderboard import group_columns

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


def _brief_columns(rows: Sequence[dict[str, Any]], by: str, *, has_tasks: bool) -> list[str]:
    """Columns that tell places apart, in 80 characters where possible; those with words are added to the rows."""
    from orchestrator.registry.parameters import group_label

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


def _tell_of(rows: Sequence[Mapping[str, Any]], by: str) -> None:
    """Say what the table's numbers hide: noise, doubts of single places, what the first place was chosen from."""
    from orchestrator.registry.leaderboard import ranking_sentences

    if by in _BY:
        notify(_BY[by])
    if any(map(_is_also_best, rows)):
        notify(f"{_MAY_BE_BEST} may be the best, too: the best mean is not significantly better")
    if len(set(map(_RANKING, rows))) > len({row["task"] for row in rows}):
        notify("scores on other data, splits or by other names are ranked apart: each has its own first place")
    for line in (*ranking_sentences(rows), *_note_lines(rows)):
        notify(line)


def _note_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
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
        which = f"all {len(rows)} groups" if len(named) == len(rows) > 1 else ", ".join(named)
        yield f"{which}: {note}"
    if any(row["collapsed"] for row in rows):
        yield "collapsed: no better than the majority class"
