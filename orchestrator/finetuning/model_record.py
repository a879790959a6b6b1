"""The record in a fine-tuned model's folder: its task, and how text becomes its input and its answers. No torch."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from bert_core.checkpoints.manifest import check_format
from bert_core.config import BertConfig
from bert_core.errors import CheckpointError, NewerFormatError
from orchestrator.specs.task import EmbeddingObjectiveName, Head
from orchestrator.tasks import TASK_TYPES, TaskDefinition
from orchestrator.tasks.text_examples import NO_COLUMNS, TabularColumns
from orchestrator.tasks.types.base import TaskOptions

RECORD_FILE = "fine_tuning.json"
_FORMAT = 1
"""Number of the record's format; a file without one has the first."""


@dataclass(frozen=True)
class FineTuningRecord:
    """Record of a fine-tuned model: its task and the options of reading and decoding."""

    task: str
    head: Head
    metric: str
    options: TaskOptions
    """The options of its task's type"""
    unanswerable: bool = False
    """Whether the model may say that a passage holds no answer (qa)"""
    columns: TabularColumns = NO_COLUMNS
    """Tabular columns, as learned from the training split."""
    objective: EmbeddingObjectiveName | None = None
    """Objective that vectors were trained on (embedding)."""
    text_columns: tuple[str, ...] = ()
    """Columns of the text in the tables that the model was trained on; empty where it is not known."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The record of a folder's file. Raises: AttributeError, KeyError, TypeError, ValueError for other values."""
        options_type = TASK_TYPES[values["head"]].options_type
        own = {name: values[name] for name in _option_names(options_type) if name in values}
        options = options_type(**{name: tuple(v) if isinstance(v, list) else v for name, v in own.items()})
        columns = TabularColumns.from_dict(values.get("columns", asdict(NO_COLUMNS)))
        left_out = {"columns", "text_columns", *_option_names(options_type)}
        others = {name: value for name, value in values.items() if name not in left_out}
        text_columns = tuple(values.get("text_columns", ()))
        return cls(**others, options=options, columns=columns, text_columns=text_columns)

    def to_dict(self) -> dict[str, Any]:
        """The record in JSON values, the options beside what else there is."""
        values = asdict(self)
        options: dict[str, Any] = values.pop("options")
        return values | options

    def definition(self, labels: tuple[str, ...]) -> TaskDefinition:
        """The task of a model with these class names, for examples that come from no file."""
        task_type = TASK_TYPES[self.head]
        return TaskDefinition(
            id=self.task,
            type=task_type,
            labels=labels if task_type.has_labels(self.objective) else (),
            metric=self.metric,
            unanswerable=self.unanswerable,
            columns=self.columns,
            objective=self.objective,
            text_columns=self.text_columns,
        )


def record_of(task: TaskDefinition, options: TaskOptions) -> FineTuningRecord:
    return FineTuningRecord(
        task=task.id,
        head=task.head,
        metric=task.metric,
        options=options,
        unanswerable=task.unanswerable,
        columns=task.columns,
        objective=task.objective,
        text_columns=task.text_columns,
    )


def read_saved_record(folder: Path) -> FineTuningRecord | None:
    """Read a folder's record; None of a folder made elsewhere, which has none.

    Raises: CheckpointError; NewerFormatError for the record of a newer version.
    """
    path = folder / RECORD_FILE
    if not path.exists():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        check_format(path, values, _FORMAT)
        return FineTuningRecord.from_dict(values)
    except NewerFormatError:
        raise
    except (AttributeError, KeyError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} is cut short or altered ({error}); fetch or train the model again") from None


def read_saved_definition(folder: Path) -> TaskDefinition | None:
    """Read the task of a model folder from its record; None of a folder that has none. Raises: CheckpointError."""
    record = read_saved_record(folder)
    return None if record is None else record.definition(label_names(BertConfig.from_pretrained(folder)))


def label_names(config: BertConfig) -> tuple[str, ...]:
    """Names of a model's classes in the order of its outputs."""
    return tuple(label for _, label in sorted(config.id2label.items()))


def _option_names(options_type: type[TaskOptions]) -> set[str]:
    return {part.name for part in fields(options_type)}
