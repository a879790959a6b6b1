"""Options of commands that show rows or a record: what is shown, in which form, and where it is written.

`-f`, `-o`, and of lists `--columns` and `--limit`, stand in a command's help; the others in `orchestrator help output`.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path, PurePath
from typing import Any, TypeVar

import click

from orchestrator.base.console import names_text
from orchestrator.base.errors import InputError
from orchestrator.base.formatting import heading

F = TypeVar("F", bound=Callable[..., Any])

_NUM_NAMED = 20
"""Columns that are named to somebody who asks for one that there is not."""
TABLE_ENDINGS = (".json", ".csv", ".txt", "")
_MOST_ROWS = 2**31 - 1
"""Rows that a page may begin with or have: the registry refuses more."""
READING = "orchestrator.reading"
"""Key in a click context's `meta` of the options that were given."""


def options(*several: Callable[[F], F]) -> Callable[[F], F]:
    """Several options and arguments as one decorator, which has them in the order of the help."""
    return lambda function: reduce(lambda done, option: option(done), reversed(several), function)


@dataclass(frozen=True)
class Reading:
    """Options of reading that were given to the command that is running."""

    form: str = "table"
    """`table`, `json` or `csv`: what `-f` says, else the ending of `-o`."""
    output: str | None = None
    """File that `-o` names; None: stdout."""
    columns: tuple[str, ...] = ()
    """Columns to show, in this order; empty: the command's own."""
    wide: bool = False
    limit: int | None = None
    raw: bool = False
    """Whether CSV has texts as they are, also those that a spreadsheet would take for a formula."""
    offset: int = 0

    @property
    def is_brief(self) -> bool:
        """Whether rows become a table for a person, with the columns that matter most, rather than all there is."""
        return self.form == "table" and self.output is None and not self.wide


def current_reading() -> Reading:
    """Options of the command that is running; none outside of a command."""
    context = click.get_current_context(silent=True)
    given = dict(context.meta.get(READING, {})) if context else {}
    names = tuple(name.strip() for name in given.pop("columns", "").split(",") if name.strip())
    ending = PurePath(given.get("output", "")).suffix.lstrip(".")
    form = given.pop("form", ending if ending in ("json", "csv") else "table")
    return Reading(form, columns=names, **given)


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
            from orchestrator.base.nearest import nearest

            several = [other for other in known if other.endswith(f".{heading(name)}")]
            if len(several) > 1:
                raise InputError(f"--columns: {name} is {' or '.join(several)}; say which")
            close = nearest(name.lower(), by_heading, 1)
            known_names = names_text([*reversed(by_heading)], _NUM_NAMED)
            ending = f"did you mean {close[0]}?" if close else f"there are: {known_names}"
            raise InputError(f"--columns: there is no column {name!r} here; {ending}")
        found.append(column or name)
    return list(dict.fromkeys(found))


def remember_reading(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    if value:
        context.meta.setdefault(READING, {})[parameter.name] = value
    return value


def _limit(text: str) -> int:
    """Number of rows at most, or `all`. Raises: BadParameter."""
    if text != "all" and not (text.isdecimal() and 1 <= int(text) <= _MOST_ROWS):
        raise click.BadParameter(f"{text!r} is no number of rows; give one from 1 on, or all")
    return _MOST_ROWS if text == "all" else int(text)


def _reading_options(*, is_list: bool) -> Callable[[F], F]:
    """Options that say how a table or a record is shown; of a list its help has also which columns and rows."""

    def reading(*names: str, hidden: bool = True, **given: Any) -> Callable[[F], F]:
        return click.option(*names, expose_value=False, callback=remember_reading, hidden=hidden, **given)

    formats = click.Choice(["table", "json", "csv"])
    return options(
        # Eager: `-o` is checked after it.
        reading(
            "-f", "--format", "form", type=formats, is_eager=True, hidden=False, help="Output format. [default: table]"
        ),
        reading("--columns", metavar="A,B,…", hidden=not is_list, help="Columns to show, in order."),
        reading("--limit", type=_limit, metavar="N|all", hidden=not is_list, help="Maximum number of rows."),
        reading("--wide", is_flag=True, help="All columns and whole texts, however wide the table becomes."),
        reading("--raw", is_flag=True, help="Do not escape CSV cells that start like a formula."),
        reading("--offset", type=click.IntRange(0, _MOST_ROWS), help="Skip the first N rows."),
    )


def output_option(
    text: str, *, required: bool = False, endings: Sequence[str] = (), expose_value: bool = True
) -> Callable[[F], F]:
    """Add `-o/--output FILE` to a command; a place that cannot be written is refused before the command begins.

    Args:
        endings: endings of the files that the command writes unless `-f` names a format; none: the command looks.
    """

    def check(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
        if value is None or context.resilient_parsing:
            return value
        if value == "-" and not required:
            return None  # stdout
        check_output(value)
        is_form_given = "form" in context.meta.get(READING, {})
        if endings and not is_form_given and PurePath(value).suffix not in endings:
            listed = ", ".join(filter(None, endings))
            raise click.BadParameter(f"{value} ends in none of {listed}; name such a file, or the format by -f")
        return str(remember_reading(context, parameter, value))

    return click.option(
        "-o", "--output", metavar="FILE", required=required, callback=check, expose_value=expose_value, help=text
    )


_table_output = output_option(
    "Write to FILE; .json and .csv set the format.", endings=TABLE_ENDINGS, expose_value=False
)
format_options = _reading_options(is_list=False)
"""Options that say how a record or a short table is shown."""
output_options = options(format_options, _table_output)
"""Options of commands that show a record or a short table: `-f/--format` and `-o/--output`."""
list_options = options(_reading_options(is_list=True), _table_output)
"""Options of commands that show a list: also `--columns` and `--limit`."""


def check_output(output: str | None) -> None:
    """Check that a local file can be written where `-o` says, in a folder that is there: one that is not is more often
    a slip than wanted. Raises: InputError."""
    from orchestrator.storage.uris import is_local

    if output in (None, "-") or not is_local(output):
        return
    path = output_path(output)
    if path.is_dir():
        raise InputError(f"{output} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise InputError(f"{output}: there is no folder {path.parent}; make it first (mkdir -p), or name another file")
    if not os.access(path if is_stream(path) else path.parent, os.W_OK):
        raise InputError(f"{output} cannot be written: permission denied; name another file")


def output_path(output: str) -> Path:
    """The file itself where `output` is a link; a device or a pipe as it is named."""
    from orchestrator.storage.uris import local_path

    path = local_path(output)
    return path.absolute() if is_stream(path) else path.resolve()


def is_stream(path: Path) -> bool:
    """Whether a path is a device or a pipe."""
    return path.exists() and not path.is_file() and not path.is_dir()


def age_s(age: str, option: str, or_else: str = "") -> float:
    """Seconds of an age such as `30d` or `12h`, the value of an option that takes `or_else` too. Raises: InputError."""
    from orchestrator.registry.query_language import Age

    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", age)
    if found is None:
        raise InputError(f"{option} is {age}; give an age such as 30d, 12h, 90m, 45s or 2w{or_else}")
    try:
        return Age(float(found[1]), found[2]).seconds
    except ValueError as error:
        raise InputError(f"{option} is {age}; {error}") from None


def time_of(since: str | None) -> datetime | None:
    """Time of `--since`, an age or a day; without a zone it is in UTC, as in queries and tables. Raises: InputError."""
    if since is None:
        return None
    try:
        time = datetime.fromisoformat(since)
    except ValueError:
        return datetime.now(UTC) - timedelta(seconds=age_s(since, "--since", ", or a day such as 2026-11-22"))
    return time if time.tzinfo else time.replace(tzinfo=UTC)
