"""Facts of labeled files: how many examples, their labels and lengths, doubles, and texts that two splits share."""

from array import array
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from orchestrator.drafting.columns import refuse_broken
from orchestrator.drafting.example_views import ExampleView, view_of
from orchestrator.errors import InputError
from orchestrator.results import Split
from orchestrator.specs.task import TaskSpec
from orchestrator.tasks.table_files import column_names
from orchestrator.tasks.text_files import BadRecords
from orchestrator.tasks.types import TASK_TYPES

MIN_EXAMPLES = 10
_SAMPLE_EXAMPLES = 1000


@dataclass
class SplitFacts:
    """One labeled file, read to its end; counted while it is read."""

    path: str
    num_examples: int = 0
    num_bad_records: int = 0
    first_problem: str = ""
    repair_note: str = ""
    remarks: Counter[str] = field(default_factory=Counter)
    """Number of times, by description, that something was read otherwise than it is written."""
    num_empty: int = 0
    """Examples without a word; they belong to no group."""
    num_contradictions: int = 0
    """Examples that have the text of an earlier one, and other labels."""
    labels: Counter[str] = field(default_factory=Counter)
    words: Counter[int] = field(default_factory=Counter)
    """Number of examples by their number of words."""
    rows: "array[int]" = field(default_factory=lambda: array("q"))
    """Number of the record of each example that has a word; -1 where the layout has no rows."""
    row_groups: "array[int]" = field(default_factory=lambda: array("Q"))
    """Group of each of these examples: a key of the text that must not be in two splits."""
    groups: dict[int, int] = field(default_factory=dict)
    """Number of the first example's labels, by group."""
    label_sets: dict[tuple[str, ...], int] = field(default_factory=dict)
    """Numbers of all labels that some example has together."""
    questions: set[int] = field(default_factory=set)
    """Keys of the examples, where several belong to one group by their nature."""
    num_doubles: int = 0
    """Examples whose text stands in the file before."""
    sample: list[tuple[str, ...]] = field(default_factory=list)
    """Texts of the first examples, to measure a tokenizer on."""

    @property
    def mean_words(self) -> float:
        """Words of an example on average."""
        return sum(words * count for words, count in self.words.items()) / max(1, self.words.total())

    def words_within(self, share: float) -> int:
        """The smallest number of words that at least this share of examples does not exceed."""
        below = 0
        for words in sorted(self.words):
            below += self.words[words]
            if below >= share * self.words.total():
                return words
        return 0

    def note(self, view: ExampleView) -> None:
        """Add an example that has a word to its group."""
        labels = self.label_sets.setdefault(view.labels, len(self.label_sets))
        group, key = view.group_key, view.key
        if group == key:
            first = self.groups.get(group)
            self.num_doubles += first is not None
            self.num_contradictions += first not in (None, labels)
        else:
            self.num_doubles += key in self.questions
            self.questions.add(key)
        self.groups.setdefault(group, labels)
        self.rows.append(view.row)
        self.row_groups.append(group)

    def labels_within(self, groups: Set[int]) -> Counter[str]:
        """Number of examples in these groups by label, each taken to have the labels of its group's first."""
        labels_of = {number: labels for labels, number in self.label_sets.items()}
        counted: Counter[str] = Counter()
        for group in self.row_groups:
            if group in groups:
                counted.update(labels_of[self.groups[group]])
        return counted

    @property
    def strata(self) -> dict[int, str]:
        """Labels by which a split is balanced: each set's first one, by the set's number."""
        return {number: min(labels, default="") for labels, number in self.label_sets.items()}


def read_split(task: TaskSpec, path: str) -> SplitFacts:
    """Read a labeled file as the task reads it. Raises: TaskDataError, InputError where many records are broken."""
    assert task.head is not None, "a draft's task says its head"
    task_type = TASK_TYPES[task.head]
    bad = BadRecords(path, "skip")
    facts = SplitFacts(path)
    for example in task_type.reader(task, None).read(path, bad):
        view = view_of(example, task_type)
        facts.num_examples += 1
        facts.words[view.num_words] += 1
        facts.labels.update(view.labels)
        if view.is_empty:
            facts.num_empty += 1
            continue
        if len(facts.sample) < _SAMPLE_EXAMPLES:
            facts.sample.append(view.texts)
        facts.note(view)
    facts.num_bad_records, facts.first_problem = bad.count, bad.first_problem
    facts.repair_note, facts.remarks = bad.repair_note, bad.remarks
    refuse_broken(bad, facts.num_examples)
    return facts


def check_columns(task: TaskSpec, files: Mapping[Split, str]) -> None:
    """Check that every table has the columns that were found in the one for training. Raises: InputError."""
    wanted = (*task.text_columns, *([task.label_column] if task.label_column else []))
    for split, path in files.items():
        present = column_names(path, BadRecords(path, "skip"))
        missing = [name for name in wanted if name not in present]
        if missing and split != "train":
            raise InputError(
                f"{path} has no column {missing[0]!r}, it has {', '.join(map(repr, present))}; the columns are those "
                f"of {files['train']}, {' and '.join(map(repr, wanted))}: rename those of {path}, or name by --text "
                "and --label columns that both have"
            )


def check_splits(task: TaskSpec, splits: Mapping[Split, SplitFacts]) -> None:
    """Check that there is enough to learn from, and that every split has known labels. Raises: InputError."""
    train = splits["train"]
    usable = train.num_examples - train.num_empty
    if usable < MIN_EXAMPLES:
        raise InputError(
            f"{train.path} has {usable} labeled examples with text; at least {MIN_EXAMPLES} are needed to learn from "
            "some and to check on others: add more"
        )
    assert task.head is not None, "a draft's task says its head"
    task_type = TASK_TYPES[task.head]
    if problem := task_type.labels_problem(task, list(train.labels)):
        raise InputError(f"{train.path}: {problem}")
    for split, facts in splits.items():
        unknown = sorted(facts.labels.keys() - train.labels.keys())
        if unknown and task_type.has_labels(task.objective):
            raise InputError(
                f"{facts.path} ({split}) has the label {unknown[0]!r}, which {train.path} never shows; add rows with "
                "it there, or mend it here"
            )


def num_leaks(train: SplitFacts, other: SplitFacts) -> int:
    """Examples of another split whose text is in the training split as well."""
    return sum(group in train.groups for group in other.row_groups)
