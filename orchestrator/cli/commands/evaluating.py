"""Command `evaluate`: a model's scores on a task."""

from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.commands.searching import RerankingOptions, reranking_options
from orchestrator.cli.frame import GlobalOptionsCommand, current_settings, overrides_argument
from orchestrator.cli.messages import say_now, status_line
from orchestrator.cli.output import chosen_form, show_record, show_table, show_text
from orchestrator.cli.output_option import output_option
from orchestrator.cli.precision_option import precision_option
from orchestrator.cli.reading import form_options
from orchestrator.progress import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.inference.task_scores import ErrorAnalysis
    from orchestrator.specs import TaskSpec
    from orchestrator.specs.network import Precision

_MAX_MATRIX_CLASSES = 10
"""Classes up to which the matrix of confusions is shown; of more, the commonest ones. As JSON it is always there."""
_MAX_CONFUSIONS = 10

_PREDICTIONS_ENDING = ".jsonl"
"""Ending of a file for predictions, which is none of a record's forms."""


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator evaluate my-model new.csv --errors 5\n"
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
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Examples of a forward pass; fewer where memory runs out.",
)
@click.option("--predictions", metavar="FILE", hidden=True, help="Write each example's prediction there, as JSONL.")
@click.option(
    "--errors",
    "num_errors",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Show so many of the worst mistakes, with their text.",
)
@precision_option
@reranking_options
@form_options
@output_option(f"Write the scores to a file, .json or .csv; {_PREDICTIONS_ENDING}: the prediction for each example")
def evaluate(
    model: str,
    task: str,
    overrides: tuple[str, ...],
    split: str,
    batch_size: int,
    predictions: str | None,
    num_errors: int,
    precision: "Precision",
    reranking: RerankingOptions,
    form: str | None,
    output: str | None,
) -> None:
    """Score a model on a task, and show where it errs.

    Scores come first; then those of each class with what is taken for what, of each entity, or of questions with and
    without an answer.

    MODEL is a registered name, a run, a folder or a name on the hub. TASK is a file of labeled examples, read as the
    model's own task reads its files; the id of that task, for its recorded files; a known task's id, with folder=DIR or
    from the hub; or a spec file with a task. KEY=VALUE sets fields of the task. The score is shown, not recorded: a
    spec of kind evaluate records it.
    """
    if output is not None and output.endswith(_PREDICTIONS_ENDING) and form is None:
        output, predictions = None, output
    say_now(f"loading {model}")
    import torch

    from orchestrator.cli.commands.own_task import own_task_values
    from orchestrator.inference import task_scores
    from orchestrator.models.resolve import resolve_model
    from orchestrator.specs.loading import load_task_spec
    from orchestrator.tasks import load_task

    settings = current_settings()
    folder = resolve_model(model, settings)
    spec = load_task_spec(task, overrides, own_task_values(model, folder, task, overrides, split, settings))
    check_known(spec)
    with status_line() as status:
        scoring = task_scores.Scoring(
            folder=folder,
            task=load_task(spec),
            split=split,  # type: ignore[arg-type]
            storage=settings.storage,
            batch_size=batch_size,
            predictions=predictions,
            precision=precision,
            reranking=reranking.resolve(settings),
        )
        device = "cuda" if torch.cuda.is_available() else "cpu"
        found = task_scores.evaluate_closely(scoring, device, status, num_mistakes=num_errors)
    result = found.result
    record = {"model": model, "task": result.task, "split": result.split, "num_examples": result.num_examples}
    record |= {"computed_in": precision} | dict(result.counts) | dict(result.metrics)
    if chosen_form(form, output) == "json":
        record |= dict(found.tables) | ({"mistakes": list(found.mistakes)} if num_errors else {})
    show_record(record, form, output)
    if chosen_form(form, output) == "table" and output is None:
        _show_analysis(found, num_errors)


def _show_analysis(found: "ErrorAnalysis", num_errors: int) -> None:
    """Show the tables of an analysis and the worst mistakes, each below its name."""
    for name, rows in found.tables.items():
        if name == "confusions":
            _show_confusions(rows)
        elif rows:
            show_text(f"\n{name}")
            show_table(rows, list(rows[0]))
    if found.mistakes:
        shown = "" if len(found.mistakes) == found.num_mistakes else f"{len(found.mistakes)} of "
        show_text(f"\n{shown}{counted(found.num_mistakes, 'mistake')}, the worst first")
        show_table(found.mistakes, list(found.mistakes[0]))
    elif num_errors:
        show_text("\nno mistakes")


def _show_confusions(matrix: "Sequence[Mapping[str, Any]]") -> None:
    """Show the matrix of confusions, or of many classes the commonest ones: a wide matrix cannot be read."""
    if len(matrix) <= _MAX_MATRIX_CLASSES:
        show_text("\nconfusions: gold in rows, predicted in columns")
        show_table(matrix, list(matrix[0]))
        return
    confusions = [
        {"gold": gold, "predicted": label, "count": count}
        for (_, gold), *counts in (row.items() for row in matrix)
        for label, count in counts
        if label != gold and count
    ]
    if confusions:
        commonest = sorted(confusions, key=lambda each: -each["count"])[:_MAX_CONFUSIONS]
        show_text(f"\nconfusions: the commonest {len(commonest)} of {len(confusions)}")
        show_table(commonest, list(commonest[0]))


def check_known(task: "TaskSpec") -> None:
    """Raise NotFoundError for a task that is neither known nor a person's own."""
    from orchestrator.errors import NotFoundError
    from orchestrator.nearest import did_you_mean
    from orchestrator.tasks.catalogue import KNOWN_TASKS

    if task.id not in KNOWN_TASKS and task.head is None and not task.files:
        raise NotFoundError(
            f"no known task is called {task.id!r}{did_you_mean(task.id, KNOWN_TASKS)} "
            "(a task of one's own needs head=… and files.validation=…)"
        )
