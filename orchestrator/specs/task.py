"""A labeled task and its files."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, model_validator

from orchestrator.base.results import Split
from orchestrator.specs.fields import Section, Spec, identity

Head = Literal[
    "classification",
    "multi_label",
    "multiple_choice",
    "regression",
    "ner",
    "token_classification",
    "qa",
    "sentence_selection",
    "embedding",
    "retrieval",
]
EmbeddingObjectiveName = Literal["cosine", "in_batch_negatives", "classification"]


class SplitSpec(Section):
    """Division of the training examples where there is no validation file: of each label's texts alike, by digests of
    the texts, copies of a text together.
    """

    validation: float | None = identity(
        None, "Share of the texts that is kept for validation, and not trained on.", gt=0.0, lt=1.0
    )
    folds: int | None = identity(
        None,
        "Parts that the examples are dealt into: every recipe is trained once for each part, on the others, and "
        "validated on it; a seed's score is the mean (sweep).",
        ge=2,
        le=100,
    )

    @model_validator(mode="after")
    def _check_one_given(self) -> Self:
        if (self.validation is None) == (self.folds is None):
            raise ValueError("needs one of validation and folds; the other is null")
        return self


class TaskSpec(Section):
    """A known task by id with the folder of its official files, or one's own files and columns."""

    id: str = identity(doc="`sst2`, `mrpc`, `stsb`, `conll2003`, `squad`, …, or a name for a task of one's own.")
    folder: str | None = identity(
        None,
        "Folder of a known task's official files, or of a collection (retrieval): corpus.jsonl, queries.jsonl, "
        "qrels.tsv or qrels/dev.tsv; compressed or not. Left out, most known tasks come from the Hugging Face hub.",
    )
    head: Head | None = identity(None, "Kind of head; a known task has its own.")
    files: dict[Split, str] = identity(
        {},
        "A file per split: CSV, TSV, JSON, Parquet, CoNLL columns (word first, tag last), SQuAD JSON; "
        "also compressed, or on the hub (hf://datasets/ORG/NAME/PATH). Tables of questions (qa) have the columns "
        "context, question and answers.",
    )
    text_columns: tuple[str, ...] = identity(
        (),
        "One or two columns of text; the column of words of a table of tags, `tokens` when left out; the column of a "
        "document's sentences, `sentences` when left out, and that of a query if there is one (sentence_selection).",
        max_length=2,
    )
    negative_columns: tuple[str, ...] = identity(
        (),
        "Columns of texts, or of lists of texts, that do not belong to the first text: hard negatives, as `search "
        "--pairs FILE --for encoder` writes them (embedding, objective in_batch_negatives).",
        is_new=True,
    )
    choice_columns: tuple[str, ...] = identity(
        (), "The columns of the choices (multiple_choice); a second column of text begins every choice."
    )
    numerical_columns: tuple[str, ...] = identity(
        (), "Columns of numbers that a classifier reads beside the text; a row may lack any of them."
    )
    categorical_columns: tuple[str, ...] = identity(
        (), "Columns of categories that a classifier reads beside the text; a row may lack any of them."
    )
    label_column: str | None = identity(
        None,
        "The column of the label or score: `label`, `tags` of words, or `selected`, the numbers from 0 of the "
        "sentences that matter or true and false for each (sentence_selection), when left out. Of words it holds "
        "lists of tags, or lists of character spans where the column of words holds texts.",
    )
    label_columns: tuple[str, ...] = identity(
        (), "Columns of 0 and 1, or no and yes, one a label, in place of a column of lists (multi_label).", is_new=True
    )
    objective: EmbeddingObjectiveName | None = identity(
        None,
        "Objective that a pair's vectors are trained on and judged by: the cosine's distance from a score, finding "
        "each text's partner among all those of a batch, or the pair's class (embedding).",
    )
    score_range: tuple[float, float] | None = identity(
        None, "The least and the greatest score: unrelated and the same (embedding, objective cosine)."
    )
    label_separator: str = identity(
        "|", "Text between the names in a column of labels that holds no lists (multi_label).", min_length=1
    )
    labels: tuple[str, ...] | None = identity(
        None, "All labels in order; those of the training split, sorted, when left out."
    )
    metric: str | None = identity(None, "The score that ranks; the task's own when left out.")
    split: SplitSpec | None = identity(
        None,
        "Division of the training data where there is no validation file: `{validation: 0.1}`, or `{folds: 5}`.",
        is_new=True,
    )
    max_train_examples: int | None = identity(
        None, "Train on the first so many examples of the file, of which `split` divides these.", unit="examples", ge=1
    )
    max_validation_examples: int | None = identity(None, "Validate on the first so many.", unit="examples", ge=1)
    on_bad_record: Literal["error", "skip"] = identity(
        "error", "Treatment of a broken record: it ends the run, or is left out."
    )


def _refuse_folds(task: TaskSpec) -> TaskSpec:
    if task.split is not None and task.split.folds is not None:
        raise ValueError("has split.folds, which are for a sweep alone; give split.validation, a share")
    return task


WholeTask = Annotated[TaskSpec, AfterValidator(_refuse_folds)]
"""A task whose validation split is one."""


def task_of(spec: Spec) -> TaskSpec | None:
    """Return the labeled task that a spec is about: its field `task`."""
    task = getattr(spec, "task", None)
    return task if isinstance(task, TaskSpec) else None
