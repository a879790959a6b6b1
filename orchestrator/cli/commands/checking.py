"""Commands `check` and `published list`: how far results are from published ones, and what was published."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.commands.registry_reading import find_anything, open_registry
from orchestrator.cli.frame import GlobalOptionsCommand, GlobalOptionsGroup
from orchestrator.cli.messages import notify
from orchestrator.cli.output import show_rows, shows_briefly
from orchestrator.cli.reading import current_reading, reading_options
from orchestrator.progress import is_terminal

if TYPE_CHECKING:
    from orchestrator.published.comparison import Comparison, RunScore
    from orchestrator.published.numbers import PublishedNumber
    from orchestrator.registry import Registry, RunRecord

_NEWEST_OF_TASK = 10
_PAGE = 30
"""Published numbers on a terminal; `--limit` gives more of them."""
_COLUMNS = ("run", "split", "metric", "yours", "n", "published", "model", "source", "difference", "noise")


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator check 7f3a\norchestrator check mrpc --all",
)
@click.argument("what", metavar="RUN|MODEL|TASK")
@click.option("--all", "with_all", is_flag=True, help="Every published number of the task, not the nearest one alone.")
@reading_options
def check(what: str, with_all: bool, form: str | None, output: str | None) -> None:
    """Compare results with published numbers.

    Beside each score stands the published number of the same task and score that is nearest by split, training and
    size; of a sweep the score is the mean over the seeds of its best recipe. Below the table it says why the two may
    differ. Of a task the newest runs are shown. The numbers and their sources: `orchestrator published list`.
    """
    from orchestrator.published.comparison import compare
    from orchestrator.published.numbers import load_numbers
    from orchestrator.published.run_scores import run_scores

    with open_registry() as registry:
        scores = [score for run in _runs_of(registry, what) for score in run_scores(run, registry)]
    found = [compare(score, load_numbers()) for score in scores]
    nearest = [each for several in found for each in (several if with_all else several[:1])]
    rows = [_comparison_row(each) for each in nearest]
    empty = "" if rows else _why_nothing(what, scores)
    columns = [*_COLUMNS] if shows_briefly(form, output) else [*_COLUMNS, "task", "half_width", "table", "url", "why"]
    has_one = {name: len({row[name] for row in rows}) == 1 for name in ("run", "metric")}
    spare = ["source", "n", "run" if has_one["run"] else "difference", *(["metric"] if has_one["metric"] else [])]
    show_rows(rows, columns, form, output, empty=empty, spare=spare)
    if shows_briefly(form, output):
        for line in _reason_lines(nearest):
            notify(line)


def _why_nothing(what: str, scores: list["RunScore"]) -> str:
    """Message in place of an empty table: nothing was scored, or nothing of it published, or not by that score."""
    from orchestrator.published.numbers import load_numbers, published_tasks

    tasks = sorted({score.task for score in scores})
    if not tasks:
        return f"no run of {what} has a score on a task's data; what a run recorded: `orchestrator runs show RUN`"
    metrics = {str(number.metric) for number in load_numbers() if number.task in tasks}
    if not metrics:
        return f"no published number for {' or '.join(tasks)}; there are some for {', '.join(published_tasks())}"
    own = sorted({score.metric for score in scores if "." not in score.metric})
    return (
        f"the published numbers for {' and '.join(tasks)} are of {', '.join(sorted(metrics))}, of which no run here "
        f"has a score; recorded: {', '.join(own) or 'none on held-out data'}"
    )


def _reason_lines(comparisons: list["Comparison"]) -> Iterator[str]:
    """Reasons why scores may not compare with the numbers beside them, each reason once for a model and a split."""
    said = set()
    for each in comparisons:
        number = each.number
        line = f"{number.model.name} ({number.split}, {number.source.title}): {'; '.join(each.reasons) or 'comparable'}"
        if line not in said:
            said.add(line)
            yield line


def _runs_of(registry: "Registry", what: str) -> list["RunRecord"]:
    """Runs that a name stands for: the newest that completed of a task, the one that made a model, or a run.

    A pipeline stands for its stages. Raises: NotFoundError.
    """
    from orchestrator.errors import NotFoundError
    from orchestrator.published.numbers import published_tasks
    from orchestrator.registry.queries.query_tree import quoted

    of_task = registry.run_table(
        f"task = {quoted(what)} and state = 'COMPLETED'", trials=False, limit=_NEWEST_OF_TASK
    ).records
    if of_task:
        return registry.run_records([str(row["id"]) for row in of_task])
    try:
        run = find_anything(registry, what)
    except NotFoundError as no_run:
        try:
            run = registry.run(str(registry.models.get(what).run_id))
        except NotFoundError:
            if what in published_tasks():
                raise NotFoundError(
                    f"no run of {what} has completed here; `orchestrator published list --task {what}`"
                ) from None
            raise no_run from None
    return list(reversed(registry.stages(run.id))) if run.kind == "pipeline" else [run]


def _comparison_row(each: "Comparison") -> dict[str, Any]:
    score, number = each.score, each.number
    return {
        "run": score.run_id,
        "task": score.task,
        "split": score.split,
        "metric": score.metric,
        "yours": score.mean,
        "n": len(score.scores),
        "published": number.value,
        "model": number.model.name,
        "source": number.source.title,
        "difference": each.difference,
        "half_width": each.half_width,
        "noise": each.verdict,
        "table": number.table,
        "url": number.source.url,
        "why": list(each.reasons),
    }


@click.group(cls=GlobalOptionsGroup)
def published() -> None:
    """Published numbers of BERT, with their sources."""


@published.command("list", cls=GlobalOptionsCommand, example="orchestrator published list mrpc")
@click.argument("task_name", metavar="[TASK]", required=False)
@click.option("--task", metavar="TASK", help="Only the numbers of this task, as the argument.")
@click.option("--model", metavar="MODEL", help="Only those of models whose name has this in it.")
@reading_options
def list_published(
    task_name: str | None, task: str | None, model: str | None, form: str | None, output: str | None
) -> None:
    """List published numbers: of which model, on which split, how chosen, from where.

    Scores are fractions. A score without a name is one of a task with several, and its source, as it was read, does
    not say which one it is.
    """
    from orchestrator.errors import NotFoundError
    from orchestrator.published.numbers import load_numbers, published_tasks

    if task_name is not None and task not in (None, task_name):
        raise click.UsageError(f"the task is {task_name} and --task {task}; give one of them")
    task = task_name or task
    by_lower_case = {one.lower(): one for one in published_tasks()}
    task = by_lower_case.get(task.lower(), task) if task is not None else None
    if task is not None and task not in published_tasks():
        raise NotFoundError(f"no published number for task {task}; there are some for {', '.join(published_tasks())}")
    rows = [
        _number_row(number)
        for number in load_numbers()
        if task in (None, number.task) and (model or "").lower() in number.model.name
    ]
    columns = list(_number_row(load_numbers()[0]))
    if shows_briefly(form, output):
        columns = ["task", "split", "metric", "value", "model", "runs", "chosen", "source", "note"]
    reading = current_reading()
    numbers_sources = shows_briefly(form, output) and not reading.columns and is_terminal(sys.stdout)
    shown = rows[reading.offset : reading.offset + (reading.limit or _PAGE)] if numbers_sources else []
    sources = list(dict.fromkeys(row["source"] for row in shown))
    for row in shown:
        row["source"] = f"[{sources.index(row['source']) + 1}]"
    empty = f"no published number of a model named {model}"
    spare = ["note", "chosen", "runs", "split"]
    show_rows(rows, columns, form, output, empty=empty, spare=spare, page=_PAGE)
    for number, source in enumerate(sources, start=1):
        notify(f"[{number}] {source}")


def _number_row(number: "PublishedNumber") -> dict[str, Any]:
    return {
        "task": number.task,
        "split": number.split,
        "metric": number.metric,
        "value": number.value,
        "sd": number.sd,
        "model": number.model.name,
        "parameters": number.model.num_parameters,
        "runs": number.num_runs,
        "chosen": number.chosen.words,
        "source": number.source.title,
        "table": number.table,
        "url": number.source.url,
        "read": number.source.read,
        "protocol": number.source.protocol or None,
        "note": number.note or None,
    }
