"""Labeled tasks: files to examples, examples to token arrays, a model's outputs to predictions and scores.

What differs between kinds of tasks is in `types`, an object for each.
"""

from orchestrator.tasks.feature_building import build_features
from orchestrator.tasks.feature_cache import FEATURES_VERSION, dataset_result, keep_features, prepare_features
from orchestrator.tasks.features import Features, join_features
from orchestrator.tasks.loading import load_task
from orchestrator.tasks.scoring import decode, majority_baseline, prediction_rows, score, write_prediction_rows
from orchestrator.tasks.tabular_columns import TabularColumns
from orchestrator.tasks.task import Task
from orchestrator.tasks.types import TASK_TYPES
from orchestrator.tasks.types.base import AnyTaskType, TaskDefinition, TaskType

__all__ = [
    "FEATURES_VERSION",
    "TASK_TYPES",
    "AnyTaskType",
    "Features",
    "TabularColumns",
    "Task",
    "TaskDefinition",
    "TaskType",
    "build_features",
    "dataset_result",
    "decode",
    "join_features",
    "keep_features",
    "load_task",
    "majority_baseline",
    "prediction_rows",
    "prepare_features",
    "score",
    "write_prediction_rows",
]
