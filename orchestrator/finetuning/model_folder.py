"""A fine-tuned model's folder: Hugging Face's layout, its tokenizer, and how text becomes its input and its answers."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bert_core.checkpoints.sentence_transformers import MODULES_FILE
from bert_core.config import BertConfig
from bert_core.errors import CheckpointError
from bert_core.text.tokenization import Tokenizer
from orchestrator.finetuning.dual_encoder import DualEncoder
from orchestrator.finetuning.heads import HEAD_MODELS, HeadModel
from orchestrator.specs import RecipeSpec
from orchestrator.specs.recipe import Context
from orchestrator.specs.task import Head, Objective
from orchestrator.storage import write_folder
from orchestrator.tasks import Example, TabularColumns, Task
from orchestrator.tasks.tabular_columns import NO_COLUMNS
from orchestrator.tasks.text_files import BadRecords

RECORD_FILE = "fine_tuning.json"


@dataclass(frozen=True)
class FineTuningRecord:
    """What a model was fine-tuned for, and what reading text and decoding answers with it needs to know."""

    task: str
    head: Head
    metric: str
    max_seq_length: int
    doc_stride: int
    max_query_length: int
    max_answer_length: int
    context: Context = "sentence"
    """What surrounds a sentence's words (ner)"""
    unanswerable: bool = False
    """Whether the model may say that a passage holds no answer (qa)"""
    null_threshold: float = 0.0
    """ "No answer" is said at null margins above this; tuned on the validation split (qa)"""
    columns: TabularColumns = NO_COLUMNS
    """What stands beside the text, as the training split had it"""
    objective: Objective | None = None
    """What the vectors of a pair were trained on (embedding)"""


def record_of(task: Task, recipe: RecipeSpec, null_threshold: float) -> FineTuningRecord:
    """The record of a trial's model."""
    return FineTuningRecord(
        task=task.id,
        head=task.head,
        metric=task.metric,
        max_seq_length=recipe.max_seq_length,
        doc_stride=recipe.doc_stride,
        max_query_length=recipe.max_query_length,
        max_answer_length=recipe.max_answer_length,
        context=recipe.context,
        unanswerable=task.unanswerable,
        null_threshold=null_threshold,
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

    def task(self) -> Task:
        """The task as the model knows it, for examples that come from no file."""
        record = self.record
        has_labels = "classification" in (record.head, record.objective) or record.head in ("multi_label", "ner")
        return Task(
            id=record.task,
            head=record.head,
            labels=self.labels if has_labels else (),
            metric=record.metric,
            files={},
            reader=_NoReader(),
            unanswerable=record.unanswerable,
            columns=record.columns,
            objective=record.objective,
        )


class _NoReader:
    """Reads nothing: the reader of a task without files."""

    def read(self, path: str, bad: BadRecords) -> Iterator[Example]:
        raise AssertionError(f"a task without files was asked for {path}")


def save_model_folder(model: HeadModel, tokenizer: Tokenizer, record: FineTuningRecord, folder: str) -> None:
    """Write a model folder on the storage, its manifest last; transformers loads it."""
    with write_folder(folder) as local:
        tokenizer.save(local)
        (local / RECORD_FILE).write_text(json.dumps(asdict(record), indent=2) + "\n", encoding="utf-8")
        model.save_pretrained(local)


def load_fine_tuned(folder: Path) -> FineTunedModel:
    """Read a model folder; one made elsewhere, without a record, gets a recipe's usual lengths.

    Raises: CheckpointError, TokenizerError, naming the file and the remedy.
    """
    config = BertConfig.from_pretrained(folder)
    record = read_record(folder, config)
    tokenizer = Tokenizer.load(folder)
    tokenizer.check_fits(config.vocab_size)
    model = HEAD_MODELS[record.head].from_pretrained(folder)
    if isinstance(model, DualEncoder) and record.objective is not None:
        model.set_objective(record.objective)
    return FineTunedModel(model, tokenizer, record)


def read_record(folder: Path, config: BertConfig) -> FineTuningRecord:
    """What a folder's model was fine-tuned for: its own record, or what its head and a recipe's usual lengths say.

    Raises: CheckpointError.
    """
    path = folder / RECORD_FILE
    if not path.exists():
        return _guess_record(folder, config)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        columns = TabularColumns.from_dict(values.pop("columns", asdict(NO_COLUMNS)))
        return FineTuningRecord(**values, columns=columns)
    except (AttributeError, KeyError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} is cut short or altered ({error}); fetch or train the model again") from None


def _guess_record(folder: Path, config: BertConfig) -> FineTuningRecord:
    architectures: Sequence[str] = json.loads((folder / "config.json").read_text(encoding="utf-8")).get(
        "architectures", ()
    )
    names = {head: config.family.architecture(model.__name__) for head, model in HEAD_MODELS.items()}
    head = next((head for head, name in names.items() if name in architectures), None)
    if head is None and (folder / MODULES_FILE).exists():
        head = "embedding"
    if head is None:
        raise CheckpointError(
            f"{folder} has no head for a task (its architectures: {', '.join(architectures) or 'none'}); "
            "fine-tune it first: a sweep with init_from"
        )
    if head == "classification" and config.problem_type == "multi_label_classification":
        head = "multi_label"
    elif head == "classification" and config.num_labels == 1:
        head = "regression"
    usual = RecipeSpec()
    return FineTuningRecord(
        task="",
        head=head,
        metric="",
        max_seq_length=min(384 if head == "qa" else usual.max_seq_length, config.max_seq_length),
        doc_stride=usual.doc_stride,
        max_query_length=usual.max_query_length,
        max_answer_length=usual.max_answer_length,
        objective="cosine" if head == "embedding" else None,
    )
