"""`runs list`: the newest runs, by state, task, kind and age."""

from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.commands.grouping import GroupingOptions, grouping_options, show_groups
from orchestrator.cli.commands.registry_reading import count_archived, no_runs, num_in_all, open_registry, tell_archived
from orchestrator.cli.commands.run_annotating import add_notes
from orchestrator.cli.commands.run_conditions import check_kind, given_conditions, no_such_run, since_too
from orchestrator.cli.frame import GlobalOptionsCommand
from orchestrator.cli.messages import tell_more
from orchestrator.cli.output import num_rows_shown, show_rows, shows_briefly
from orchestrator.cli.reading import page_options
from orchestrator.run_states import RunState

if TYPE_CHECKING:
    from orchestrator.registry import Registry

_PAGE = 30
_SHOWN_REASON = 50
"""Characters of an error in a short table; JSON, CSV and `--wide` have all of it."""


class _States(click.Choice[RunState]):
    """One state of runs, or several with commas between them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return [super(_States, self).convert(word.strip(), param, ctx) for word in str(value).split(",")]


@click.command(
    "list",
    cls=GlobalOptionsCommand,
    example="orchestrator runs list --state failed --since 7d\n"
    "orchestrator runs list --trials --group-by params.recipe.size --agg mean,count",
)
@click.option("--archived", is_flag=True, help="Include archived runs.")
@click.option("--trials", is_flag=True, help="Include the trials of sweeps.")
@click.option(
    "--state",
    "states",
    type=_States(list(RunState), case_sensitive=False),
    multiple=True,
    metavar="STATE,…",
    help=f"Only those in this state, or in one of several (A,B): {', '.join(state.lower() for state in RunState)}.",
)
@click.option("--task", metavar="TASK", help="Only those of this task.")
@click.option("--kind", metavar="KIND", help="Only those of this kind of spec.")
@click.option("--since", metavar="AGE|DATE", help="Only those made since: 7d, 12h, or 2026-11-01 (UTC).")
@click.option("--where", metavar="QUERY", help="Only those for which a query is true: `orchestrator help queries`.")
@click.option("--sort", help="Field to sort by; `-FIELD` for descending order. Of groups, a column.")
@grouping_options
@page_options("runs, the newest ones", _PAGE)
def list_runs(
    limit: int | None,
    offset: int,
    archived: bool,
    trials: bool,
    states: tuple[list[RunState], ...],
    task: str | None,
    kind: str | None,
    since: str | None,
    where: str | None,
    sort: str | None,
    grouping: GroupingOptions | None,
    form: str | None,
    output: str | None,
) -> None:
    """The newest runs, or groups of runs.

    Of a run that did not complete: the last step that was measured, and why it ended.
    """
    check_kind(kind)
    limit = limit or num_rows_shown(_PAGE, form, output)
    filter = since_too(given_conditions([state for several in states for state in several], task, kind, where), since)
    if grouping is not None:
        show_groups(
            grouping,
            filter,
            trials=trials,
            archived=archived,
            sort=sort,
            limit=limit,
            offset=offset,
            form=form,
            output=output,
        )
        return
    with open_registry() as registry:
        table = registry.run_table(
            filter, sort=sort or "-created_at", limit=limit, offset=offset, trials=trials, archived=archived
        )
        rows = table.records
        add_notes(registry, rows)
        for row in rows:
            if row["state"] != RunState.COMPLETED:
                row["step"] = registry.metrics.last_step(row["id"])
        num_runs = num_in_all(registry, filter, len(rows), limit, offset, trials=trials, archived=archived)
        num_archived = count_archived(registry, filter, trials=trials) if not archived else 0
        empty = "" if rows else _empty_text(registry, filter, num_archived)
    for row in rows:
        row["score"] = row.get(f"metrics.{row['metric']}") if row.get("metric") else None
    columns = ["id", "name", "kind", "state", "task", "metric", "score", "seconds", "created_at", "step", "error"]
    if shows_briefly(form, output):
        for row in rows:
            row["progress"] = _progress(row.get("step"), row["error"])
        columns = [*columns[:-2], *(["progress"] if any(row["progress"] for row in rows) else [])]
    spare = ["seconds", "metric", "kind", "created_at", "task"]
    if offset and not rows and num_runs:
        empty = f"there are {num_runs:,} runs"
    show_rows(rows, columns, form, output, empty=empty, spare=spare)
    tell_more(len(rows), num_runs, offset)
    tell_archived(num_archived)


def _empty_text(registry: "Registry", filter: str, num_archived: int) -> str:
    """Message in place of a list without runs.

    Args:
        num_archived: number of runs that it leaves out.
    """
    if filter:
        return no_such_run(registry, filter)
    return "every run is archived" if num_archived else no_runs(registry)


def _progress(step: int | None, error: Any) -> str | None:
    """Text on how far a run came, and the first words of why it ended: `step 1,200: the loss is not finite`."""
    at = None if step is None else f"step {step:,}"
    line = str(error).strip().splitlines()[0] if error else None
    if line is not None and len(line) > _SHOWN_REASON:
        line = line[: _SHOWN_REASON - 1].rstrip() + "…"
    return ": ".join(text for text in (at, line) if text) or None
