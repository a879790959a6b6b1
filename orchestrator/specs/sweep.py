"""Fine-tuning: a task, a recipe, and the space of variations to try."""

from typing import Annotated, ClassVar, Literal, Self, TypeVar

from pydantic import Field, ValidationError, field_validator, model_validator

from orchestrator.specs.fields import Section, Spec, execution, identity
from orchestrator.specs.network import Family, Size
from orchestrator.specs.problems import nearest, rule_of

Scalar = bool | int | float | str
_Number = TypeVar("_Number", int, float)
Head = Literal["classification", "multi_label", "multiple_choice", "regression", "ner", "qa", "embedding", "retrieval"]
Objective = Literal["cosine", "in_batch_negatives", "classification"]
Context = Literal["sentence", "document"]


class TaskSpec(Section):
    """A known task by id with the folder of its official files, or one's own files and columns."""

    id: str = identity(doc="`sst2`, `mrpc`, `stsb`, `conll2003`, `squad`, …, or a name for a task of one's own.")
    folder: str | None = identity(
        None,
        "Folder of a known task's official files, or of a collection (retrieval): corpus.jsonl, queries.jsonl, "
        "qrels.tsv or qrels/dev.tsv; compressed or not.",
    )
    head: Head | None = identity(None, "Kind of head; a known task has its own.")
    files: dict[Literal["train", "validation", "test"], str] = identity(
        {},
        "A file per split: CSV, TSV, JSONL, Parquet, CoNLL columns (word first, BIO tag last), SQuAD JSON; "
        "also compressed.",
    )
    text_columns: tuple[str, ...] = identity(
        (), "One or two columns of text; the column of words of a NER table, `tokens` when left out.", max_length=2
    )
    choice_columns: tuple[str, ...] = identity(
        (), "The columns of the choices (multiple_choice); a second column of text begins every choice."
    )
    number_columns: tuple[str, ...] = identity(
        (), "Columns of numbers that a classifier reads beside the text; a row may lack any of them."
    )
    category_columns: tuple[str, ...] = identity(
        (), "Columns of categories that a classifier reads beside the text; a row may lack any of them."
    )
    label_column: str | None = identity(
        None, "The column of the label or score: `label`, or `tags` in a NER table, when left out."
    )
    objective: Objective | None = identity(
        None,
        "What the vectors of a pair are trained on and judged by: the cosine's distance from a score, finding each "
        "text's partner among all those of a batch, or the pair's class (embedding).",
    )
    score_range: tuple[float, float] | None = identity(
        None, "The least and the greatest score: unrelated and the same (embedding, objective cosine)."
    )
    label_separator: str = identity(
        "|", "What names stand apart by in a column of labels that holds no lists (multi_label).", min_length=1
    )
    labels: tuple[str, ...] | None = identity(
        None, "All labels in order; those of the training split, sorted, when left out."
    )
    metric: str | None = identity(None, "The score that ranks; the task's own when left out.")
    max_train_examples: int | None = identity(None, "Train on the first so many examples.", unit="examples", ge=1)
    max_validation_examples: int | None = identity(None, "Validate on the first so many.", unit="examples", ge=1)
    on_bad_record: Literal["error", "skip"] = identity(
        "error", "What a broken record does: end the run or be left out."
    )


class RecipeSpec(Section):
    """How one trial is trained; any of it can be an axis of the search."""

    init_from: str = identity("random", "A model to start from, or `random` weights.")
    tokenizer: str | None = identity(None, "Tokenizer for random weights; a model brings its own.")
    size: Size = identity("tiny", "Size of random weights: tiny to large, or layers × width as in 8x256.")
    family: Family = identity("bert", "Family of random weights.")
    initializer_range: float = identity(0.02, "Standard deviation of random weights.", gt=0.0)
    learning_rate: float = identity(5e-5, "Peak learning rate.", gt=0.0)
    batch_size: int = identity(32, "Examples of a step.", unit="examples", ge=1)
    epochs: float = identity(3.0, "Passes over the training split.", unit="epochs", gt=0.0)
    warmup_share: float = identity(0.1, "Share of the steps that warm up linearly.", unit="share", ge=0.0, lt=1.0)
    frozen: bool = identity(
        False, "Only the head learns, on the encoder's outputs, which are computed once for all trials."
    )
    head_input: Literal["last", "second_to_last", "sum_last_four", "concat_last_four", "mixture", "embeddings"] = (
        identity("last", "What the head reads: a layer's output, the last four's, or a learnt mixture of all.")
    )
    layer_learning_rate_decay: float = identity(
        1.0, "Each layer's learning rate is this times that of the layer above it; 1 for one rate.", gt=0.0, le=1.0
    )
    unfreeze_every_epochs: float | None = identity(
        None, "Only the head learns at first, then one more layer from the top each so often.", unit="epochs", gt=0.0
    )
    weight_decay: float = identity(0.01, "AdamW's decay; none on biases and LayerNorm.", ge=0.0)
    max_grad_norm: float = identity(1.0, "Gradients are clipped to this norm.", gt=0.0)
    dropout: float | None = identity(None, "Dropout everywhere; the model's own when left out.", ge=0.0, lt=1.0)
    max_seq_length: int = identity(128, "Tokens of a sequence, special tokens included.", unit="tokens", ge=8)
    doc_stride: int = identity(128, "Tokens between the starts of two windows of a passage (qa).", unit="tokens", ge=1)
    max_query_length: int = identity(64, "Tokens of a question at most (qa).", unit="tokens", ge=1)
    max_answer_length: int = identity(30, "Tokens of an answer at most (qa).", unit="tokens", ge=1)
    context: Context = identity(
        "sentence",
        "What a window shows: a sentence alone, or as much of its document around it as fits, where the file marks "
        "documents with `-DOCSTART-` (ner).",
    )
    token_decoder: Literal["softmax", "crf"] = identity(
        "softmax", "Each word's tag alone, or a sentence's path of tags: a linear-chain CRF within BIO (ner)."
    )
    pooling: Literal["mean", "cls", "max"] | None = identity(
        None, "How tokens become one vector; as the model's folder says, else their mean, when left out (embedding)."
    )
    temperature: float = identity(
        0.05, "Cosines are divided by this before the softmax over a batch (embedding, in_batch_negatives).", gt=0.0
    )
    evaluations_per_epoch: int = identity(1, "Validation scores taken in each epoch.", ge=1)
    patience: int | None = identity(None, "Stop after so many evaluations without a better score.", ge=1)
    precision: Literal["fp32", "bf16"] = identity("fp32", "Arithmetic of forward and backward.")
    seed: int = identity(0, "Decides head, order and dropout.", ge=0, lt=2**32)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.frozen and self.unfreeze_every_epochs is not None:
            raise ValueError("frozen and unfreeze_every_epochs contradict one another; leave one out")
        return self


class Choice(Section):
    """One of several values."""

    choice: tuple[Scalar, ...] = identity(doc="The values.", min_length=1)


class Uniform(Section):
    """A number between two bounds."""

    uniform: tuple[float, float] = identity(doc="Lower and upper bound.")

    @field_validator("uniform")
    @classmethod
    def _ordered(cls, bounds: tuple[float, float]) -> tuple[float, float]:
        return _ordered_bounds(bounds)


class LogUniform(Section):
    """A number between two bounds, even on a logarithmic scale."""

    log_uniform: tuple[float, float] = identity(doc="Lower and upper bound.")

    @field_validator("log_uniform")
    @classmethod
    def _ordered(cls, bounds: tuple[float, float]) -> tuple[float, float]:
        if bounds[0] <= 0:
            raise ValueError(f"the lower bound {bounds[0]:g} must be above 0 on a logarithmic scale")
        return _ordered_bounds(bounds)


class IntUniform(Section):
    """A whole number between two bounds, both included."""

    int_uniform: tuple[int, int] = identity(doc="Lower and upper bound.")

    @field_validator("int_uniform")
    @classmethod
    def _ordered(cls, bounds: tuple[int, int]) -> tuple[int, int]:
        return _ordered_bounds(bounds)


def _ordered_bounds(bounds: tuple[_Number, _Number]) -> tuple[_Number, _Number]:
    if bounds[0] >= bounds[1]:
        raise ValueError(f"the lower bound {bounds[0]:g} must be below the upper bound {bounds[1]:g}")
    return bounds


Axis = Annotated[Choice | Uniform | LogUniform | IntUniform, Field(union_mode="left_to_right")]


def _values_of(axis: Choice | Uniform | LogUniform | IntUniform | tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    """The listed values of an axis, or the bounds of a range."""
    match axis:
        case Choice():
            return axis.choice
        case Uniform():
            return axis.uniform
        case LogUniform():
            return axis.log_uniform
        case IntUniform():
            return axis.int_uniform
    return axis


class SweepExecutionSpec(Section):
    """How trials share the machine."""

    cpus_per_trial: float = execution(1.0, "Ray CPUs of a trial; fractions allowed.", unit="CPUs", gt=0.0)
    gpus_per_trial: float = execution(0.0, "Ray GPUs of a trial; fractions share one.", unit="GPUs", ge=0.0)
    max_concurrent_trials: int | None = execution(None, "Trials at a time; as many as fit when left out.", ge=1)
    max_failures: int = execution(1, "Times a trial whose process died is tried again.", ge=0)


class SweepSpec(Spec):
    """Fine-tune on a task, over a space of variations."""

    title: ClassVar[str] = "fine-tune over a search space"
    kind: Literal["sweep"] = identity("sweep", "Selects this kind of spec.")
    task: TaskSpec = identity(doc="What is learnt, and from which files.")
    recipe: RecipeSpec = identity(RecipeSpec(), "How a trial is trained where the space does not vary it.")
    space: dict[str, Axis | tuple[Scalar, ...]] = identity(
        {}, "Recipe fields to vary: a list of values, or choice, uniform, log_uniform, int_uniform."
    )
    search: Literal["grid", "random", "optuna"] = identity("grid", "How points of the space are chosen.")
    trials: int | None = identity(
        None, "Points of the space to try at most; a grid tries all of them when left out.", unit="points", ge=1
    )
    seeds: tuple[int, ...] = identity((0,), "Every point is tried with each of these seeds.", min_length=1)
    search_seed: int = identity(0, "Decides the points of random and Optuna search.", ge=0, lt=2**32)
    scheduler: Literal["none", "asha"] = identity("none", "Whether weak trials are ended early.")
    threads_per_trial: int = identity(1, "Threads of a trial on CPUs; changes rounding, hence part of identity.", ge=1)
    execution: SweepExecutionSpec = execution(SweepExecutionSpec(), "How trials share the machine.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, axis in self.space.items():
            if name not in RecipeSpec.model_fields:
                raise ValueError(f"space.{name} is no field of recipe{nearest(name, RecipeSpec.model_fields)}")
            if name == "seed":
                raise ValueError("space.seed: give seeds in `seeds`, so that trials are grouped by the rest")
            if isinstance(axis, tuple) and not axis:
                raise ValueError(f"space.{name} lists no values; give at least one, or leave it out")
            if self.search == "grid" and not isinstance(axis, Choice | tuple):
                raise ValueError(
                    f"space.{name} is a range, which a grid cannot walk; list values or use search: random"
                )
            for value in _values_of(axis):
                try:
                    RecipeSpec.model_validate({name: value})
                except ValidationError as error:
                    raise ValueError(
                        f"space.{name} has {value!r}, which recipe.{name} refuses; {rule_of(error.errors()[0])}"
                    ) from None
        self._refuse_without_head()
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds {list(self.seeds)} repeat a value; a trial is made once per seed")
        if self.search != "grid" and self.trials is None:
            raise ValueError(f"search: {self.search} needs `trials`, the number of points to try")
        models = _values_of(self.space.get("init_from", (self.recipe.init_from,)))
        if "random" in models and self.recipe.tokenizer is None and "tokenizer" not in self.space:
            raise ValueError(
                "recipe.tokenizer is left out, but init_from has `random`, and random weights need a tokenizer; "
                "name a folder, or a model whose tokenizer to use"
            )
        return self

    def _refuse_without_head(self) -> None:
        """Raise ValueError where there is no head that could learn, or learn by itself."""
        if self.task.head == "retrieval":
            raise ValueError("task.head: a retrieval task is evaluated, not learnt; learn pairs with head: embedding")
        if self.task.head == "embedding":
            for name in ("frozen", "unfreeze_every_epochs", "head_input"):
                default = RecipeSpec.model_fields[name].default
                if name in self.space or getattr(self.recipe, name) != default:
                    raise ValueError(f"{name}: an embedding has no head above its encoder; leave it out")


class EvaluateSpec(Spec):
    """Score a model on a split of a task."""

    title: ClassVar[str] = "score a model on a task"
    kind: Literal["evaluate"] = identity("evaluate", "Selects this kind of spec.")
    model: str = identity(doc="The model: a registered name, a run or a folder.")
    task: TaskSpec = identity(doc="The task.")
    split: Literal["train", "validation", "test"] = identity("validation", "The split that is scored.")
    batch_size: int = execution(64, "Examples of a forward pass.", unit="examples", ge=1)
