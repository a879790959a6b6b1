"""Options of commands that show rows or a record: which rows and columns, in which format, and where they are written.

`-f`, `-o`, and of lists `--columns` and `--limit`, stand in a command's help; the others in `orchestrator help output`.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from orchestrator.cells import heading
from orchestrator.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])

_NUM_NAMED = 20
"""Columns that are named to somebody who asks for one that there is not."""
_MOST_ROWS = 2**31 - 1
"""Rows that a page may begin with or have: the registry refuses more."""
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
    """Number of rows to skip before the first one."""


def current_reading() -> Reading:
    """Options of the command that is running; none outside of a command."""
    context = click.get_current_context(silent=True)
    given = dict(context.meta.get(READING, {})) if context else {}
    names = tuple(name.strip() for name in given.pop("columns", "").split(",") if name)
    return Reading(names, **given)


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


def remember_reading(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value:
        context.meta.setdefault(READING, {})[parameter.name] = value


def _reading_option(name: str, text: str, **given: Any) -> Callable[[F], F]:
    """Option that `current_reading` has; a command need not know of it."""
    return click.option(name, expose_value=False, callback=remember_reading, help=text, **given)


class _Limit(click.IntRange):
    """Number of rows at most, or `all`."""

    def __init__(self) -> None:
        super().__init__(1, _MOST_ROWS)

    def _describe_range(self) -> str:
        return ""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "all":
            return _MOST_ROWS
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is no number of rows; give one from 1 on, or all", param, ctx)


def format_options(command: F, *, is_list: bool = False) -> F:
    """Add the options that say how a record is shown; of a list also which columns and rows."""
    hidden = not is_list
    for option in (
        _reading_option("--offset", "Skip the first N rows.", type=click.IntRange(0, _MOST_ROWS), hidden=True),
        _reading_option("--raw", "Do not escape CSV cells that start like a formula.", is_flag=True, hidden=True),
        _reading_option("--wide", "Do not fit the table to the terminal.", is_flag=True, hidden=True),
        _reading_option(
            "--limit", "Maximum number of rows; a terminal shows a page.", type=_Limit(), metavar="N|all", hidden=hidden
        ),
        _reading_option("--columns", "Columns to show, in order.", metavar="A,B,…", hidden=hidden),
        click.option(
            "-f",
            "--format",
            "form",
            type=click.Choice(["table", "json", "csv"]),
            help="Output format. [default: table]",
        ),
    ):
        command = option(command)
    return command


def output_options(command: F) -> F:
    """Add the options of commands that show a record or a short table: `-f/--format` and `-o/--output`."""
    return format_options(output_option("Write to FILE; .json and .csv set the format.")(command))


def list_options(command: F) -> F:
    """Add the options of commands that show a list: also `--columns` and `--limit`."""
    return format_options(output_option("Write to FILE; .json and .csv set the format.")(command), is_list=True)


def output_option(text: str) -> Callable[[F], F]:
    """Add `-o/--output FILE` to a command; a place that cannot be written is refused before the command begins."""
    return click.option("-o", "--output", metavar="FILE", callback=_check_given, help=text)


def _check_given(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if not context.resilient_parsing:
        check_output(value)
    return value


def check_output(output: str | None) -> None:
    """Check that a file can be written where `-o` says, in a folder that is there.

    A folder is never made for a file: its name is more often a slip than wanted. Standard output ("-") and other URIs
    than `file:` are not looked at.

    Raises: InputError.
    """
    if output is None or output == "-":
        return
    from orchestrator.errors import InputError
    from orchestrator.storage.uris import is_local

    if not is_local(output):
        return
    path = output_path(output)
    if path.is_dir():
        raise InputError(f"{output} is a folder; name a file in it")
    there = next(parent for parent in path.parents if parent.exists())
    if not there.is_dir():
        raise InputError(f"{output} cannot be written: {there} is no folder; name another file")
    if there != path.parent:
        raise InputError(f"{output}: there is no folder {path.parent}; make it first (mkdir -p), or name another file")
    if not os.access(path if is_stream(path) else there, os.W_OK):
        raise InputError(f"{output} cannot be written: permission denied; name another file")


def output_path(output: str) -> Path:
    """The file itself where `output` is a link; a device or a pipe as it is named."""
    from orchestrator.storage.uris import local_path

    path = local_path(output)
    return path.absolute() if is_stream(path) else path.resolve()


def is_stream(path: Path) -> bool:
    """Whether a path is a device or a pipe."""
    return path.exists() and not path.is_file() and not path.is_dir()


_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0}
_DATE_SHAPED = re.compile(r"\d{4}-\d{1,2}-\d{1,2}")
_LONGEST_S = 36_500 * _UNITS_S["d"]
"""Age that a calendar still has; a day much further back is none."""


def age_s(age: str, option: str, *, or_else: str = "") -> float:
    """Seconds of an age such as `30d` or `12h`, the value of an option. Raises: InputError.

    Args:
        or_else: what the option takes beside an age, for the message.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", age)
    if found is None:
        raise InputError(f"{option} is {age}; give an age such as 30d, 12h, 90m, 45s or 2w{or_else}")
    seconds = float(found[1]) * _UNITS_S[found[2]]
    if seconds > _LONGEST_S:
        raise InputError(f"{option} is {age}; give 36500d at most")
    return seconds


def time_of(since: str | None, option: str) -> datetime | None:
    """Time that a day or an age means, the value of an option; without a zone it is in UTC, as in queries and tables.

    Raises: InputError.
    """
    if since is None:
        return None
    try:
        day = datetime.fromisoformat(since)
    except ValueError:
        if _DATE_SHAPED.match(since):
            raise InputError(
                f"{option} is {since}, which the calendar has not; give a day such as 2026-11-22"
            ) from None
        seconds = age_s(since, option, or_else=", or a day such as 2026-11-22")
        return datetime.now(UTC) - timedelta(seconds=seconds)
    return day if day.tzinfo else day.replace(tzinfo=UTC)
