"""Command `query`, which asks the registry across runs."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import click

from orchestrator.cli.commands.grouping import GroupingOptions, grouping_options, show_groups
from orchestrator.cli.commands.registry_reading import (
    NUM_PARAMETERS_SHOWN,
    count_archived,
    num_in_all,
    open_registry,
    tell_archived,
    tell_refused,
)
from orchestrator.cli.commands.run_annotating import add_notes
from orchestrator.cli.commands.run_conditions import no_such_run, since_too
from orchestrator.cli.frame import GlobalOptionsCommand
from orchestrator.cli.messages import tell_more
from orchestrator.cli.output import num_rows_shown, show_rows, shows_briefly
from orchestrator.cli.reading import page_options

_PAGE = 30
"""Rows on a terminal, of runs or groups; `--limit` gives more of them."""


@click.command(
    cls=GlobalOptionsCommand,
    example='orchestrator query "metrics.f1 > 0.9 and params.recipe.learning_rate < 5e-5"\n'
    "orchestrator query \"task = 'mrpc'\" --group-by params.recipe.size --pivot seed",
)
@click.argument("text", metavar="QUERY")
@click.option("--sort", help="Field to sort by; `-FIELD` for descending order.")
@click.option("--since", metavar="AGE|DATE", help="Only those made since: 7d, 12h, or 2026-11-01 (UTC).")
@click.option("--archived", is_flag=True, help="Include archived runs.")
@grouping_options
@page_options("rows at most", _PAGE)
def query(
    text: str,
    sort: str | None,
    limit: int | None,
    offset: int,
    since: str | None,
    archived: bool,
    grouping: GroupingOptions | None,
    form: str | None,
    output: str | None,
) -> None:
    """Runs and trials for which a condition is true.

    Trials are shown with what varies between them. Fields: metrics.X (the validation value of a trial's best
    evaluation, the latest one of another run), metrics.test.X, metrics.train.X, params.X (a dotted spec path, or
    its last part when unique), task, state, kind, name, seed, tag, … Comparisons, chains of them (0.7 < metrics.f1 <
    0.9), ages (created_at > 7d), and/or/not, parentheses, in, like, between, is null. `orchestrator help queries`
    tells the rest.
    """
    from orchestrator.registry.group_records import varied_parameters

    if not text.strip() and since is None:
        raise click.UsageError(
            "the query is empty; give a condition, such as \"task = 'sst2'\"; `orchestrator runs list --trials` shows "
            "every run",
            click.get_current_context(),
        )
    text = since_too(text, since)
    limit = limit or num_rows_shown(_PAGE, form, output)
    if grouping is not None:
        show_groups(
            grouping,
            text,
            trials=True,
            archived=archived,
            sort=sort,
            limit=limit,
            offset=offset,
            form=form,
            output=output,
        )
        return
    with open_registry() as registry:
        table = registry.run_table(text, sort=sort or "-created_at", limit=limit, offset=offset, archived=archived)
        add_notes(registry, table.records)
        num_runs = num_in_all(registry, text, len(table.records), limit, offset, archived=archived)
        num_archived = 0 if archived else count_archived(registry, text)
        empty = no_such_run(registry, text) if not table.records else ""
        has_tests = any(column.startswith("metrics.test.") for column in table.columns)
        refusals = registry.test_refusals([row["id"] for row in table.records]) if has_tests else {}
    columns, rows = list(table.columns), table.records
    if shows_briefly(form, output):
        named = [
            column for column in columns if column.startswith(("metrics.", "params.")) and _is_named(column, text, sort)
        ]
        varied = varied_parameters([row for row in rows if row["parent"]])
        named += [name for name in varied if name not in named][:NUM_PARAMETERS_SHOWN]
        columns = ["id", "name", "kind", "state", "task", "seed", *named]
        if not any(column.startswith("metrics.") for column in named):
            columns += ["metric", "score"]
    for row in rows:
        row["score"] = row.get(f"metrics.{row['metric']}") if row.get("metric") else None
    spare = ["metric", *_of_one_value(rows), "kind", "state", "task", "name", "seed"]
    sorts_by = (sort or "").lstrip("-")
    spare = [column for column in spare if column != sorts_by]
    if not rows and num_runs:
        empty = f"there are {num_runs:,} runs"
    show_rows(rows, columns, form, output, empty=empty, spare=spare)
    tell_more(len(rows), num_runs, offset)
    tell_archived(num_archived)
    if any(column.startswith("metrics.test.") for column in columns):
        tell_refused(refusals)


def _of_one_value(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Columns that are the same in every one of several rows, and that a narrow terminal can therefore do without."""
    columns = ("kind", "state", "task", "seed")
    return [column for column in columns if len(rows) > 1 and len({row[column] for row in rows}) == 1]


def _is_named(column: str, text: str, sort: str | None) -> bool:
    """Whether the query or the sort key names a column: a parameter by the last part of its path."""
    mentioned = f"{text} {sort or ''}".replace('."', ".").replace(".'", ".")
    if not column.startswith("params."):
        return column in mentioned
    return column.rpartition(".")[2] in (
        path.rpartition(".")[2] for path in re.findall(r"params\.([\w./-]+)", mentioned)
    )
