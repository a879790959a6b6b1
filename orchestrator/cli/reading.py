"""Reading: options that say what is shown and where, and the registry that commands read.

`-f`, `-o`, and of lists `--columns` and `--limit`, stand in a command's help; the others in `orchestrator help output`.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orchestrator.cells import heading
from orchestrator.cli.frame import command, current_settings, options
from orchestrator.cli.messages import notify
from orchestrator.errors import InputError
from orchestrator.progress import counted
from orchestrator.run_ids import is_run_id

if TYPE_CHECKING:
    from orchestrator.registry import Registry
    from orchestrator.registry.records import RunRecord

F = TypeVar("F", bound=Callable[..., Any])

_NUM_NAMED = 20
"""Columns that are named to somebody who asks for one that there is not."""
TABLE_ENDINGS = (".json", ".csv", ".txt", "")
_MOST_ROWS = 2**31 - 1
"""Rows that a page may begin with or have: the registry refuses more."""
_LONGEST = timedelta(days=36_500)
"""Age that a calendar still has; a day much further back is none."""
READING = "orchestrator.reading"
"""Key in a click context's `meta` of the options that were given."""


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
    """Whether everything is shown, however wide."""
    limit: int | None = None
    raw: bool = False
    """Whether CSV has texts as they are, also those that a spreadsheet would take for a formula."""
    offset: int = 0
    """Number of rows to skip before the first one."""

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


def forget_output() -> Reading:
    """Options of a command that writes something else than its record into the file that `-o` names."""
    click.get_current_context().meta[READING].pop("output")
    return current_reading()


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
            from orchestrator.nearest import nearest

            several = [other for other in known if other.endswith(f".{heading(name)}")]
            if len(several) > 1:
                raise InputError(f"--columns: {name} is {' or '.join(several)}; say which")
            close = nearest(name.lower(), by_heading, 1)
            there = list(dict.fromkeys([*map(heading, own), *sorted(map(heading, known))]))
            listed = ", ".join([*there[:_NUM_NAMED], *(["…"] if len(there) > _NUM_NAMED else [])])
            ending = f"did you mean {close[0]}?" if close else f"there are: {listed}"
            raise InputError(f"--columns: there is no column {name!r} here; {ending}")
        found.append(column or name)
    return list(dict.fromkeys(found))


def remember_reading(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    if value:
        context.meta.setdefault(READING, {})[parameter.name] = value
    return value


class _Limit(click.ParamType[int]):
    """Number of rows at most, or `all`."""

    name = "limit"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value == "all":
            return _MOST_ROWS
        try:
            return click.IntRange(1, _MOST_ROWS).convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is no number of rows; give one from 1 on, or all", param, ctx)


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
        reading(
            "--limit",
            type=_Limit(),
            metavar="N|all",
            hidden=not is_list,
            help="Maximum number of rows; a terminal shows a page.",
        ),
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


def age_s(age: str, option: str, or_else: str = "") -> float:
    """Seconds of an age such as `30d` or `12h`, the value of an option that takes `or_else` too. Raises: InputError."""
    from orchestrator.registry.query_language import Age

    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", age)
    if found is None:
        raise InputError(f"{option} is {age}; give an age such as 30d, 12h, 90m, 45s or 2w{or_else}")
    seconds = Age(float(found[1]), found[2]).seconds
    if seconds > _LONGEST.total_seconds():
        raise InputError(f"{option} is {age}; give {_LONGEST.days}d at most")
    return seconds


def time_of(since: str | None) -> datetime | None:
    """Time of `--since`, an age or a day; without a zone it is in UTC, as in queries and tables. Raises: InputError."""
    if since is None:
        return None
    try:
        time = datetime.fromisoformat(since)
    except ValueError:
        if since[:4].isdigit() and since[4:5] == "-":
            raise InputError(f"--since is {since}, which the calendar has not; give a day such as 2026-11-22") from None
        return datetime.now(UTC) - timedelta(seconds=age_s(since, "--since", ", or a day such as 2026-11-22"))
    return time if time.tzinfo else time.replace(tzinfo=UTC)


NUM_LISTED = 5
"""Runs of one name that a message lists."""
NUM_PARAMETERS_SHOWN = 4
"""Columns of what varies in a table for a person; files and `--wide` have all."""


def open_registry() -> "Registry":
    """Open the registry for reading; before the first run it is empty. Raises: RegistryError for a mistyped one."""
    from orchestrator.errors import RegistryError
    from orchestrator.registry import Registry

    settings = current_settings()
    registry = Registry(settings.registry, read_only=True)
    if "registry" in settings.given and registry.current_revision() is None:
        registry.close()
        raise RegistryError(
            f"There is no registry at {registry.place}; check the path, or let a first run make it: `orchestrator demo`"
        )
    return registry


def open_for_writing() -> "Registry":
    """Open the registry for writing; a mistyped path is told, not made."""
    from orchestrator.registry import Registry

    open_registry().close()
    return Registry(current_settings().registry)


def table_command(name: str | None = None, *, example: str) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function that gets an open registry and the command's own parameters, and shows rows."""

    def make(function: Callable[..., None]) -> click.Command:
        @wraps(function)
        def show(**given: Any) -> None:
            with open_registry() as registry:
                function(registry, **given)

        attributes = vars(show)
        own = attributes.pop("__click_params__", [])  # in the help they stand before those of every list
        list_options(show)
        attributes["__click_params__"] += own
        return command(name, example=example)(show)

    return make


def find_run(registry: "Registry", wanted: str, *, only: bool = False, or_task: bool = False) -> "RunRecord":
    """The run or trial that a person means: by its exact name, its whole id, or the beginning of its id.

    Of several runs of a name the newest, which is said. Raises: NotFoundError, with the nearest name.

    Args:
        only: whether a name that several runs have is an error, for a command that takes something away.
        or_task: whether the nearest name may be a task's, for a command that takes tasks, too.
    """
    run = registry.find_run(wanted, or_task=or_task)
    called = registry.newest_called(run.name) if run.name == wanted and not run.id.startswith(wanted) else None
    num_called = called[1] if called else 1
    if num_called > 1 and only:
        from orchestrator.errors import SeveralRunsError
        from orchestrator.registry.query_language import quoted

        table = registry.run_table(f"name = {quoted(run.name)}", trials=run.parent_id is not None, limit=NUM_LISTED)
        ids = ", ".join([*table.values("id"), *(["…"] if num_called > NUM_LISTED else [])])
        raise SeveralRunsError(f"{num_called} runs are called {run.name}; give the id of one: {ids}")
    if num_called > 1:
        others = "runs list" if run.parent_id is None else "runs list --trials"
        notify(f"{num_called} runs are called {run.name}; this is the newest, {run.id} (`{others}` has the others)")
    return run


def run_id_of(wanted: str) -> str:
    """Whole id of the run that `find_run` finds. A whole id stays as it is: a run that has just been submitted may not
    be recorded yet. Raises: NotFoundError."""
    from orchestrator.registry.database import retry_while_unavailable

    if is_run_id(wanted):
        return wanted

    def look_up() -> str:
        with open_registry() as registry:
            return find_run(registry, wanted).id

    return retry_while_unavailable(look_up)


def no_runs(registry: "Registry") -> str:
    """Message of a registry without runs: where it lies, and how to begin."""
    return f"no runs yet in {registry.place}: `orchestrator demo`, or `orchestrator init FILE` of your own data"


def tell_archived(num_runs: int) -> None:
    """Say how many archived runs are not shown, if any, and how to see them."""
    if num_runs:
        notify(f"{counted(num_runs, 'archived run')} not shown; --archived shows them")
