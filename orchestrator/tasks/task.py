"""A task: what is to be predicted, and its splits, read when first asked for."""

import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import compress, islice
from typing import Any, Literal, NamedTuple, Self

from bert_core.text.characters import plain_text
from orchestrator.base.console import counted
from orchestrator.base.errors import TaskDataError
from orchestrator.base.nearest import no_file
from orchestrator.base.results import Split
from orchestrator.storage import digest_file, exists
from orchestrator.storage.uris import absolute
from orchestrator.tasks.text_files import BadRecords, Reader
from orchestrator.tasks.types.base import AnyTaskType, TaskDefinition

logger = logging.getLogger(__name__)
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
_READING_VERSION = 5
"""Raised when the same file would be read into other examples."""


class ReadSplit(NamedTuple):
    """A split's examples in the file's order, and the records that were left out or repaired."""

    examples: Sequence[Any]
    """Objects of the task type's own class."""
    bad: BadRecords


class SplitDigests(NamedTuple):
    """SHA-256 digests of a split, of the split without its limit, and of its file."""

    taken: str
    """The split's fingerprint."""
    whole: str
    """Fingerprint of the split without its limit: of splits that share it, each has the first examples of the same."""
    file: str
    """Digest of the file's content, however it is read."""


@dataclass(frozen=True, kw_only=True)
class Task(TaskDefinition):
    """A labeled task with its files. A split is read once, also for tasks that `replace` makes of it.

    The reader may be replaced by another one only if it gives the same examples. Pickles without examples.
    """

    files: Mapping[Split, str]
    reader: Reader[Any]
    """Reader of the task type's own examples."""
    max_examples: Mapping[Split, int] = field(default_factory=dict)
    """Number of a split's first examples that count; all where it has none."""
    on_bad_record: Literal["error", "skip"] = "error"
    train_fraction: float = 1.0
    """Share of the training split's examples that count."""
    held_out: float | None = None
    """Share of the training file's texts that is the validation split, where there is no validation file: that split's
    file is the training file, too."""
    folds: int | None = None
    """Number of parts that the training file's examples are dealt into instead."""
    fold: int | None = None
    """The part that is the validation split, while the others are the training split; None where both are the whole."""
    reads: dict[tuple[object, ...], ReadSplit] = field(default_factory=dict, repr=False, compare=False)
    """Files and parts that were read, by all that decides which examples they have."""

    @property
    def is_divided(self) -> bool:
        """Whether the validation split is a part of the training file."""
        return self.held_out is not None or self.folds is not None

    @property
    def splits(self) -> tuple[Split, ...]:
        """The labeled splits there are."""
        return tuple(split for split in SPLITS if split in self.files)

    def examples(self, split: Split) -> Sequence[Any]:
        """The split's labeled examples, of the task type's own class, read once."""
        return self.read(split).examples

    def read(self, split: Split) -> ReadSplit:
        """The split's examples and what its file was like. Raises: TaskDataError, naming what is missing or broken."""
        source = self._source(split)
        share = self.train_fraction if split == "train" else 1.0
        key = (*self._file_key(source), split, share, self.held_out, self.folds, self.fold)
        if key not in self.reads:
            read = self._read_file(source)
            if self.is_divided and split != "test":
                read = self._part_of(read, split)
            if share < 1.0:
                is_taken = _take_of_each_label(self.type, read.examples, lambda count: max(1, round(share * count)))
                read = read._replace(examples=tuple(compress(read.examples, is_taken)))
            self.reads[key] = read
        return self.reads[key]

    def _source(self, split: Split) -> Split:
        """The split whose file and limit a split has."""
        return "train" if self.is_divided and split == "validation" else split

    def _file_key(self, split: Split) -> tuple[object, ...]:
        return absolute(self.file(split)), self.on_bad_record, self.max_examples.get(split)

    def _part_of(self, whole: ReadSplit, split: Split) -> ReadSplit:
        """A split's part of the training file; the whole file where no fold is chosen."""
        if self.held_out is not None:
            share = self.held_out
            is_kept = _take_of_each_label(
                self.type, whole.examples, lambda count: min(count - 1, max(1, round(share * count)))
            )
            problem = "each label stands beside one text only; add rows, or give a validation file"
        elif self.fold is not None:
            folds = _deal_folds(self.type, whole.examples, self.folds or 1)
            num_texts = len(set(folds))  # at most as many as folds
            is_kept = [own == self.fold and num_texts == self.folds for own in folds]
            problem = f"{self.folds} folds, and it has {counted(num_texts, 'text')}"
        else:
            return whole
        if not any(is_kept):
            raise TaskDataError(f"{self.file('train')}: nothing can be kept for validation: {problem}")
        is_wanted = [kept == (split == "validation") for kept in is_kept]
        return whole._replace(examples=tuple(compress(whole.examples, is_wanted)))

    def _read_file(self, split: Split) -> ReadSplit:
        key = self._file_key(split)
        if key in self.reads:
            return self.reads[key]
        bad = BadRecords(self.file(split), self.on_bad_record)
        examples = tuple(islice(self.reader.read(bad.path, bad), self.max_examples.get(split)))
        if not examples:
            one = bad.count == 1
            left_out = f"{bad.count:,} record{' was' if one else 's were'} left out"
            found = f"{left_out}, the first at {bad.first_problem}" if bad.count else "it has no record"
            if bad.num_unlabeled:
                found = f"{counted(bad.num_unlabeled, 'row')} without a label; leave it out or name another column"
            raise TaskDataError(f"{bad.path} gives no example for task {self.id}: {found}")
        for remark, number in bad.remarks.items():
            logger.info(f"{bad.path}: {remark}: {number:,}")
        self.reads[key] = ReadSplit(examples, bad)
        return self.reads[key]

    def file(self, split: Split) -> str:
        """The split's file. Raises: TaskDataError when the task has no such split."""
        if split not in self.files:
            raise TaskDataError(
                f"task {self.id} has no labeled {split} split, only {', '.join(self.splits)}; "
                f"give its file as task.files.{split}, or name another split"
            )
        return self.files[split]

    @property
    def first_fold(self) -> Self:
        """The task of a typical trial: of the first fold, where it has folds."""
        return self if self.folds is None else replace(self, fold=0)

    def at_absolute_paths(self) -> Self:
        """The task for a process with another working folder."""
        files = {split: absolute(path) for split, path in self.files.items()}
        return replace(self, files=files, reader=self.reader.at_absolute_paths())

    def without_labels(self, path: str) -> Self:
        """The task with a file of further texts as its only split, train; labels in it are not read.

        Raises: TaskDataError when there is no such file.
        """
        if not exists(path):
            raise TaskDataError(f"unlabeled: {no_file(path)}")
        reader = self.reader.without_labels()
        whole: dict[str, Any] = {"max_examples": {}, "held_out": None, "folds": None, "fold": None, "reads": {}}
        return replace(self, id=f"{self.id}_unlabeled", files={"train": path}, reader=reader, **whole)

    def fingerprint(self, split: Split) -> str:
        """SHA-256 over the files of a split and everything that decides how it is read; reads no example."""
        return self.digests(split).taken

    def digests(self, split: Split) -> SplitDigests:
        """The split's fingerprint, and digests that other examples of the same file share.

        Reads each file once, and no example.
        """
        reading = self._reading(split)
        taken, whole = (
            hashlib.sha256(json.dumps(reading | {"max_examples": limit}, sort_keys=True).encode()).hexdigest()
            for limit in (self.max_examples.get(self._source(split)), None)
        )
        return SplitDigests(taken, whole, reading["file"])

    def _reading(self, split: Split) -> dict[str, Any]:
        """Everything but the limit that decides which examples a split has."""
        shared_files = self.reader.shared_files
        # The files that a reader is told of count by their contents, not by where they lie.
        reading = {name: value for name, value in asdict(self.reader).items() if value not in shared_files}
        return {
            "version": _READING_VERSION,
            "file": digest_file(self.file(split)),
            "shared_files": [digest_file(path) for path in shared_files],
            "reader": [type(self.reader).__name__, reading],
            "head": self.head,
            "labels": self.labels,
            "columns": asdict(self.columns),
            "on_bad_record": self.on_bad_record,
            **({"share": self.train_fraction} if split == "train" and self.train_fraction < 1.0 else {}),
            **({"part": [split, self.held_out, self.folds, self.fold]} if self.is_divided and split != "test" else {}),
        }

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "reads": {}}


def _take_of_each_label(task_type: AnyTaskType, examples: Sequence[Any], num_taken: Callable[[int], int]) -> list[bool]:
    """Whether each example is taken, of each label so many of its number of texts.

    Digests of the texts decide, neither their order nor a seed, so that a smaller share lies within a larger one;
    copies of a text stay together.
    """
    digests, by_label = _texts_by_label(task_type, examples)
    chosen = {digest for texts in by_label.values() for digest in sorted(texts)[: num_taken(len(texts))]}
    return [digest in chosen for digest in digests]


def _deal_folds(task_type: AnyTaskType, examples: Sequence[Any], num_folds: int) -> list[int]:
    """The fold of each example: each label's texts go to all folds in turn, by digest, copies of a text to one."""
    digests, by_label = _texts_by_label(task_type, examples)
    texts = [digest for _, own in sorted(by_label.items()) for digest in sorted(own)]
    folds = {digest: place % num_folds for place, digest in enumerate(texts)}
    return [folds[digest] for digest in digests]


def _texts_by_label(task_type: AnyTaskType, examples: Sequence[Any]) -> tuple[list[bytes], dict[str, set[bytes]]]:
    """Digest of each example's text, and the digests of each label; a text has the first label of its first copy."""
    texts = (plain_text(task_type.split_text(one)) for one in examples)
    digests = [hashlib.sha256(text.encode(errors="replace")).digest() for text in texts]
    by_label: dict[str, set[bytes]] = defaultdict(set)
    for digest, example in dict(zip(reversed(digests), reversed(examples), strict=True)).items():
        by_label[min(task_type.target.label_names(example), default="")].add(digest)
    return digests, by_label
