"""Labeled files as a draft looks at them: examples, labels, lengths, doubles; the choice of those for validation."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

from orchestrator.drafting.text import MAX_BAD_SHARE, count_words, text_key
from orchestrator.errors import InputError
from orchestrator.results import Split
from orchestrator.specs.task import TaskSpec
from orchestrator.tasks.text_examples import TextExample
from orchestrator.tasks.text_files import BadRecords
from orchestrator.tasks.types import TASK_TYPES
from orchestrator.tasks.types.classification import ClassificationExample
from orchestrator.tasks.types.conll import NerExample
from orchestrator.tasks.types.embedding import MatchExample
from orchestrator.tasks.types.multi_label import MultiLabelExample
from orchestrator.tasks.types.regression import RegressionExample

MIN_EXAMPLES = 10
_SAMPLE_EXAMPLES = 1000
_VOCABULARY_BYTES = 64 << 20
"""Text that a vocabulary is learned from, at most."""
_VALIDATION_SHARE = 0.1
_VALIDATION_SHARE_OF_FEW = 0.2
_FEW = 1000
_MOST_VALIDATION = 5000
"""Examples for validation at most: more cost time and tell little more."""


class Example(NamedTuple):
    """One labeled example."""

    record: Mapping[str, Any]
    """Its fields as an object of JSON Lines, by the columns of `split_columns`."""
    texts: tuple[str, ...]
    labels: tuple[str, ...]
    """Labels to count; empty where the label is a number, or no label is there."""
    group: int
    """Key of the text that must not be in two splits, of a question its passage; 0 of an example without a word."""
    score: float | None
    """Number to estimate, where the label is one."""


def split_columns(task: TaskSpec) -> dict[str, Any]:
    """Fields of the task that say the columns of the files which a split is written to."""
    if task.head in ("ner", "qa"):
        return {"text_columns": (), "label_column": None}
    if task.head == "embedding":
        return {"text_columns": ("query", "positive"), "negative_columns": ("negatives",), "label_column": None}
    return {"text_columns": task.text_columns, "label_column": task.label_column or "label", "label_columns": ()}


def read_examples(task: TaskSpec, path: str, bad: BadRecords | None = None) -> Iterator[Example]:
    """Yield the examples of a file as the task reads it. Raises: TaskDataError."""
    assert task.head is not None, "a draft's task says its head"
    task_type = TASK_TYPES[task.head]
    names = (*task.text_columns, split_columns(task)["label_column"])
    for example in task_type.reader(task, None).read(path, bad or BadRecords(path, "skip")):
        texts, labels, record = _parts(example, names)
        is_empty = not all(text.strip() for text in texts)
        group = 0 if is_empty else text_key(task_type.split_text(example))
        yield Example(record, texts, labels, group, getattr(example, "value", None))


def _parts(example: Any, names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, Any]]:
    """The texts, the labels and the record of an example, whose columns have these names."""
    if isinstance(example, NerExample):
        entities = tuple(tag[2:] for tag in example.tags if tag.startswith("B-"))
        return (" ".join(example.words),), entities, {"tokens": example.words, "tags": example.tags}
    if isinstance(example, MatchExample):
        pair = example.text, str(example.text_pair)
        return pair, (), {"query": pair[0], "positive": pair[1], "negatives": example.negatives}
    if isinstance(example, TextExample):
        texts = (example.text,) if example.text_pair is None else (example.text, example.text_pair)
        label: Any = None
        labels: tuple[str, ...] = ()
        if isinstance(example, ClassificationExample) and example.label is not None:
            label, labels = example.label, (example.label,)
        elif isinstance(example, MultiLabelExample):
            label = labels = example.labels or ()
        elif isinstance(example, RegressionExample):
            label = example.value
        return texts, labels, dict(zip(names, (*texts, label), strict=True))
    answers = [{"text": answer.text, "answer_start": answer.start} for answer in example.answers]
    record = {"id": example.id, "question": example.question, "context": example.context, "answers": answers}
    return (example.question, example.context), ("answered" if answers else "without an answer",), record


class Seen(NamedTuple):
    """Part that is kept of an example that was read."""

    group: int
    key: int
    """Key of all of its texts."""
    labels: tuple[str, ...]
    num_words: int
    score: float | None


@dataclass(frozen=True)
class SplitFacts:
    """The examples of a split, read to their end."""

    path: str
    bad: BadRecords
    examples: Sequence[Seen]
    sample: Sequence[tuple[str, ...]] = ()
    """Texts of the first examples, to measure a tokenizer on."""

    def part(self, groups: Set[int], *, inside: bool) -> Self:
        """The examples with a word whose groups are among these, or are not."""
        return replace(self, examples=[e for e in self.examples if e.group and (e.group in groups) == inside])

    @property
    def num_examples(self) -> int:
        """Number of examples, those without a word included."""
        return len(self.examples)

    @cached_property
    def num_empty(self) -> int:
        """Number of examples without a word."""
        return sum(not example.group for example in self.examples)

    @cached_property
    def labels(self) -> Counter[str]:
        """Number of examples by label."""
        return Counter(label for example in self.examples for label in example.labels)

    @cached_property
    def words(self) -> Counter[int]:
        """Number of examples by their number of words."""
        return Counter(example.num_words for example in self.examples)

    @property
    def is_constant(self) -> bool:
        """Whether all examples have the same score."""
        scores = {example.score for example in self.examples}
        return len(scores) == 1 and None not in scores

    @property
    def num_words(self) -> int:
        """Words of all examples."""
        return sum(example.num_words for example in self.examples)

    @cached_property
    def groups(self) -> Mapping[int, tuple[str, ...]]:
        """Labels of each group's first example."""
        return {example.group: example.labels for example in reversed(self.examples) if example.group}

    @cached_property
    def doubles(self) -> tuple[int, int]:
        """Number of examples whose text stands in the file before, and of those among them that have other labels."""
        first = {example.key: example.labels for example in reversed(self.examples) if example.group}
        others = sum(first[example.key] != example.labels for example in self.examples if example.group)
        return self.num_examples - self.num_empty - len(first), others


def read_split(task: TaskSpec, path: str) -> SplitFacts:
    """Read a labeled file as the task reads it. Raises: TaskDataError, InputError where many records are broken."""
    bad = BadRecords(path, "skip")
    examples: list[Seen] = []
    sample: list[tuple[str, ...]] = []
    for _, texts, labels, group, score in read_examples(task, path, bad):
        examples.append(Seen(group, text_key("\t".join(texts)), labels, sum(map(count_words, texts)), score))
        if group and len(sample) < _SAMPLE_EXAMPLES:
            sample.append(texts)
    refuse_broken(bad, len(examples))
    return SplitFacts(path, bad, examples, sample)


def refuse_broken(bad: BadRecords, num_read: int) -> None:
    """Refuse a file of which many records cannot be used. Raises: InputError, with the first one's problem."""
    num_records = bad.count + num_read
    if bad.count > MAX_BAD_SHARE * num_records:
        raise InputError(
            f"{bad.path}: {bad.count:,} of {num_records:,} records cannot be used, the first at {bad.first_problem}; "
            "mend the file, or name other columns"
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
    return sum(example.group in train.groups for example in other.examples)


def choose_validation(facts: SplitFacts, seed: int) -> frozenset[int]:
    """Keys of the groups that are for validation: a share of each label's, by a hash of seed and text.

    So the choice depends neither on the order of the rows nor on rows of other labels, and copies stay together. A
    label with one group stays in training. Raises: InputError where nothing can be kept.
    """
    is_few = facts.num_examples < _FEW
    share = _VALIDATION_SHARE_OF_FEW if is_few else min(_VALIDATION_SHARE, _MOST_VALIDATION / facts.num_examples)
    sizes = Counter(example.group for example in facts.examples)
    strata = defaultdict[str, list[int]](list)
    for key, labels in facts.groups.items():
        strata[min(labels, default="")].append(key)
    chosen: set[int] = set()
    for keys in strata.values():
        wanted = max(1, round(share * sum(sizes[key] for key in keys)))
        # One group at least stays in training.
        for key in sorted(keys, key=lambda key: _place(key, seed))[:-1]:
            if wanted <= 0:
                break
            chosen.add(key)
            wanted -= sizes[key]
    if not chosen:
        raise InputError(
            f"{facts.path}: nothing can be kept for validation, as each label stands beside one text only; add rows, "
            "or give a second file with dev in its name"
        )
    return frozenset(chosen)


def _place(key: int, seed: int) -> bytes:
    return hashlib.blake2b(f"{seed}:{key}".encode(), digest_size=8).digest()


def split_lines(task: TaskSpec, path: str, groups: Set[int], *, inside: bool) -> Iterator[bytes]:
    """Yield JSON Lines of the examples whose groups are among these, or are not; one without a word is left out."""
    for example in read_examples(task, path):
        if example.group and (example.group in groups) == inside:
            yield (json.dumps(example.record, ensure_ascii=False) + "\n").encode()


def vocabulary_texts(task: TaskSpec, path: str, left_out: Set[int]) -> Iterator[bytes]:
    """Yield the different texts of a file, or the first of very many, an empty line between them.

    Args:
        left_out: keys of the groups of examples that are kept for validation.
    """
    seen: set[int] = set()
    room = _VOCABULARY_BYTES
    for example in read_examples(task, path):
        for text in example.texts if example.group not in left_out else ():
            line, key = " ".join(text.split()), text_key(text)
            if line and key not in seen:
                seen.add(key)
                document = f"{line}\n\n".encode()
                room -= len(document)
                yield document
        if room <= 0:
            return
