"""`runs list` and `query`: runs and trials that a query selects, or groups of them."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from orchestrator.base.console import counted, names_text
from orchestrator.base.run_states import RunState
from orchestrator.cli.frame import given_options, refuse_options
from orchestrator.cli.messages import notify
from orchestrator.cli.output import PAGE, page_size, show_rows
from orchestrator.cli.reading import current_reading, options, time_of
from orchestrator.cli.registry_reading import NUM_LISTED, NUM_PARAMETERS_SHOWN, no_runs, table_command, tell_archived

if TYPE_CHECKING:
    from orchestrator.registry import Registry
    from orchestrator.registry.records import RecordTable

_SHOWN_REASON = 50
"""Characters of an error in a short table; JSON, CSV and `--wide` have all of it."""


_selecting_options = options(
    click.option("--archived", is_flag=True, help="Include archived runs."),
    click.option("--since", metavar="AGE|DATE", help="Created within 7d or 12h, or since 2026-11-01 (UTC)."),
    click.option("--sort", metavar="FIELD", help="Sort by FIELD; -FIELD: descending. [default: -created_at]"),
    click.option("--group-by", metavar="FIELD,…", help="Aggregate over runs with equal values of these fields."),
    click.option(
        "--agg",
        "aggregates",
        metavar="NAME,…",
        help="With --group-by: count, n, mean, sd, min, max, median, sum, best, worst of the score, or of a field: "
        "max(seconds).",
    ),
    click.option("--pivot", metavar="FIELD", help="With --group-by: a column for each value of FIELD."),
)


@table_command(
    "list",
    example="runs list --state failed --since 7d\nruns list --trials --group-by params.recipe.size --agg mean,count",
)
@click.argument("text", metavar="[QUERY]", required=False)
@click.option("--trials", is_flag=True, help="Include trials of sweeps.")
@click.option("--removed", is_flag=True, help="List removed runs, which can be restored.")
@click.option(
    "--state",
    "states",
    type=click.Choice([str(state) for state in RunState], case_sensitive=False),
    multiple=True,
    metavar="STATE",
    help=f"Runs in this state, repeatable: {', '.join(state.lower() for state in RunState)}.",
)
@click.option("--task", metavar="TASK", help="Runs of this task (its id, such as sst2).")
@click.option("--kind", metavar="KIND", help="Runs of this kind of spec; `orchestrator schema` lists them.")
@_selecting_options
def list_runs(
    registry: "Registry",
    text: str | None,
    trials: bool,
    removed: bool,
    states: tuple[str, ...],
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
        from orchestrator.base.console import size_text

        records = registry.trash.records()
        rows = [{"id": one.run_id, "trials": one.num_trials, **vars(one)} for one in records]
        columns = ["id", "name", "kind", "trials", "num_bytes", "removed_at", "storage_path"]
        show_rows(rows, columns, empty="no run is removed", spare=["kind", "trials"], page=PAGE)
        if records:
            size = size_text(sum(one.num_bytes for one in records))
            notify(f"{counted(len(records), 'run')}, {size}; `orchestrator{given_options()} gc` deletes them for good")
        return
    from orchestrator.registry.query_language import quoted

    given = (("state", states), ("task", [task] if task else []), ("kind", [kind] if kind else []))
    own = [f"{field} in ({', '.join(map(quoted, values))})" for field, values in given if values]
    _show_selected(registry, _and_since(text or "", since, own), trials=trials, **asked)


@table_command(
    example='query "metrics.f1 > 0.9 and params.recipe.learning_rate < 5e-5"\n'
    "query \"task = 'mrpc'\" --group-by params.recipe.size --pivot seed"
)
@click.argument("text", metavar="QUERY")
@_selecting_options
def query(registry: "Registry", text: str, since: str | None, **asked: Any) -> None:
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
    _show_selected(registry, _and_since(text, since, []), trials=True, **asked)


def _show_selected(
    registry: "Registry",
    query: str,
    *,
    trials: bool,
    archived: bool,
    group_by: str | None,
    aggregates: str | None,
    pivot: str | None,
    sort: str | None,
) -> None:
    """Show the runs that a query selects, or aggregates over groups of them. Raises: InputError."""
    selects, num_archived = {"trials": trials, "archived": archived}, 0
    if not archived and registry.annotations.flagged("archived"):
        num_archived = registry.num_runs(query, trials=trials) - registry.num_runs(query, **selects)
    if group_by is not None:
        more: dict[str, Any] = {"aggregates": aggregates or "", "pivot": pivot, "sort": sort}
        table = registry.grouped(group_by, query, **more | selects)
        empty = "" if table.records else _why_empty(registry, query, num_archived)
        show_rows(table.records, table.columns, empty=empty, page=PAGE)
        for note in table.notes:
            notify(note)
        is_one_without_value = len(table.records) == 1 and table.records[0][table.columns[0]] is None
        if is_one_without_value and not trials and registry.num_runs(query) > registry.num_runs(query, trials=False):
            notify(f"no run has {table.columns[0]}, and trials are left out; with them: --trials")
    elif aggregates is not None or pivot is not None:
        flag = "--agg" if aggregates is not None else "--pivot"
        raise click.UsageError(f"{flag} needs --group-by FIELD, such as params.recipe.learning_rate")
    else:
        _show_runs(registry, query, sort, selects, num_archived)
    tell_archived(num_archived)


def _show_runs(
    registry: "Registry", query: str, sort: str | None, selects: Mapping[str, bool], num_archived: int
) -> None:
    offset, limit = current_reading().offset, page_size()
    table = registry.run_table(query, sort=sort or "-created_at", limit=limit, offset=offset, **selects)
    rows = table.records
    notes: dict[str, list[str]] = {}
    for note in registry.annotations.notes([row["id"] for row in rows]):
        notes.setdefault(note.run_id, []).append(note.text)
    is_whole = not offset and (limit is None or len(rows) < limit)
    total = len(rows) if is_whole else registry.num_runs(query, **selects)
    for row in rows:
        row["note"] = "; ".join(notes.get(row["id"], ())) or None
        row["score"] = row.get(f"metrics.{row['metric']}") if row.get("metric") else None
        row["step"] = None if row["state"] == RunState.COMPLETED else registry.metrics.last_step(row["id"])
        row["progress"] = _progress(row["step"], row["error"])
    columns, asked = [*table.columns, "score", "step"], f"{query} {sort or ''}"
    spare = [name for name in _of_one_value(rows) if name != (sort or "").lstrip("-")]
    if current_reading().is_brief:
        columns = _brief_columns(table, asked, trials=selects["trials"])
    elif current_reading().form == "table":
        columns = [name for name in columns if _tells(name, rows) or _is_named(name, asked)]
    empty = "" if total else _why_empty(registry, query, num_archived)
    show_rows(rows, columns, empty=empty, spare=spare, below=["progress"], total=total)
    if any(column.startswith("metrics.test.") for column in columns):
        refusals = registry.test_refusals([row["id"] for row in rows])
        for why in sorted(set(refusals.values())):
            runs = [run_id for run_id, reason in refusals.items() if reason == why]
            scores = "the test score of 1 run is" if len(runs) == 1 else f"the test scores of {len(runs)} runs are"
            notify(f"{scores} refused, as {why}: {names_text(runs, NUM_LISTED)}")


def _brief_columns(table: "RecordTable", asked: str, *, trials: bool) -> list[str]:
    """Columns for a person: what a query or its order names, and what varies between trials or tells runs apart."""
    from orchestrator.registry.parameters import varied_parameters

    rows = table.records
    named = [name for name in table.columns if _is_named(name, asked)]
    varied = varied_parameters([row for row in rows if row["parent"]])
    named += [name for name in varied if name not in named][:NUM_PARAMETERS_SHOWN]
    named += [] if any(name.startswith("metrics.") for name in named) else ["metric", "score"]
    if trials:
        return ["id", "name", "kind", "state", "task", "seed", *named]
    progress = ["progress"] if any(row["progress"] for row in rows) else []
    return ["id", "name", "kind", "state", "task", *named, "seconds", "created_at", *progress]


def _of_one_value(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Columns that a narrow terminal can do without: first those that are the same in every one of several rows."""
    spare = ("seconds", "metric", "kind", "created_at", "task", "seed")
    same = [name for name in spare if len(rows) > 1 and len({row.get(name) for row in rows}) == 1]
    return list(dict.fromkeys(["metric", *same, *spare]))


def _tells(column: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a column of a wide table tells something of a row: it has values, and of parameters several ones."""
    values = [value for row in rows if (value := row.get(column)) not in (None, "", [])]
    return bool(values) and (not column.startswith("params.") or len(rows) == 1 or any(v != values[0] for v in values))


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


def _why_empty(registry: "Registry", query: str, num_archived: int) -> str:
    """Message of a query that finds nothing: with the words that no run has, and those that there are."""
    if query:
        return "; ".join(["no matching runs", *registry.unmatched(query)])
    return "every run is archived" if num_archived else no_runs(registry)


def _and_since(text: str, since: str | None, conditions: Sequence[str]) -> str:
    """A query and further conditions. The query stays in front: carets stand under what was typed.

    Raises: InputError for a time that is none, and for a query with an error.
    """
    time, text = time_of(since), text.strip()
    conditions = [*conditions, *([] if time is None else [f"created_at >= '{time.isoformat()}'"])]
    if not text or not conditions:
        return text or " and ".join(conditions)
    from orchestrator.registry.query_language import parse_filter

    parse_filter(text)  # by itself, so that it cannot close the parentheses that it is put into
    return " and ".join([f"({text})", *conditions])
