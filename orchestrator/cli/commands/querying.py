"""Commands `query` and `leaderboard`, which ask the registry across runs."""

import click

from orchestrator.cli.commands.registry_reading import NO_RUNS, open_registry, records_of
from orchestrator.cli.frame import AtDashboard, GlobalOptionsCommand, reading_options
from orchestrator.cli.output import notify, show_rows

_NO_TRIALS = "no fine-tuned trials yet; run a sweep: `orchestrator run experiments/sweep_sst2.yaml`"


@click.command(
    cls=GlobalOptionsCommand,
    example='orchestrator query "metrics.f1 > 0.9 and params.learning_rate < 5e-5"',
    at_dashboard=AtDashboard.SENT,
)
@click.argument("text", metavar="QUERY")
@click.option("--sort", help="Field to sort by; `-FIELD` for descending order.")
@click.option("--limit", type=click.IntRange(1), help="Number of rows at most.")
@reading_options
def query(text: str, sort: str | None, limit: int | None, form: str | None, output: str | None) -> None:
    """Runs and trials for which a condition is true.

    Fields: metrics.X (the latest validation value), metrics.test.X, metrics.train.X, params.X (a dotted spec path, or
    its last part when unique), task, state, kind, name, seed, tag, … Comparisons, and/or/not, parentheses, in, like.
    """
    with open_registry() as registry:
        frame = registry.runs(text, sort=sort or "-created_at", limit=limit)
    columns = list(frame.columns)
    if form in (None, "table") and not output:
        named = [
            column for column in columns if column.startswith(("metrics.", "params.")) and _is_named(column, text, sort)
        ]
        columns = ["id", "name", "kind", "state", "task", "seed", *named]
        if not any(column.startswith("metrics.") for column in named):
            columns += ["metric", "score"]
    rows = records_of(frame)
    for row in rows:
        row["score"] = row.get(f"metrics.{row['metric']}") if row.get("metric") else None
    show_rows(rows, columns, form, output, empty="no run is like that")


def _is_named(column: str, text: str, sort: str | None) -> bool:
    """Whether the query or the sort key names a column, by its path or by the last part of that."""
    mentioned = f"{text} {sort or ''}"
    return column in mentioned or (column.startswith("params.") and f"params.{column.rpartition('.')[2]}" in mentioned)


@click.command(cls=GlobalOptionsCommand, example="orchestrator leaderboard sst2", at_dashboard=AtDashboard.SENT)
@click.argument("task", required=False)
@click.option("--limit", type=click.IntRange(1), default=10, show_default=True, help="Number of places for each task.")
@reading_options
def leaderboard(task: str | None, limit: int, form: str | None, output: str | None) -> None:
    """The best of each task, by the mean over seeds.

    Trials on other data are never taken together, and scores on other validation data are ranked apart. A lucky seed
    alone ranks nothing; `baseline` is the score of guessing the majority, `test` the score of a sweep's best trial on
    the test split.
    """
    from orchestrator.errors import NotFoundError

    with open_registry() as registry:
        frame = registry.leaderboard(task)
        known = set() if len(frame) or task is None else set(registry.leaderboard()["task"])
        empty = NO_RUNS if registry.runs(limit=1).empty else _NO_TRIALS
    if task is not None and frame.empty:
        raise NotFoundError(f"no finished trial of task {task}; there are: {', '.join(sorted(known)) or 'none yet'}")
    rows = [row for row in records_of(frame) if row["rank"] <= limit]
    columns, spare = list(frame.columns), ["group", "run", "size", "best", "model", "test", "sd"]
    if form in (None, "table") and not output:
        if len({(row["task"], row["data"]) for row in rows}) > len({row["task"] for row in rows}):
            notify("scores on other validation data are ranked apart: each `data` has its own first place")
        else:
            columns.remove("data")
    show_rows(rows, columns, form, output, empty=empty, spare=spare)
