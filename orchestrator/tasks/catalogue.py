"""The known tasks: what their official files are called, which columns count, which score ranks.

The ranking scores are those that Devlin et al. (2019, tables 1 and 4) report; WNLI, which they leave out, ranks by
accuracy.
Class names stand in the order of the labels' numbers in the files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orchestrator.results import Split
from orchestrator.specs.task import EmbeddingObjectiveName, Head, TaskSpec
from orchestrator.tasks.bio_tags import tag_set

_GLUE_FILES: Mapping[Split, tuple[str, ...]] = {
    "train": ("train.tsv",),
    "validation": ("dev.tsv",),
    "test": ("test.tsv",),
}
_GLUE_ON_HUB = "hf://datasets/nyu-mll/glue@bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"
_SQUAD_ON_HUB = "hf://datasets/rajpurkar/squad@7b6d24c440a36b6815f21b70d25016731768db1f/plain_text"
_SQUAD_V2_ON_HUB = "hf://datasets/rajpurkar/squad_v2@3ffb306f725f7d2ce8394bc1873b24868140c412/squad_v2"
_CONLL_ON_HUB = "hf://datasets/lhoestq/conll2003@19edcb426bfd625c275c17b9a99b2239243f4377/data"


@dataclass(frozen=True)
class HubFiles:
    """A published data set as Parquet on the hub: its folder at a commit, and how that differs from official files."""

    folder: str
    text_columns: tuple[str, ...] = ()
    label_column: str = ""
    splits: Mapping[Split, str] = field(default_factory=lambda: {"train": "train", "validation": "validation"})
    """Name of each labeled split there; GLUE's test splits have no labels."""

    @property
    def files(self) -> dict[Split, str]:
        """URI of each split's file."""
        return {split: f"{self.folder}/{name}-00000-of-00001.parquet" for split, name in self.splits.items()}


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
    hub: HubFiles | None = None

    def on_hub(self, hub: HubFiles) -> "KnownTask":
        """The layout of the files on the hub, whose classes go by their numbers or by their names."""
        names = self.classes.values()
        classes = _numbered(*names) | _named(*names)
        return replace(self, classes=classes, text_columns=hub.text_columns, label_column=hub.label_column, header=True)

    def complete(self, spec: TaskSpec) -> TaskSpec:
        """The spec of a person who named this task, with the fields that the task has of its own."""
        return spec.model_copy(
            update={
                "head": self.head,
                "text_columns": self.text_columns,
                "choice_columns": self.choice_columns,
                "label_column": self.label_column or None,
                "objective": self.objective,
                "score_range": self.score_range,
            }
        )


def _numbered(*names: str) -> dict[str, str]:
    return {str(number): name for number, name in enumerate(names)}


def _named(*names: str) -> dict[str, str]:
    return {name: name for name in names}


def _glue_on_hub(name: str, *text_columns: str, validation: str = "validation") -> HubFiles:
    splits: dict[Split, str] = {"train": "train", "validation": validation}
    return HubFiles(f"{_GLUE_ON_HUB}/{name}", text_columns, "label", splits)


_SENTENCES = ("sentence1", "sentence2")

KNOWN_TASKS: Mapping[str, KnownTask] = {
    "cola": KnownTask(
        "classification",
        "matthews_correlation",
        classes=_numbered("unacceptable", "acceptable"),
        text_columns=("3",),
        label_column="1",
        header=False,
        hub=_glue_on_hub("cola", "sentence"),
    ),
    "sst2": KnownTask(
        "classification",
        "accuracy",
        classes=_numbered("negative", "positive"),
        text_columns=("sentence",),
        label_column="label",
        hub=_glue_on_hub("sst2", "sentence"),
    ),
    "mrpc": KnownTask(
        "classification",
        "f1",
        classes=_numbered("not_equivalent", "equivalent"),
        text_columns=("#1 String", "#2 String"),
        label_column="Quality",
        hub=_glue_on_hub("mrpc", *_SENTENCES),
    ),
    "stsb": KnownTask(
        "regression",
        "spearman",
        text_columns=_SENTENCES,
        label_column="score",
        hub=_glue_on_hub("stsb", *_SENTENCES),
    ),
    "qqp": KnownTask(
        "classification",
        "f1",
        classes=_numbered("not_duplicate", "duplicate"),
        text_columns=("question1", "question2"),
        label_column="is_duplicate",
        hub=_glue_on_hub("qqp", "question1", "question2"),
    ),
    "mnli": KnownTask(
        "classification",
        "accuracy",
        files={"train": ("train.tsv",), "validation": ("dev_matched.tsv",), "test": ("test_matched.tsv",)},
        classes=_named("entailment", "neutral", "contradiction"),
        text_columns=_SENTENCES,
        label_column="gold_label",
        hub=_glue_on_hub("mnli", "premise", "hypothesis", validation="validation_matched"),
    ),
    "qnli": KnownTask(
        "classification",
        "accuracy",
        classes=_named("entailment", "not_entailment"),
        text_columns=("question", "sentence"),
        label_column="label",
        hub=_glue_on_hub("qnli", "question", "sentence"),
    ),
    "rte": KnownTask(
        "classification",
        "accuracy",
        classes=_named("entailment", "not_entailment"),
        text_columns=_SENTENCES,
        label_column="label",
        hub=_glue_on_hub("rte", *_SENTENCES),
    ),
    "wnli": KnownTask(
        "classification",
        "accuracy",
        classes=_numbered("not_entailment", "entailment"),
        text_columns=_SENTENCES,
        label_column="label",
        hub=_glue_on_hub("wnli", *_SENTENCES),
    ),
    "swag": KnownTask(
        "multiple_choice",
        "accuracy",
        files={"train": ("train.csv",), "validation": ("val.csv",), "test": ("test.csv",)},
        text_columns=("sent1", "sent2"),
        choice_columns=("ending0", "ending1", "ending2", "ending3"),
        label_column="label",
    ),
    "conll2003": KnownTask(
        "ner",
        "f1",
        files={
            "train": ("eng.train", "train.txt"),
            "validation": ("eng.testa", "valid.txt"),
            "test": ("eng.testb", "test.txt"),
        },
        labels=tag_set("PER", "ORG", "LOC", "MISC"),
        hub=HubFiles(
            _CONLL_ON_HUB, ("tokens",), "ner_tags", {"train": "train", "validation": "validation", "test": "test"}
        ),
    ),
    "wnut17": KnownTask(
        "ner",
        "f1",
        files={
            "train": ("wnut17train.conll",),
            "validation": ("emerging.dev.conll",),
            "test": ("emerging.test.annotated",),
        },
        labels=tag_set("corporation", "creative-work", "group", "location", "person", "product"),
    ),
    "stsb_embedding": KnownTask(
        "embedding",
        "spearman",
        text_columns=_SENTENCES,
        label_column="score",
        objective="cosine",
        score_range=(0.0, 5.0),
        hub=_glue_on_hub("stsb", *_SENTENCES),
    ),
    "sick_embedding": KnownTask(
        "embedding",
        "spearman",
        files={"train": ("train.tsv",), "validation": ("trial.tsv",), "test": ("test.tsv",)},
        text_columns=("sentence_A", "sentence_B"),
        label_column="relatedness_score",
        objective="cosine",
        score_range=(1.0, 5.0),
    ),
    # Cleverdon's codes: 1 is a complete answer, 4 of minimum interest. The collection does not say what the 225 rows of
    # −1 mean, which name a document of the query's; they are read as the least.
    "cranfield": KnownTask(
        "retrieval",
        "ndcg_at_10",
        files={"validation": ("qrels.tsv",)},
        gains={"1": 4.0, "2": 3.0, "3": 2.0, "4": 1.0, "-1": 1.0},
    ),
    "squad": KnownTask(
        "qa",
        "f1",
        files={"train": ("train-v1.1.json",), "validation": ("dev-v1.1.json",)},
        hub=HubFiles(_SQUAD_ON_HUB),
    ),
    "squad_v2": KnownTask(
        "qa",
        "f1",
        files={"train": ("train-v2.0.json",), "validation": ("dev-v2.0.json",)},
        unanswerable=True,
        hub=HubFiles(_SQUAD_V2_ON_HUB),
    ),
}
