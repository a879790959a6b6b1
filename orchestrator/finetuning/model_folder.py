"""A fine-tuned model's folder: Hugging Face's layout, its tokenizer, and how text becomes its input and its answers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bert_core.config import BertConfig
from bert_core.errors import CheckpointError
from bert_core.text.tokenization import Tokenizer
from orchestrator.finetuning.heads import HEADS, HeadModel
from orchestrator.finetuning.model_record import FineTuningRecord, label_names, read_saved_record
from orchestrator.specs import RecipeSpec
from orchestrator.specs.task import Head
from orchestrator.storage import write_folder
from orchestrator.storage.model_folder import RECORD_FILE
from orchestrator.tasks.types import TASK_TYPES
from orchestrator.tasks.types.base import TaskDefinition


@dataclass(frozen=True)
class FineTunedModel:
    """A model with a task's head, ready to read text."""

    model: HeadModel
    tokenizer: Tokenizer
    record: FineTuningRecord

    @property
    def task(self) -> TaskDefinition:
        """The task as the model knows it, for examples that come from no file."""
        return self.record.task


def save_model_folder(model: HeadModel, tokenizer: Tokenizer, record: FineTuningRecord, folder: str) -> None:
    """Write a model folder on the storage, its manifest last; transformers loads it."""
    with write_folder(folder) as local:
        tokenizer.save(local)
        (local / RECORD_FILE).write_text(json.dumps(record.to_dict(), indent=2) + "\n", encoding="utf-8")
        model.save_pretrained(local)


def load_fine_tuned(folder: Path) -> FineTunedModel:
    """Read a model folder; one made elsewhere, without a record, reads as many tokens as it can.

    Raises: CheckpointError, TokenizerError, naming the file and the remedy.
    """
    config = BertConfig.from_pretrained(folder)
    record = read_record(folder, config)
    tokenizer = Tokenizer.load(folder)
    tokenizer.check_fits(config.vocab_size)
    head = HEADS[record.task.head]
    model: HeadModel = head.model_type.from_pretrained(folder)
    head.set_objective(model, record.task.objective)
    return FineTunedModel(model, tokenizer, record)


def load_task_definition(folder: Path) -> TaskDefinition:
    """The task of a model folder as its record tells it, or its head; reads no weights. Raises: CheckpointError."""
    return read_record(folder, BertConfig.from_pretrained(folder)).task


def read_record(folder: Path, config: BertConfig) -> FineTuningRecord:
    """Read a folder's record, or guess it from the head and the folder's other files.

    Raises: CheckpointError; NewerFormatError for the record of a newer version.
    """
    return read_saved_record(folder, config) or _guess_record(folder, config)


def find_head(folder: Path, config: BertConfig) -> Head | None:
    """Head of a folder's model; None where it has none for a task. Raises: CheckpointError for a damaged record."""
    record = read_saved_record(folder, config)
    if record is not None:
        return record.task.head
    architectures = _architectures(folder)
    return next((name for name, head in HEADS.items() if head.recognizes(folder, config, architectures)), None)


def _architectures(folder: Path) -> Sequence[str]:
    return json.loads((folder / "config.json").read_text(encoding="utf-8")).get("architectures") or ()


def _guess_record(folder: Path, config: BertConfig) -> FineTuningRecord:
    architectures, head = _architectures(folder), find_head(folder, config)
    if head is None:
        raise CheckpointError(
            f"{folder} has no head for a task (its architectures: {', '.join(architectures) or 'none'}); "
            "fine-tune it first: a sweep with init_from"
        )
    task_type, longest = TASK_TYPES[head], config.max_seq_length
    max_seq_length = min(task_type.usual_length or longest, longest)
    options = replace(task_type.options_type.of_recipe(RecipeSpec()), max_seq_length=max_seq_length)
    task = TaskDefinition(id="", type=task_type, labels=label_names(config) if task_type.has_labels else (), metric="")
    return FineTuningRecord(task, HEADS[head].read_options(folder, options))
