"""A fine-tuned model's folder: Hugging Face's layout, its tokenizer, and how text becomes its input and its answers."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bert_core.config import BertConfig
from bert_core.errors import CheckpointError
from bert_core.text.tokenization import Tokenizer
from orchestrator.finetuning.heads import HEADS, HeadModel
from orchestrator.specs import RecipeSpec
from orchestrator.specs.recipe import Context
from orchestrator.specs.task import EmbeddingObjectiveName, Head
from orchestrator.storage import write_folder
from orchestrator.tasks import TASK_TYPES, DecodingOptions, FeatureOptions, TabularColumns, TaskDefinition
from orchestrator.tasks.tabular_columns import NO_COLUMNS

RECORD_FILE = "fine_tuning.json"


@dataclass(frozen=True)
class FineTuningRecord:
    """Record of a fine-tuned model: its task and the options of reading and decoding."""

    task: str
    head: Head
    metric: str
    max_seq_length: int
    doc_stride: int
    max_query_length: int
    max_answer_length: int
    context: Context = "sentence"
    """Text in a window beside the sentence: none, or its document (ner)."""
    unanswerable: bool = False
    """Whether the model may say that a passage holds no answer (qa)."""
    null_threshold: float = 0.0
    """Null margin above which "no answer" is predicted; tuned on the validation split (qa)."""
    columns: TabularColumns = NO_COLUMNS
    """Tabular columns, as learned from the training split."""
    objective: EmbeddingObjectiveName | None = None
    """Objective that vectors were trained on (embedding)."""

    @property
    def feature_options(self) -> FeatureOptions:
        """The options that texts become windows with."""
        return FeatureOptions(self.max_seq_length, self.doc_stride, self.max_query_length, self.context)

    @property
    def decoding_options(self) -> DecodingOptions:
        """The options that predictions are decoded with."""
        return DecodingOptions(self.max_answer_length, self.null_threshold)


def record_of(task: TaskDefinition, recipe: RecipeSpec, null_threshold: float) -> FineTuningRecord:
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
    head = HEADS[record.head]
    model: HeadModel = head.model_type.from_pretrained(folder)
    head.set_objective(model, record.objective)
    return FineTunedModel(model, tokenizer, record)


def read_record(folder: Path, config: BertConfig) -> FineTuningRecord:
    """Read a folder's record, or guess it from the head and a recipe's default lengths.

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
    head = next((name for name, head in HEADS.items() if head.recognizes(folder, config, architectures)), None)
    if head is None:
        raise CheckpointError(
            f"{folder} has no head for a task (its architectures: {', '.join(architectures) or 'none'}); "
            "fine-tune it first: a sweep with init_from"
        )
    usual, task_type = RecipeSpec(), TASK_TYPES[head]
    return FineTuningRecord(
        task="",
        head=head,
        metric="",
        max_seq_length=min(task_type.usual_max_seq_length or usual.max_seq_length, config.max_seq_length),
        doc_stride=usual.doc_stride,
        max_query_length=usual.max_query_length,
        max_answer_length=usual.max_answer_length,
        objective=task_type.usual_objective,
    )
