"""A fine-tuned model's folder: Hugging Face's layout, its tokenizer, and how text becomes its input and its answers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from bert_core.checkpoints.manifest import check_format
from bert_core.config import BertConfig
from bert_core.errors import CheckpointError, NewerFormatError
from bert_core.text.tokenization import Tokenizer
from orchestrator.finetuning.heads import HEADS, HeadModel
from orchestrator.specs import RecipeSpec
from orchestrator.specs.task import EmbeddingObjectiveName, Head
from orchestrator.storage import write_folder
from orchestrator.tasks import TASK_TYPES, TabularColumns, TaskDefinition
from orchestrator.tasks.options import TaskOptions
from orchestrator.tasks.tabular_columns import NO_COLUMNS

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

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The record of a folder's file. Raises: AttributeError, KeyError, TypeError, ValueError for other values."""
        options_type = TASK_TYPES[values["head"]].options_type
        options = options_type(**{name: values[name] for name in _option_names(options_type) if name in values})
        columns = TabularColumns.from_dict(values.get("columns", asdict(NO_COLUMNS)))
        # A file of an earlier version has the options of all types.
        left_out = {"columns"}.union(*(_option_names(some.options_type) for some in TASK_TYPES.values()))
        others = {name: value for name, value in values.items() if name not in left_out}
        return cls(**others, options=options, columns=columns)

    def to_dict(self) -> dict[str, Any]:
        """The record in JSON values, the options beside what else there is."""
        values = asdict(self)
        options: dict[str, Any] = values.pop("options")
        return values | options


def record_of(task: TaskDefinition, options: TaskOptions) -> FineTuningRecord:
    """The record of a trial's model."""
    return FineTuningRecord(
        task=task.id,
        head=task.head,
        metric=task.metric,
        options=options,
        unanswerable=task.unanswerable,
        columns=task.columns,
        objective=task.objective,
    )


@dataclass(frozen=True)
class FineTunedModel:
    """A model with a task's head, ready to read text."""

    model: HeadModel
    tokenizer: Tokenizer
    record: FineTuningRecord

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names in the order of the model's outputs."""
        return tuple(label for _, label in sorted(self.model.config.id2label.items()))

    def task(self) -> TaskDefinition:
        """The task as the model knows it, for examples that come from no file."""
        record = self.record
        task_type = TASK_TYPES[record.head]
        return TaskDefinition(
            id=record.task,
            type=task_type,
            labels=self.labels if task_type.has_labels(record.objective) else (),
            metric=record.metric,
            unanswerable=record.unanswerable,
            columns=record.columns,
            objective=record.objective,
        )


def save_model_folder(model: HeadModel, tokenizer: Tokenizer, record: FineTuningRecord, folder: str) -> None:
    """Write a model folder on the storage, its manifest last; transformers loads it."""
    with write_folder(folder) as local:
        tokenizer.save(local)
        (local / RECORD_FILE).write_text(json.dumps(record.to_dict(), indent=2) + "\n", encoding="utf-8")
        model.save_pretrained(local)


def load_fine_tuned(folder: Path) -> FineTunedModel:
    """Read a model folder; one made elsewhere, without a record, gets a recipe's usual lengths.

    Raises: CheckpointError, TokenizerError, naming the file and the remedy.
    """
    config = BertConfig.from_pretrained(folder)
    record = read_record(folder, config)
    tokenizer = Tokenizer.load(folder)
    tokenizer.check_fits(config.vocab_size)
    head = HEADS[record.head]
    model: HeadModel = head.model_type.from_pretrained(folder)
    head.set_objective(model, record.objective)
    return FineTunedModel(model, tokenizer, record)


def read_record(folder: Path, config: BertConfig) -> FineTuningRecord:
    """Read a folder's record, or guess it from the head and a recipe's default lengths.

    Raises: CheckpointError; NewerFormatError for the record of a newer version.
    """
    path = folder / RECORD_FILE
    if not path.exists():
        return _guess_record(folder, config)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        check_format(path, values, _FORMAT)
        return FineTuningRecord.from_dict(values)
    except NewerFormatError:
        raise
    except (AttributeError, KeyError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} is cut short or altered ({error}); fetch or train the model again") from None


def _guess_record(folder: Path, config: BertConfig) -> FineTuningRecord:
    architectures: Sequence[str] = json.loads((folder / "config.json").read_text(encoding="utf-8")).get(
        "architectures", ()
    )
    head = next((name for name, head in HEADS.items() if head.recognizes(folder, config, architectures)), None)
    if head is None:
        raise CheckpointError(
            f"{folder} has no head for a task (its architectures: {', '.join(architectures) or 'none'}); "
            "fine-tune it first: a sweep with init_from"
        )
    usual, task_type = RecipeSpec(), TASK_TYPES[head]
    max_seq_length = min(task_type.usual_max_seq_length or usual.max_seq_length, config.max_seq_length)
    return FineTuningRecord(
        task="",
        head=head,
        metric="",
        options=replace(task_type.options_type.of_recipe(usual), max_seq_length=max_seq_length),
        objective=task_type.usual_objective,
    )


def _option_names(options_type: type[TaskOptions]) -> set[str]:
    return {part.name for part in fields(options_type)}
