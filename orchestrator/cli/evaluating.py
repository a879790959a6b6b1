"""Command `evaluate`: a model's scores on a task."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.frame import command, current_settings, overrides_argument, precision_option
from orchestrator.cli.messages import status_line
from orchestrator.cli.output import show_record, show_table, show_text
from orchestrator.cli.predicting import batch_size_option, find_model, is_named_as_data, model_argument
from orchestrator.cli.reading import current_reading, forget_output, format_options, output_option
from orchestrator.cli.searching import find_reranking, load_asked_task, reranking_options
from orchestrator.errors import InputError
from orchestrator.progress import counted

if TYPE_CHECKING:
    from orchestrator.inference.task_scores import ErrorAnalysis
    from orchestrator.results import Split
    from orchestrator.settings import Settings
    from orchestrator.specs.network import Precision

_MAX_MATRIX_CLASSES = 10
"""Classes up to which the matrix of confusions is shown; of more, the commonest ones. As JSON it is always there."""
_MAX_CONFUSIONS = 10
_DATA_FIELDS = {"folder", "files", "head"}
"""Fields of a task whose overrides describe other data than the model's own."""
_OF_OTHER_FILES = {"folder", "split", "max_train_examples", "max_validation_examples"}
"""Fields of the task that a model was fine-tuned on which say nothing about another file."""


@command(
    example="orchestrator evaluate my-model new.csv --errors 5\n"
    "orchestrator evaluate my-encoder cranfield folder=cranfield --rerank pairs"
)
@model_argument
@click.argument("task", metavar="TASK")
@overrides_argument
@click.option(
    "--split", type=click.Choice(["train", "validation", "test"]), default="validation", help="Split to score."
)
@batch_size_option
@click.option(
    "--errors", "num_errors", type=click.IntRange(0), default=0, help="Show the N worst errors, with their text."
)
@precision_option
@reranking_options
@format_options
@output_option("Write scores to .json or .csv; .jsonl: a prediction for each example.")
def evaluate(
    model: str,
    task: str,
    overrides: tuple[str, ...],
    split: "Split",
    batch_size: int,
    num_errors: int,
    precision: "Precision",
    rerank: str | None,
    relevant_label: str | None,
    num_candidates: int,
    output: str | None,
) -> None:
    """Evaluate a model on a task, with an error analysis.

    Scores, then an error analysis: per class with a confusion matrix, per entity type, or for answerable and
    unanswerable questions.

    MODEL is a registered name, a run, a folder or a name on the hub. TASK is a labeled file (read like the model's own
    task), the id of that task (its recorded files), a known task's id (files from folder=DIR, else from the hub), or a
    spec with a task. KEY=VALUE sets fields of the task. Nothing is recorded: use a spec of kind evaluate for that.
    """
    predictions, reading = None, current_reading()
    if output is not None and output.endswith(".jsonl"):
        predictions, reading = output, forget_output()
    folder, settings = find_model(model), current_settings()
    import torch

    from orchestrator.inference.task_scores import Scoring, evaluate_closely

    own_values = own_task_values(model, folder, task, overrides, split, settings)
    with status_line() as status:
        scoring = Scoring(
            folder=folder,
            task=load_asked_task(task, overrides, own_values),
            split=split,
            storage=settings.storage,
            batch_size=batch_size,
            predictions=predictions,
            precision=precision,
            reranking=find_reranking(rerank, relevant_label, num_candidates),
        )
        device = "cuda" if torch.cuda.is_available() else "cpu"
        found = evaluate_closely(scoring, device, status, num_mistakes=num_errors)
    result = found.result
    record = {"model": model, "task": result.task, "split": result.split, "num_examples": result.num_examples}
    record |= {"computed_in": precision} | dict(result.counts) | dict(result.metrics)
    if reading.form == "json":
        record |= dict(found.tables) | ({"mistakes": list(found.mistakes)} if num_errors else {})
    show_record(record)
    if reading.form == "table" and reading.output is None:
        _show_analysis(found, num_errors)


def _show_analysis(found: "ErrorAnalysis", num_errors: int) -> None:
    tables = [_brief_confusions(rows) if name == "confusions" else (name, rows) for name, rows in found.tables.items()]
    if num_errors:
        shown = "" if len(found.mistakes) == found.num_mistakes else f"{len(found.mistakes)} of "
        tables.append((f"{shown}{counted(found.num_mistakes, 'mistake')}, the worst first", found.mistakes))
    for title, rows in tables:
        if rows:
            show_text(f"\n{title}")
            show_table(rows, list(rows[0]))
    if num_errors and not found.mistakes:
        show_text("\nno mistakes")


def _brief_confusions(matrix: "Sequence[Mapping[str, Any]]") -> "tuple[str, Sequence[Mapping[str, Any]]]":
    """The matrix of confusions, or of many classes the commonest ones: a wide matrix cannot be read."""
    if len(matrix) <= _MAX_MATRIX_CLASSES:
        return "confusions: gold in rows, predicted in columns", matrix
    confusions = [
        {"gold": gold, "predicted": label, "count": count}
        for (_, gold), *counts in (row.items() for row in matrix)
        for label, count in counts
        if label != gold and count
    ]
    commonest = sorted(confusions, key=lambda each: -each["count"])[:_MAX_CONFUSIONS]
    return f"confusions: the commonest {len(commonest)} of {len(confusions)}", commonest


def own_task_values(
    model: str, folder: str, task: str, overrides: Sequence[str], split: str, settings: "Settings"
) -> Mapping[str, Any] | None:
    """Values of the task that TASK means: a file, scored as the model's own task, or the id of that task.

    None where TASK is the id of a known task, or a spec.
    """
    from orchestrator.models.recorded_task import read_recorded_task
    from orchestrator.tasks.catalogue import KNOWN_TASKS

    recorded, is_known = read_recorded_task(model, settings), task in KNOWN_TASKS
    is_spec = task.endswith((".yaml", ".yml"))
    if not is_known and not is_spec and (is_named_as_data(task) or "/" in task or Path(task).is_file()):
        return _on_file(folder, task, split, recorded)
    if recorded is None or recorded["id"] != task:
        return None
    overridden = {text.removeprefix("task.").partition("=")[0].partition(".")[0] for text in overrides}
    if overridden & _DATA_FIELDS:
        return None if is_known else {name: recorded[name] for name in recorded.keys() - _OF_OTHER_FILES}
    if not (recorded.get("split") or {}).get("folds"):
        return recorded
    files = {split: file for split, file in (recorded.get("files") or {}).items() if split != "train"}
    if not files:
        raise InputError(f"task {task} has folds of its training file alone; name a file to score on")
    return {**recorded, "split": None, "files": files}  # folds are no splits to score on


def _on_file(folder: str, file: str, split: str, recorded: Mapping[str, Any] | None) -> dict[str, Any]:
    """The model's task with a file as its split: as its run says, or as its folder does where no run is recorded."""
    from orchestrator.finetuning.model_folder import load_task_definition
    from orchestrator.storage import exists, local_copy
    from orchestrator.tasks.catalogue import KNOWN_TASKS
    from orchestrator.tasks.table_files import column_names, table_name
    from orchestrator.tasks.text_files import BadRecords

    learned = load_task_definition(local_copy(folder, skip=("model.safetensors",)))
    files = {"files": {split: file}}
    if learned.id in KNOWN_TASKS:
        return {"id": learned.id} | files
    texts: Sequence[str] = learned.text_columns
    if not texts and table_name(file) and exists(file):  # as `predict` finds them
        names = column_names(file, BadRecords(file, "skip"), within=False)
        texts = [key for key in ("text", "text_pair") if key in names and key in learned.type.request_keys]
    saved = {
        "head": learned.head,
        "text_columns": texts,
        "numerical_columns": [column.name for column in learned.columns.numbers],
        "categorical_columns": [column.name for column in learned.columns.categories],
        "objective": learned.objective,
    }
    kept = {name: value for name, value in (recorded or saved).items() if name not in _OF_OTHER_FILES}
    return kept | {"id": Path(file).name, "labels": learned.labels or None} | files
