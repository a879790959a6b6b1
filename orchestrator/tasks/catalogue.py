"""The known tasks: what their official files are called, which columns count, which score ranks.

The ranking scores are those that Devlin et al. (2019, tables 1 and 4) report; WNLI, which they leave out, ranks by
accuracy.
Class names stand in the order of the labels' numbers in the files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

from orchestrator.base.errors import NotFoundError
from orchestrator.base.nearest import did_you_mean
from orchestrator.base.results import Split
from orchestrator.specs.task import EmbeddingObjectiveName, Head, TaskSpec


def _files(train: str, validation: str, test: str) -> Mapping[Split, tuple[str, ...]]:
    """The names, with spaces between them, that the file of each split goes by."""
    return {"train": tuple(train.split()), "validation": tuple(validation.split()), "test": tuple(test.split())}


def tag_set(*types: str) -> tuple[str, ...]:
    """`O`, then `B-` and `I-` of every type."""
    return ("O", *(f"{prefix}-{kind}" for kind in types for prefix in "BI"))


_GLUE_FILES = _files("train.tsv", "dev.tsv", "test.tsv")


class HubFiles(NamedTuple):
    """A published data set as Parquet on the hub, at a commit, whose columns are not those of the official files."""

    files: Mapping[Split, str]
    text_columns: tuple[str, ...] = ()
    label_column: str = ""


@dataclass(frozen=True)
class KnownTask:
    """A published data set's layout."""

    head: Head
    metric: str
    files: Mapping[Split, tuple[str, ...]] = field(default_factory=lambda: _GLUE_FILES)
    """Names that a split's file goes by, compressed or not."""
    classes: Mapping[str, str] = field(default_factory=dict)
    """Class name by the label in the file."""
    labels: tuple[str, ...] = ()
    """The tags (ner)."""
    text_columns: tuple[str, ...] = ()
    choice_columns: tuple[str, ...] = ()
    label_column: str = ""
    header: bool = True
    """Whether files have a header; without one, columns go by their number, from 0."""
    unanswerable: bool = False
    """Whether a question may have no answer (qa)."""
    gains: Mapping[str, float] = field(default_factory=dict)
    """Gain by the score in the file (retrieval)."""
    objective: EmbeddingObjectiveName | None = None
    """Objective that the vectors of a pair are judged by (embedding)."""
    score_range: tuple[float, float] | None = None
    """The least and the greatest score (embedding)."""

    def on_hub(self, hub: HubFiles) -> "KnownTask":
        """The layout of the files on the hub, whose classes go by their numbers or by their names."""
        classes = _numbered(*self.classes.values()) | _named(*self.classes.values())
        columns, label = hub.text_columns, hub.label_column
        return replace(self, classes=classes, text_columns=columns, label_column=label, header=True)

    def complete(self, spec: TaskSpec) -> TaskSpec:
        """The spec of a person who named this task, with the fields that the task has of its own."""
        names = ("head", "text_columns", "choice_columns", "objective", "score_range")
        own = {name: getattr(self, name) for name in names} | {"metric": spec.metric or self.metric}
        return spec.model_copy(update={**own, "label_column": self.label_column or None})


def _numbered(*names: str) -> dict[str, str]:
    return {str(number): name for number, name in enumerate(names)}


def _named(*names: str) -> dict[str, str]:
    return {name: name for name in names}


def _classification(
    metric: str, classes: Mapping[str, str], *text_columns: str, label_column: str = "label", **layout: Any
) -> KnownTask:
    columns: dict[str, Any] = {"text_columns": text_columns, "label_column": label_column}
    return KnownTask("classification", metric, classes=classes, **columns, **layout)


def _similarity(label_column: str, score_range: tuple[float, float], *text_columns: str, **layout: Any) -> KnownTask:
    columns: dict[str, Any] = {"text_columns": text_columns, "label_column": label_column}
    return KnownTask("embedding", "spearman", objective="cosine", score_range=score_range, **columns, **layout)


_SENTENCES = ("sentence1", "sentence2")
_ENTAILED = _named("entailment", "not_entailment")

KNOWN_TASKS: Mapping[str, KnownTask] = {
    "cola": _classification(
        "matthews_correlation", _numbered("unacceptable", "acceptable"), "3", label_column="1", header=False
    ),
    "sst2": _classification("accuracy", _numbered("negative", "positive"), "sentence"),
    "mrpc": _classification(
        "f1", _numbered("not_equivalent", "equivalent"), "#1 String", "#2 String", label_column="Quality"
    ),
    "stsb": KnownTask("regression", "spearman", text_columns=_SENTENCES, label_column="score"),
    "qqp": _classification(
        "f1", _numbered("not_duplicate", "duplicate"), "question1", "question2", label_column="is_duplicate"
    ),
    "mnli": _classification(
        "accuracy",
        _named("entailment", "neutral", "contradiction"),
        *_SENTENCES,
        label_column="gold_label",
        files=_files("train.tsv", "dev_matched.tsv", "test_matched.tsv"),
    ),
    "qnli": _classification("accuracy", _ENTAILED, "question", "sentence"),
    "rte": _classification("accuracy", _ENTAILED, *_SENTENCES),
    "wnli": _classification("accuracy", _numbered("not_entailment", "entailment"), *_SENTENCES),
    "swag": KnownTask(
        "multiple_choice",
        "accuracy",
        files=_files("train.csv", "val.csv", "test.csv"),
        text_columns=("sent1", "sent2"),
        choice_columns=("ending0", "ending1", "ending2", "ending3"),
        label_column="label",
    ),
    "conll2003": KnownTask(
        "ner",
        "f1",
        files=_files("eng.train train.txt", "eng.testa valid.txt", "eng.testb test.txt"),
        labels=tag_set("PER", "ORG", "LOC", "MISC"),
    ),
    "wnut17": KnownTask(
        "ner",
        "f1",
        files=_files("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
        labels=tag_set("corporation", "creative-work", "group", "location", "person", "product"),
    ),
    "stsb_embedding": _similarity("score", (0.0, 5.0), *_SENTENCES),
    "sick_embedding": _similarity(
        "relatedness_score", (1.0, 5.0), "sentence_A", "sentence_B", files=_files("train.tsv", "trial.tsv", "test.tsv")
    ),
    # Cleverdon's codes: 1 is a complete answer, 4 of minimum interest. The collection does not say what the 225 rows of
    # −1 mean, which name a document of the query's; they are read as the least.
    "cranfield": KnownTask(
        "retrieval",
        "ndcg_at_10",
        files={"validation": ("qrels.tsv",)},
        gains={"1": 4.0, "2": 3.0, "3": 2.0, "4": 1.0, "-1": 1.0},
    ),
    "squad": KnownTask("qa", "f1", files={"train": ("train-v1.1.json",), "validation": ("dev-v1.1.json",)}),
    "squad_v2": KnownTask(
        "qa", "f1", files={"train": ("train-v2.0.json",), "validation": ("dev-v2.0.json",)}, unanswerable=True
    ),
}


def _files_on_hub(folder: str, **names: str) -> Mapping[Split, str]:
    names = names or {"train": "train", "validation": "validation"}
    files = {split: f"hf://datasets/{folder}/{name}-00000-of-00001.parquet" for split, name in names.items()}
    return cast("Mapping[Split, str]", files)


def _glue(name: str, *text_columns: str, **names: str) -> HubFiles:
    """A task of GLUE; its test split has no labels."""
    folder = f"nyu-mll/glue@bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c/{name}"
    return HubFiles(_files_on_hub(folder, **names), text_columns, "label")


_CONLL = "lhoestq/conll2003@19edcb426bfd625c275c17b9a99b2239243f4377"
ON_HUB: Mapping[str, HubFiles] = {
    "cola": _glue("cola", "sentence"),
    "sst2": _glue("sst2", "sentence"),
    "mrpc": _glue("mrpc", *_SENTENCES),
    "stsb": _glue("stsb", *_SENTENCES),
    "stsb_embedding": _glue("stsb", *_SENTENCES),
    "qqp": _glue("qqp", "question1", "question2"),
    "mnli": _glue("mnli", "premise", "hypothesis", train="train", validation="validation_matched"),
    "qnli": _glue("qnli", "question", "sentence"),
    "rte": _glue("rte", *_SENTENCES),
    "wnli": _glue("wnli", *_SENTENCES),
    "conll2003": HubFiles(
        _files_on_hub(f"{_CONLL}/data", train="train", validation="validation", test="test"), ("tokens",), "ner_tags"
    ),
    "squad": HubFiles(_files_on_hub("rajpurkar/squad@7b6d24c440a36b6815f21b70d25016731768db1f/plain_text")),
    "squad_v2": HubFiles(_files_on_hub("rajpurkar/squad_v2@3ffb306f725f7d2ce8394bc1873b24868140c412/squad_v2")),
}
"""Files of the known tasks that the hub has as well."""


def check_known(task: TaskSpec) -> None:
    """Raise NotFoundError for a task that is neither known nor a person's own."""
    if task.id not in KNOWN_TASKS and task.head is None and not task.files:
        raise NotFoundError(
            f"no known task is called {task.id!r}{did_you_mean(task.id, KNOWN_TASKS)} "
            "(of a task of your own, name the labeled file, or give head=… and files.validation=…)"
        )
