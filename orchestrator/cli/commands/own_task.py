"""The task that a model brings itself, for `evaluate`: its recorded files, or a file of labeled examples."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import InputError

if TYPE_CHECKING:
    from orchestrator.settings import Settings

_DATA_FIELDS = {"folder", "files", "head"}
"""Fields of a task whose overrides describe other data than the model's own."""
_OF_OTHER_FILES = {"folder", "split", "max_train_examples", "max_validation_examples"}
"""Fields of the task that a model was fine-tuned on which say nothing about another file."""


def own_task_values(
    model: str, folder: str, task: str, overrides: Sequence[str], split: str, settings: "Settings"
) -> Mapping[str, Any] | None:
    """Values of the task that TASK means; None where it is the id of a known task, or a spec.

    Args:
        folder: the model's.
        task: a file, which is scored as the model's own task; or the id of that task.
    """
    from orchestrator.models.recorded_task import read_recorded_task
    from orchestrator.tasks.catalogue import KNOWN_TASKS

    recorded = read_recorded_task(model, settings)
    if _is_file(task):
        return _on_file(folder, task, split, recorded)
    if recorded is None or recorded["id"] != task:
        return None
    overridden = {text.removeprefix("task.").partition("=")[0].partition(".")[0] for text in overrides}
    if not overridden & _DATA_FIELDS:
        return _without_folds(recorded)
    if task in KNOWN_TASKS:
        return None
    return {name: value for name, value in recorded.items() if name not in _OF_OTHER_FILES}


def _without_folds(recorded: Mapping[str, Any]) -> Mapping[str, Any]:
    """The recorded task, whose folds are no splits to score on: its other files are left."""
    if not (recorded.get("split") or {}).get("folds"):
        return recorded
    files = {split: file for split, file in (recorded.get("files") or {}).items() if split != "train"}
    if not files:
        raise InputError(f"task {recorded['id']} has folds of its training file alone; name a file to score on")
    return {**recorded, "split": None, "files": files}


def _is_file(task: str) -> bool:
    from orchestrator.cli.data_names import is_named_as_data
    from orchestrator.tasks.catalogue import KNOWN_TASKS

    if task in KNOWN_TASKS or task.endswith((".yaml", ".yml")):
        return False
    return is_named_as_data(task) or "/" in task or Path(task).is_file()


def _on_file(folder: str, file: str, split: str, recorded: Mapping[str, Any] | None) -> dict[str, Any]:
    """The model's task with a file as its split: as its run says, or as its folder does where no run is recorded."""
    from bert_core.checkpoints.weight_files import WEIGHTS_FILE
    from orchestrator.finetuning.model_folder import load_task_definition
    from orchestrator.storage import local_copy
    from orchestrator.tasks.catalogue import KNOWN_TASKS

    learned = load_task_definition(local_copy(folder, skip=(WEIGHTS_FILE,)))
    files = {"files": {split: file}}
    if learned.id in KNOWN_TASKS:
        return {"id": learned.id} | files
    saved = {
        "head": learned.head,
        "text_columns": learned.text_columns,
        "numerical_columns": [column.name for column in learned.columns.numbers],
        "categorical_columns": [column.name for column in learned.columns.categories],
        "objective": learned.objective,
    }
    kept = {name: value for name, value in (recorded or saved).items() if name not in _OF_OTHER_FILES}
    return kept | {"id": Path(file).name, "labels": learned.labels or None} | files
