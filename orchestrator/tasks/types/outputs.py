"""Checks and arithmetic that several task types decode with.

Shapes: N examples, C classes.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bert_core.errors import DataError
from orchestrator.tasks.features import Array, Features
from orchestrator.tasks.types.base import Outputs, TaskDefinition


def check_length(outputs: Outputs, expected: int, unit: str) -> None:
    """Check that there is an output for each unit. Raises: DataError."""
    if len(outputs) != expected:
        raise DataError(f"{len(outputs)} outputs for {expected} {unit}s; there must be one for each")


def check_classes(task: TaskDefinition, features: Features[Any], logits: Array) -> None:
    """Check that logits are (N, C). Raises: DataError."""
    check_length(logits, features.num_examples, "example")
    if logits.shape[1:] != (len(task.labels),):
        raise DataError(f"logits have the shape {logits.shape}; task {task.id} has {len(task.labels)} classes")


def softmax(logits: Array) -> NDArray[np.float64]:
    """Probabilities over the last axis."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True).astype(np.float64))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))
