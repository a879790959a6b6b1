"""`runs list` and `query`: runs and trials that a query selects, or groups of them."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orchestrator.cli.frame import GlobalOptionsCommand, refuse_options
from orchestrator.cli.messages import notify
from orchestrator.cli.output import page_size, show_rows, shows_briefly
from orchestrator.cli.reading import current_reading, list_options, time_of
from orchestrator.cli.registry_reading import (
    NUM_PARAMETERS_SHOWN,
    add_notes,
    no_runs,
    open_registry,
    tell_archived,
    tell_refused,
)
from orchestrator.progress import counted
from orchestrator.run_states import RunState

if TYPE_CHECKING:
    from orchestrator.registry import Registry
    from orchestrator.registry.records import RecordTable

F = TypeVar("F", bound=Callable[..., Any])
_PAGE = 30
"""Rows on a terminal, of runs or groups; `--limit` gives more of them."""
_SHOWN_REASON = 50
"""Characters of an error in a short table; JSON, CSV and `--wide` have all of it."""
_REMOVED_COLUMNS = ["id", "name", "kind", "trials", "num_bytes", "removed_at", "storage_path"]


@dataclass(frozen=True)
class _Asked:
    """Runs, or groups of them, that a command was asked for."""

    query: str
    trials: bool
    archived: bool
    sort: str | None
    group_by: str | None
    aggregates: str | None
    pivot: str | None
    form: str | None
    output: str | None

    @property
    def limit(self) -> int | None:
        """Number of rows at most; None for all."""
        return page_size(_PAGE, self.form, self.output)

    @property
    def selects(self) -> dict[str, bool]:
        """Kinds of runs that are selected, as the methods of a registry take them."""
        return {"trials": self.trials, "archived": self.archived}


class _States(click.Choice[RunState]):
    """One state of runs, or several with commas between them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return [super(_States, self).convert(word.strip(), param, ctx) for word in str(value).split(",")]


def _selecting_options(command: F) -> F:
    """Add the options that `runs list` and `query` have in common."""
    for option in (
        list_options,
        click.option("--pivot", metavar="FIELD", help="With --group-by: a column for each value of FIELD."),
        click.option("--agg", "aggregates", metavar="NAME,…", help="With --group-by: count, n, mean, sd, min, max, "
                     "median, sum, best, worst of the score, or of a field: max(seconds)."),
        click.option("--group-by", metavar="FIELD,…", help="Aggregate over runs with equal values of these fields."),
        click.option("--sort", metavar="FIELD", help="Sort by FIELD; -FIELD: descending. [default: -created_at]"),
        click.option("--since", metavar="AGE|DATE", help="Created within 7d or 12h, or since 2026-11-01 (UTC)."),
        click.option("--archived", is_flag=True, help="Include archived runs."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command(
    "list",
    cls=GlobalOptionsCommand,
    example="orchestrator runs list --state failed --since 7d\n"
    "orchestrator runs list --trials --group-by params.recipe.size --agg mean,count",
)
@click.argument("text", metavar="[QUERY]", required=False)
@click.option("--trials", is_flag=True, help="Include trials of sweeps.")
@click.option("--removed", is_flag=True, help="List removed runs, which can be restored.")
@click.option(
    "--state",
    "states",
    type=_States(list(RunState), case_sensitive=False),
    multiple=True,
    metavar="STATE,…",
    help=f"Runs in one of these states: {', '.join(state.lower() for state in RunState)}.",
)
@click.option("--task", metavar="TASK", help="Runs of this task (its id, such as sst2).")
@click.option("--kind", metavar="KIND", help="Runs of this kind of spec (`orchestrator schema`).")
@_selecting_options
def list_runs(
    text: str | None,
    trials: bool,
    removed: bool,
    states: tuple[list[RunState], ...],
    task: str | None,
    kind: str | None,
    since: str | None,
    **asked: Any,
) -> None:
    """List runs, newest first.

    QUERY is a condition (`orchestrator help queries`). A run that did not complete shows its last step and its error;
    lost: its process disappeared; pruned: a trial that the scheduler ended early.
    """
    if removed:
        others = ("text", "trials", "states", "task", "kind", "since", "archived", "sort", "group_by", "aggregates")
        refuse_options((*others, "pivot"), "does not go with --removed, which lists all removed runs")
        _show_removed(asked["form"], asked["output"])
        return
    _check_kind(kind)
    own = _conditions([state for several in states for state in several], task, kind)
    _show(_Asked(_and_since(text or "", since, own), trials=trials, **asked))


@click.command(
    cls=GlobalOptionsCommand,
    example='orchestrator query "metrics.f1 > 0.9 and params.recipe.learning_rate < 5e-5"\n'
    "orchestrator query \"task = 'mrpc'\" --group-by params.recipe.size --pivot seed",
)
@click.argument("text", metavar="QUERY")
@_selecting_options
def query(text: str, since: str | None, **asked: Any) -> None:
    """List runs and trials that match a query.

    Like `runs list --trials QUERY`, with the parameters that vary. Fields: metrics.X (validation value: of a trial at
    its best evaluation, of other runs the latest), metrics.test.X, metrics.train.X, params.X (a dotted spec path, or
    its last part when unique), task, state, kind, name, seed, tag, … Comparisons (also 0.7 < metrics.f1 < 0.9), ages
    (created_at > 7d), and/or/not, in, like, between, is null. `orchestrator help queries` has the whole language.
    """
    if not text.strip() and since is None:
        raise click.UsageError(
            "the query is empty; give a condition, such as \"task = 'sst2'\"; `orchestrator runs list --trials` shows "
            "every run",
            click.get_current_context(),
        )
    _show(_Asked(_and_since(text, since, []), trials=True, **asked))


def _show(asked: _Asked) -> None:
    if asked.group_by is None:
        for flag, value in (("--agg", asked.aggregates), ("--pivot", asked.pivot)):
            if value is not None:
                raise click.UsageError(f"{flag} needs --group-by FIELD, such as params.recipe.learning_rate")
    with open_registry() as registry:
        (_show_runs if asked.group_by is None else _show_groups)(registry, asked)


def _show_runs(registry: "Registry", asked: _Asked) -> None:
    offset = current_reading().offset
    page = {"sort": asked.sort or "-created_at", "limit": asked.limit, "offset": offset}
    table = registry.run_table(asked.query, **page, **asked.selects)  # type: ignore[arg-type]
    rows = table.records
    add_notes(registry, rows)
    is_whole = not offset and (asked.limit is None or len(rows) < asked.limit)
    total = len(rows) if is_whole else registry.num_runs(asked.query, **asked.selects)
    num_archived = _num_archived(registry, asked)
    has_tests = any(column.startswith("metrics.test.") for column in table.columns)
    for row in rows:
        row["score"] = row.get(f"metrics.{row['metric']}") if row.get("metric") else None
        row["step"] = None if row["state"] == RunState.COMPLETED else registry.metrics.last_step(row["id"])
        row["progress"] = _progress(row["step"], row["error"])
    columns, spare = [*table.columns, "score", "step"], _of_one_value(rows)
    if shows_briefly(asked.form, asked.output):
        columns = _brief_columns(table, asked)
        spare = [name for name in spare if name != (asked.sort or "").lstrip("-")]
    empty = _why_empty(registry, asked, num_archived) if not total else ""
    show_rows(rows, columns, asked.form, asked.output, empty=empty, spare=spare, total=total)
    tell_archived(num_archived)
    if has_tests and any(column.startswith("metrics.test.") for column in columns):
        tell_refused(registry.test_refusals([row["id"] for row in rows]))


def _brief_columns(table: "RecordTable", asked: _Asked) -> list[str]:
    """Columns for a person: what the query names and what varies between trials, beside what tells runs apart."""
    from orchestrator.registry.group_records import varied_parameters

    rows = table.records
    named = [name for name in table.columns if _is_named(name, f"{asked.query} {asked.sort or ''}")]
    varied = varied_parameters([row for row in rows if row["parent"]])
    named += [name for name in varied if name not in named][:NUM_PARAMETERS_SHOWN]
    scored = [] if any(name.startswith("metrics.") for name in named) else ["metric", "score"]
    if asked.trials:
        return ["id", "name", "kind", "state", "task", "seed", *named, *scored]
    progress = ["progress"] if any(row["progress"] for row in rows) else []
    return ["id", "name", "kind", "state", "task", *named, *scored, "seconds", "created_at", *progress]


def _of_one_value(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Columns that a narrow terminal can do without: first those that are the same in every one of several rows."""
    spare = ("seconds", "metric", "kind", "state", "created_at", "task", "name", "seed")
    same = [name for name in spare if len(rows) > 1 and len({row.get(name) for row in rows}) == 1]
    return list(dict.fromkeys(["metric", *same, *spare]))


def _is_named(column: str, text: str) -> bool:
    """Whether a query or a sort key names a measurement or a parameter, this by the last part of its path."""
    mentioned = text.replace('."', ".").replace(".'", ".")
    if not column.startswith("params."):
        return column.startswith("metrics.") and column in mentioned
    last = {path.rpartition(".")[2] for path in re.findall(r"params\.([\w./-]+)", mentioned)}
    return column.rpartition(".")[2] in last


def _progress(step: int | None, error: Any) -> str | None:
    """Text on how far a run came, and the first words of why it ended: `step 1,200: the loss is not finite`."""
    at = None if step is None else f"step {step:,}"
    line = str(error).strip().splitlines()[0] if error else None
    if line is not None and len(line) > _SHOWN_REASON:
        line = line[: _SHOWN_REASON - 1].rstrip() + "…"
    return ": ".join(text for text in (at, line) if text) or None


def _show_groups(registry: "Registry", asked: _Asked) -> None:
    """Show aggregates over the runs that a query selects. Raises: InputError."""
    by = str(asked.group_by)
    more: dict[str, Any] = {"aggregates": asked.aggregates or "", "pivot": asked.pivot, "sort": asked.sort}
    table = registry.grouped(by, asked.query, **more | asked.selects)
    num_archived = _num_archived(registry, asked)
    empty = _why_empty(registry, asked, num_archived) if not table.records else ""
    show_rows(table.records, table.columns, asked.form, asked.output, empty=empty, page=_PAGE)
    for note in table.notes:
        notify(note)
    tell_archived(num_archived)
    are_without_value = len(table.records) == 1 and table.records[0][table.columns[0]] is None
    if are_without_value and not asked.trials and registry.num_runs(asked.query) > registry.num_runs(
        asked.query, trials=False
    ):  # fmt: skip
        notify(f"no run has {table.columns[0]}, and trials are left out; with them: --trials")


def _show_removed(form: str | None, output: str | None) -> None:
    from orchestrator.progress import size_text

    with open_registry() as registry:
        records = registry.trash.records()
    rows = [{"id": one.run_id, "trials": one.num_trials, **vars(one)} for one in records]
    show_rows(rows, _REMOVED_COLUMNS, form, output, empty="no run is removed", spare=["kind", "trials"], page=_PAGE)
    if records:
        size = size_text(sum(one.num_bytes for one in records))
        notify(f"{counted(len(records), 'run')}, {size}; `orchestrator gc` deletes them for good")


def _num_archived(registry: "Registry", asked: _Asked) -> int:
    """Number of archived runs that the query selects, where they are left out."""
    if asked.archived or not registry.annotations.flagged("archived"):
        return 0
    return registry.num_runs(asked.query, trials=asked.trials) - registry.num_runs(asked.query, **asked.selects)


def _why_empty(registry: "Registry", asked: _Asked, num_archived: int) -> str:
    """Message of a query that finds nothing: with the words that no run has, and those that there are."""
    if asked.query:
        return "; ".join(["no matching runs", *registry.unmatched(asked.query)])
    return "every run is archived" if num_archived else no_runs(registry)


def _check_kind(kind: str | None) -> None:
    """Raise InputError for a kind that no run has."""
    if kind is None:
        return
    from orchestrator.errors import InputError
    from orchestrator.nearest import did_you_mean
    from orchestrator.specs.kinds import SPEC_KINDS

    if kind not in (*SPEC_KINDS, "trial"):
        raise InputError(f"--kind: {kind!r} is no kind of run{did_you_mean(kind, SPEC_KINDS)}")


def _conditions(states: Sequence[RunState], task: str | None, kind: str | None) -> list[str]:
    """Conditions for the options that were given."""
    from orchestrator.registry.query_language import quoted

    conditions = [f"state in ({', '.join(map(quoted, states))})"] if states else []
    conditions += [f"{name} = {quoted(value)}" for name, value in (("task", task), ("kind", kind)) if value is not None]
    return conditions


def _and_since(text: str, since: str | None, conditions: Sequence[str]) -> str:
    """A query and further conditions. The query stays in front: carets stand under what was typed.

    Raises: InputError for a time that is none, and for a query with an error.
    """
    time, text = time_of(since, "--since"), text.strip()
    conditions = [*conditions, *([] if time is None else [f"created_at >= '{time.isoformat()}'"])]
    if not text or not conditions:
        return text or " and ".join(conditions)
    from orchestrator.registry.query_language import parse_filter

    parse_filter(text)  # by itself, so that it cannot close the parentheses that it is put into
    return " and ".join([f"({text})", *conditions])
