"""Options of commands that list runs, to show groups of them in place of each: `--group-by`, `--agg`, `--pivot`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from orchestrator.cli.commands.registry_reading import count_archived, open_registry, tell_archived
from orchestrator.cli.commands.run_conditions import no_such_run
from orchestrator.cli.messages import notify, tell_more
from orchestrator.cli.output import show_rows
from orchestrator.progress import counted

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class GroupingOptions:
    """Options of grouping as they were given."""

    by: str
    aggregates: str
    pivot: str | None


def grouping_options(command: F) -> F:
    """Add `--group-by`, `--agg` and `--pivot` to a command, which takes them as `grouping`: None without the first."""

    def gather(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        context.meta.setdefault(GroupingOptions.__name__, {})[parameter.name] = value
        given = context.meta[GroupingOptions.__name__]
        if len(given) == len(_OPTIONS):
            context.params["grouping"] = _options(given)

    for flags, metavar, text in reversed(_OPTIONS):
        option = click.option(*flags, metavar=metavar, help=text, expose_value=False, callback=gather)
        command = option(command)
    return command


_OPTIONS = (
    (("--group-by", "group_by"), "FIELD,…", "Show groups of runs with equal values of these fields."),
    (
        ("--agg", "aggregates"),
        "NAME,…",
        "What of each group: count, n, mean, sd, min, max, median, sum, best, worst; of the score of what completed, "
        "or max(seconds).",
    ),
    (("--pivot", "pivot"), "FIELD", "Show the groups' means with a column for each value of this field."),
)


def _options(given: dict[str, str | None]) -> GroupingOptions | None:
    by, aggregates, pivot = given["group_by"], given["aggregates"], given["pivot"]
    if by is not None:
        return GroupingOptions(by, aggregates or "", pivot)
    for flag, value in (("--agg", aggregates), ("--pivot", pivot)):
        if value is not None:
            raise click.UsageError(
                f"{flag} is about groups; say by which field: --group-by params.recipe.learning_rate"
            )
    return None


def show_groups(
    grouping: GroupingOptions,
    filter: str,
    *,
    trials: bool,
    archived: bool,
    sort: str | None,
    limit: int | None,
    offset: int,
    form: str | None,
    output: str | None,
) -> None:
    """Show the groups of the runs that a query selects, as runs are shown. Raises: InputError."""
    with open_registry() as registry:
        table = registry.grouped(
            grouping.by,
            filter,
            aggregates=grouping.aggregates,
            pivot=grouping.pivot,
            sort=sort,
            trials=trials,
            archived=archived,
        )
        num_archived = 0 if archived else count_archived(registry, filter, trials=trials)
        are_without_value = len(table.records) == 1 and table.records[0][table.columns[0]] is None
        hides_trials = (
            not trials and are_without_value and registry.num_runs(filter) > registry.num_runs(filter, trials=False)
        )
        empty = "" if table.records else no_such_run(registry, filter)
    rows = table.records[offset:][:limit]
    if table.records:
        empty = f"there are {counted(len(table.records), 'group')}"
    show_rows(rows, table.columns, form, output, empty=empty)
    tell_more(len(rows), len(table.records), offset)
    for note in table.notes:
        notify(note)
    tell_archived(num_archived)
    if hides_trials:
        notify(f"no run has {table.columns[0]}, and trials are left out; with them: --trials")
