"""Command `check`: how far results are from published ones."""

from typing import TYPE_CHECKING

import click

from orchestrator.cli.commands.registry_reading import find_anything, open_registry
from orchestrator.cli.frame import GlobalOptionsCommand
from orchestrator.cli.messages import notify
from orchestrator.cli.output import show_rows, shows_briefly
from orchestrator.cli.reading import reading_options

if TYPE_CHECKING:
    from orchestrator.registry import Registry, RunRecord

_NEWEST_OF_TASK = 10
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
    differ. Of a task the newest runs are shown. The numbers and their sources: orchestrator/published/numbers.yaml.
    """
    from orchestrator.published.comparison import compare, load_numbers, run_scores

    with open_registry() as registry:
        scores = [score for run in _runs_of(registry, what) for score in run_scores(run, registry)]
    found = [compare(score, load_numbers()) for score in scores]
    rows = [row for several in found for row in (several if with_all else several[:1])]
    own = ", ".join(sorted({f"{score.task} {score.metric}" for score in scores})) or "no score on a task's data"
    published = ", ".join(sorted({str(one["task"]) for one in load_numbers()}))
    empty = f"nothing published compares with what {what} recorded ({own}); there are numbers for {published}"
    columns = [*_COLUMNS] if shows_briefly(form, output) else [*_COLUMNS, "task", "half_width", "table", "url", "why"]
    has_one = {name: len({row[name] for row in rows}) == 1 for name in ("run", "metric")}
    spare = ["source", "n", "run" if has_one["run"] else "difference", *(["metric"] if has_one["metric"] else [])]
    show_rows(rows, columns, form, output, empty="" if rows else empty, spare=spare)
    if shows_briefly(form, output):
        for line in dict.fromkeys(
            f"{row['model']} ({row['published_split']}, {row['source']}): {'; '.join(row['why']) or 'comparable'}"
            for row in rows
        ):
            notify(line)


def _runs_of(registry: "Registry", what: str) -> list["RunRecord"]:
    """Runs that a name stands for: the newest that completed of a task, the one that made a model, or a run.

    A pipeline stands for its stages. Raises: NotFoundError.
    """
    from orchestrator.errors import NotFoundError
    from orchestrator.registry.query_tree import quoted

    of_task = f"task = {quoted(what)} and state = 'COMPLETED'"
    rows = registry.run_table(of_task, trials=False, limit=_NEWEST_OF_TASK).records
    if rows:
        return registry.run_records([str(row["id"]) for row in rows])
    try:
        run = find_anything(registry, what)
    except NotFoundError as no_run:
        try:
            run = registry.run(str(registry.models.get(what).run_id))
        except NotFoundError:
            raise no_run from None
    return list(reversed(registry.stages(run.id))) if run.kind == "pipeline" else [run]
