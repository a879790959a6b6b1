"""Labeled tasks: files to examples, examples to token arrays, a model's outputs to predictions and scores.

What differs between kinds of tasks is in `types`, an object for each. Exports load on first use (PEP 562).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what the table says, for type checkers and editors
    from orchestrator.tasks.feature_cache import build_features as build_features
    from orchestrator.tasks.feature_cache import dataset_result as dataset_result
    from orchestrator.tasks.feature_cache import prepare_features as prepare_features
    from orchestrator.tasks.feature_cache import unread_notes as unread_notes
    from orchestrator.tasks.features import Features as Features
    from orchestrator.tasks.features import join_features as join_features
    from orchestrator.tasks.loading import load_task as load_task
    from orchestrator.tasks.scoring import decode as decode
    from orchestrator.tasks.scoring import decode_fitted as decode_fitted
    from orchestrator.tasks.scoring import kept_rows as kept_rows
    from orchestrator.tasks.scoring import majority_baseline as majority_baseline
    from orchestrator.tasks.scoring import prediction_rows as prediction_rows
    from orchestrator.tasks.scoring import score as score
    from orchestrator.tasks.scoring import write_prediction_rows as write_prediction_rows
    from orchestrator.tasks.task import Task as Task
    from orchestrator.tasks.types import TASK_TYPES as TASK_TYPES
    from orchestrator.tasks.types import find_type as find_type
    from orchestrator.tasks.types.base import TaskDefinition as TaskDefinition

_EXPORTS = {
    name: f"orchestrator.tasks.{module}"
    for module, names in {
        "feature_cache": "build_features dataset_result prepare_features unread_notes",
        "features": "Features join_features",
        "loading": "load_task",
        "scoring": "decode decode_fitted kept_rows majority_baseline prediction_rows score write_prediction_rows",
        "task": "Task",
        "types": "TASK_TYPES find_type",
        "types.base": "TaskDefinition",
    }.items()
    for name in names.split()
}
__all__ = list(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
