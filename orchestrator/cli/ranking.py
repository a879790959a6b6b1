"""Command `leaderboard`: groups of runs that differ only in their seed, ranked by what they show."""

from collections.abc import Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

import click

from orchestrator.base.errors import NotFoundError
from orchestrator.cli.frame import refuse_options
from orchestrator.cli.messages import notify
from orchestrator.cli.output import page_size, show_record, show_rows, show_table, show_text
from orchestrator.cli.reading import current_reading
from orchestrator.cli.registry_reading import no_runs, table_command, tell_archived

if TYPE_CHECKING:
    from orchestrator.registry import Registry

_NUM_PLACES = 10
"""Places of each task; `--limit` gives more of them."""

_NO_TRIALS = "no fine-tuned trials yet; run a sweep: `orchestrator run experiments/sweep_sst2.yaml`"


@table_command(example="leaderboard sst2\nleaderboard --group 3f2a77c0.1a2b3c4d")
@click.argument("task", required=False)
@click.option("--all", "shows_all", is_flag=True, help=f"All groups, not the first {_NUM_PLACES} per task.")
@click.option("--group", "group", metavar="GROUP", help="Show one group with its runs, by id prefix.")
@click.option(
    "--by",
    type=click.Choice(["lower", "mean", "median", "best"]),
    default="lower",
    help="Statistic to rank by; lower: the worse end of the 95% interval.",
)
@click.option("--across-code", is_flag=True, help="Pool runs that differ only in code version; --group takes one.")
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
    """Rank the recipes of each task by their scores over seeds.

    Runs that differ only in the seed form a group: one row, whose id --group and `compare` take. Scores on different
    data are ranked separately; trials, distilled models and evaluated models together. Seed variance is pooled over all
    rows of a ranking, so a row with one seed has a confidence interval, too. `≈`: not significantly worse than the best
    (multiple comparisons with the best, 95%). --limit is the number of rows per task (default: 10; in a pipe
    all).
    """
    if group is not None:
        refuse_options(("task", "shows_all", "by", "across_code", "archived"), "does not go with --group")
        _show_group(registry, group)
        return
    from orchestrator.reports.ranked_groups import RANKING, brief_columns, caveats

    reading = current_reading()
    limit = page_size() if shows_all else page_size(_NUM_PLACES)
    most = None if limit is None else reading.offset + limit
    table = registry.leaderboard(task, by=by, limit=most, archived=archived, across_code=across_code)
    num_archived = 0 if archived else registry.num_ranked_archived(task)
    if task is not None and not table.records and not num_archived:
        known = ", ".join(registry.ranked_tasks()) or "none yet"
        raise NotFoundError(f"no finished trial of task {task}; there are: {known}")
    if shows_all:
        total = sum({RANKING(row): row["num_ranked"] for row in table.records}.values())
        rows = table.records[reading.offset :][:limit]
    else:  # the offset is one of each ranking
        rows = [row for _, some in groupby(table.records, RANKING) for row in islice(some, reading.offset, None)]
        total = len(rows) or len(table.records)
    columns: Sequence[str] = table.columns
    if reading.is_brief:
        columns = brief_columns(rows, by, has_tasks=task is None)
        columns = ["group", *columns] if shows_all else [*columns, "group"]
    alike = ["task"] if len({row["task"] for row in rows}) == 1 else []  # which then tells nothing apart
    spare = ["size", "kind", *([] if shows_all else ["group"]), *alike, "model", "metric"]
    empty = "every run that could be ranked is archived"
    if not rows and not num_archived:
        empty = _NO_TRIALS if registry.run_table(limit=1).records else no_runs(registry)
    show_rows(rows, columns, empty=empty, spare=spare, below=["recipe", "init_from"], total=total)
    if rows and reading.is_brief:
        for line in caveats(rows, by):
            notify(line)
    tell_archived(num_archived)


def _show_group(registry: "Registry", name: str) -> None:
    from orchestrator.reports.ranked_groups import group_record, own_settings

    found = registry.group(name)
    record = group_record(found, registry.seed_noise(found))
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
    if registry.annotations.flagged("archived") & {run.id for run in found.runs}:  # where the group has no others
        notify("its runs are archived: the leaderboard leaves these out")
    if not current_reading().is_brief:
        record |= {"parameters": dict(found.parameters), "runs": runs}
        show_record(record)
        return
    record |= own_settings(found)
    show_record(record)
    show_text("\n")
    columns = ["seed", *(["fold"] if found.num_folds > 1 else []), "run", "of", "state", "score"]
    columns += [name for name in ("test", "collapsed") if any(row[name] for row in runs)]
    show_table(runs, [*columns, "finished_at"])
