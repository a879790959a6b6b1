"""Options of commands that show rows or a record: which rows and columns, and where and how these are written."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from orchestrator.cells import heading
from orchestrator.cli.output_option import output_option
from orchestrator.registry.records import MOST_ROWS

F = TypeVar("F", bound=Callable[..., Any])

_NUM_NAMED = 20
"""Columns that are named to somebody who asks for one that there is not."""
READING = "orchestrator.reading"
"""Key in a click context's `meta` of the options that were given."""


@dataclass(frozen=True)
class Reading:
    """Options of reading that were given to the command that is running."""

    columns: tuple[str, ...] = ()
    """Columns to show, in this order; empty: the command's own."""
    wide: bool = False
    """Whether everything is shown, however wide."""
    limit: int | None = None
    """Number of rows at most."""
    raw: bool = False
    """Whether CSV has texts as they are, also those that a spreadsheet would take for a formula."""
    offset: int = 0
    """Number of rows to leave out before the first one."""


def current_reading() -> Reading:
    """Options of the command that is running; none outside of a command."""
    context = click.get_current_context(silent=True)
    given = context.meta.get(READING, {}) if context else {}
    names = tuple(name for name in given.get("columns", "").split(",") if name)
    return Reading(
        columns=tuple(name.strip() for name in names),
        wide=bool(given.get("wide")),
        limit=given.get("rows_limit"),
        raw=bool(given.get("raw")),
        offset=given.get("rows_offset", 0),
    )


def find_columns(wanted: Sequence[str], rows: Sequence[Mapping[str, Any]], own: Sequence[str]) -> list[str]:
    """The columns that a person names, by their names or headings. Raises: InputError, with the nearest names.

    Args:
        rows: rows, whose keys are columns too; where there are none, any other name stands for itself.
        own: columns that the command shows by itself.
    """
    known = dict.fromkeys([*own, *(key for row in rows for key in row)])
    by_heading = {heading(column).lower(): column for column in reversed(known)}
    found = []
    for name in wanted:
        column = name if name in known else by_heading.get(name.lower())
        if column is None and rows:
            from orchestrator.errors import InputError
            from orchestrator.nearest import did_you_mean

            several = [other for other in known if other.endswith(f".{heading(name)}")]
            if len(several) > 1:
                raise InputError(f"--columns: {name} is {' or '.join(several)}; say which")
            near = did_you_mean(name.lower(), [*by_heading])
            ending = near if "did you mean" in near else _some(known, own)
            raise InputError(f"--columns: there is no column {name!r} here{ending}")
        found.append(column or name)
    return list(dict.fromkeys(found))


def _some(known: Iterable[str], own: Sequence[str]) -> str:
    """Ending of a message that names columns: the command's own in their order, then others in that of the alphabet."""
    names = [*map(heading, own), *sorted(heading(column) for column in known if column not in own)]
    names = list(dict.fromkeys(names))
    return f"; there are: {', '.join(names[:_NUM_NAMED])}{', …' if len(names) > _NUM_NAMED else ''}"


def _remember_reading(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value:
        context.meta.setdefault(READING, {})[parameter.name] = value


raw_option = click.option(
    "--raw",
    is_flag=True,
    expose_value=False,
    callback=_remember_reading,
    help="Leave texts in CSV as they are; otherwise a spreadsheet finds no formula in them.",
)


def output_options(command: F) -> F:
    """Add the options of commands that show a record: those of its form, and `-o/--output`."""
    return form_options(output_option("Write to a file; .json and .csv set the format")(command))


def form_options(command: F) -> F:
    """Add the options that say how a record is shown: `-f/--format`, `--columns` and `--wide`.

    `show_rows` and `show_record` obey the last two; a command need not know of them.
    """
    for option in (
        click.option(
            "--wide",
            is_flag=True,
            expose_value=False,
            callback=_remember_reading,
            help="Show everything, however narrow the terminal.",
        ),
        click.option(
            "--columns",
            metavar="A,B,C",
            expose_value=False,
            callback=_remember_reading,
            help="Show these columns alone, in this order.",
        ),
        raw_option,
        click.option(
            "-f",
            "--format",
            "form",
            type=click.Choice(["table", "json", "csv"]),
            help="Form of the output; table by default.",
        ),
    ):
        command = option(command)
    return command


class _Limit(click.IntRange):
    """Number of rows at most, or `all`."""

    def __init__(self) -> None:
        super().__init__(1, MOST_ROWS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return MOST_ROWS if value == "all" else super().convert(value, param, ctx)


def limit_option(*names: str, **given: Any) -> Callable[[F], F]:
    """Option `--limit` of a command that shows rows."""
    return click.option("--limit", *names, type=_Limit(), metavar="N|all", **given)


def reading_options(command: F) -> F:
    """Add the options of commands that show rows: those of a record, `--limit` and `--offset`."""
    remembered: dict[str, Any] = {"expose_value": False, "callback": _remember_reading}
    offset = click.option(
        "--offset",
        "rows_offset",
        type=click.IntRange(0, MOST_ROWS),
        help="Number of rows to leave out before the first one.",
        **remembered,
    )
    return output_options(limit_option("rows_limit", help="Number of rows at most.", **remembered)(offset(command)))


def page_options(what: str, size: int) -> Callable[[F], F]:
    """Add the options of commands that read a page of the registry: those of a record, `--limit` and `--offset`.

    Args:
        what: what the rows are, for the help: `runs, the newest ones`.
        size: number of rows on a terminal unless `--limit` gives another (`num_rows_shown`).
    """
    limit = limit_option(help=f"Number of {what}; {size} on a terminal when left out.")
    offset = click.option(
        "--offset",
        type=click.IntRange(0, MOST_ROWS),
        default=0,
        help="Number of them to leave out before the first one.",
    )
    return lambda command: output_options(limit(offset(command)))
