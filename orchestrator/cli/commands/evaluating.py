"""Command `evaluate`: a model's scores on a task."""

from typing import TYPE_CHECKING

import click

from orchestrator.cli.commands.searching import RerankingOptions, reranking_options
from orchestrator.cli.frame import (
    AtDashboard,
    GlobalOptionsCommand,
    current_settings,
    overrides_argument,
    reading_options,
)
from orchestrator.cli.output import show_record, status_line

if TYPE_CHECKING:
    from orchestrator.specs import TaskSpec


@click.command(
    cls=GlobalOptionsCommand,
    at_dashboard=AtDashboard.REFUSED,
    example="orchestrator evaluate my-model sst2 folder=data/glue/SST-2\n"
    "orchestrator evaluate my-encoder cranfield folder=cranfield --rerank pairs",
)
@click.argument("model", metavar="MODEL")
@click.argument("task", metavar="TASK")
@overrides_argument
@click.option(
    "--split",
    type=click.Choice(["train", "validation", "test"]),
    default="validation",
    show_default=True,
    help="The split to score.",
)
@click.option("--batch-size", type=click.IntRange(1), default=64, show_default=True, help="Examples of a forward pass.")
@click.option("--predictions", metavar="FILE", help="Write each example's prediction there, as JSONL.")
@reranking_options
@reading_options
def evaluate(
    model: str,
    task: str,
    overrides: tuple[str, ...],
    split: str,
    batch_size: int,
    predictions: str | None,
    reranking: RerankingOptions,
    form: str | None,
    output: str | None,
) -> None:
    """Score a model on a split of a task.

    MODEL is a registered name, a run or a folder. TASK is a known task's id with folder=DIR, or a spec file with a
    task; KEY=VALUE sets fields of the task. The score is shown, not recorded: a spec of kind evaluate records it.
    """
    import torch

    from orchestrator.inference import task_scores
    from orchestrator.models.resolve import resolve_model
    from orchestrator.specs.loading import load_task_spec
    from orchestrator.tasks import load_task

    spec = load_task_spec(task, overrides)
    check_known(spec)
    settings = current_settings()
    with status_line() as status:
        result = task_scores.evaluate(
            resolve_model(model, settings),
            load_task(spec),
            split,  # type: ignore[arg-type]
            settings.storage,
            batch_size,
            predictions,
            reranking.resolve(settings),
            "cuda" if torch.cuda.is_available() else "cpu",
            status,
        )
    record = {"model": model, "task": result.task, "split": result.split, "num_examples": result.num_examples}
    show_record(record | dict(result.counts) | dict(result.metrics), form, output)


def check_known(task: "TaskSpec") -> None:
    """Raise NotFoundError for a task that is neither known nor a person's own."""
    from orchestrator.errors import NotFoundError
    from orchestrator.specs.problems import nearest
    from orchestrator.tasks.catalogue import KNOWN_TASKS

    if task.id not in KNOWN_TASKS and task.head is None and not task.files:
        raise NotFoundError(
            f"no known task is called {task.id!r}{nearest(task.id, KNOWN_TASKS)} "
            "(a task of one's own needs head=… and files.validation=…)"
        )
