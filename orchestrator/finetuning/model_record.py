"""The record in a fine-tuned model's folder: its task, and how text becomes its input and its answers. No torch."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter

from bert_core.checkpoints.manifest import check_format
from bert_core.config import BertConfig
from bert_core.errors import CheckpointError, NewerFormatError
from orchestrator.storage.model_folder import RECORD_FILE
from orchestrator.tasks.text_examples import TabularColumns
from orchestrator.tasks.types import TASK_TYPES, find_type
from orchestrator.tasks.types.base import TaskDefinition, TaskOptions

_FORMAT = 1
"""Number of the record's format; a file without one has the first."""


@dataclass(frozen=True)
class FineTuningRecord:
    """Record of a fine-tuned model: its task and the options of reading and decoding."""

    task: TaskDefinition
    options: TaskOptions
    """The options of the task's type."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], labels: tuple[str, ...]) -> Self:
        """The record of a folder's file, of a model with these class names.

        Raises: AttributeError, KeyError, TypeError, ValueError for other values.
        """
        left = dict(values)
        head, objective = left.pop("head"), left.pop("objective", None)
        task_type = TASK_TYPES[head] if objective is None else find_type(head, objective)
        given = {part.name: left.pop(part.name) for part in fields(task_type.options_type) if part.name in left}
        options: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
        }
        task = TaskDefinition(
            id=left.pop("task"),
            type=task_type,
            labels=labels if task_type.has_labels else (),
            columns=TypeAdapter(TabularColumns).validate_python(left.pop("columns", {})),
            text_columns=tuple(left.pop("text_columns", ())),
            **left,
        )
        return cls(task, task_type.options_type(**options))

    def to_dict(self) -> dict[str, Any]:
        """The record in JSON values, the options beside the task; the labels are in the model's configuration."""
        task = self.task
        return {
            "task": task.id,
            "head": task.head,
            "metric": task.metric,
            "unanswerable": task.unanswerable,
            "columns": asdict(task.columns),
            "objective": task.objective,
            "text_columns": task.text_columns,
            **asdict(self.options),
        }


def read_saved_record(folder: Path, config: BertConfig | None = None) -> FineTuningRecord | None:
    """Read a folder's record; None of a folder made elsewhere, which has none.

    Args:
        config: of the folder's model, where it has been read.

    Raises: CheckpointError; NewerFormatError for the record of a newer version.
    """
    path = folder / RECORD_FILE
    if not path.exists():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        check_format(path, values, _FORMAT)
        return FineTuningRecord.from_dict(values, label_names(config or BertConfig.from_pretrained(folder)))
    except NewerFormatError:
        raise
    except (AttributeError, KeyError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} is cut short or altered ({error}); fetch or train the model again") from None


def label_names(config: BertConfig) -> tuple[str, ...]:
    """Names of a model's classes in the order of its outputs."""
    return tuple(label for _, label in sorted(config.id2label.items()))
