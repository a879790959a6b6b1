"""A task: what is to be predicted, and its splits, read when first asked for."""

import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any, Literal, NamedTuple, Self

from orchestrator.errors import TaskDataError
from orchestrator.progress import counted
from orchestrator.results import Split
from orchestrator.storage import digest_file, exists
from orchestrator.storage.uris import absolute
from orchestrator.tasks.readers import Reader
from orchestrator.tasks.text_files import BadRecords
from orchestrator.tasks.types.base import AnyTaskType, TaskDefinition

logger = logging.getLogger(__name__)
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
_READING_VERSION = 3
"""Raised when the same file would be read into other examples."""


@dataclass(frozen=True)
class ReadSplit:
    """A split's examples in the file's order, and what was found on the way."""

    examples: Sequence[Any]
    """Objects of the task type's own class."""
    num_bad_records: int
    num_repaired: int
    repair_note: str = ""
    """Note on the records that were mended, for a person; empty without any."""


class SplitDigests(NamedTuple):
    """Digests (SHA-256) of a split: of the examples that count, and of what they are taken from."""

    taken: str
    """The split's fingerprint."""
    whole: str
    """Fingerprint of the split without its limit: of splits that share it, each has the first examples of the same."""
    file: str
    """Digest of the file's content, however it is read."""


@dataclass(frozen=True, kw_only=True)
class Task(TaskDefinition):
    """A labeled task with its files. A split is read once; pickles without the examples it has read."""

    files: Mapping[Split, str]
    reader: Reader[Any]
    """Reader of the task type's own examples."""
    max_examples: Mapping[Split, int] = field(default_factory=dict)
    """Number of a split's first examples that count; all where it has none."""
    on_bad_record: Literal["error", "skip"] = "error"
    train_fraction: float = 1.0
    """Share of the training split's examples that count."""
    _read: dict[Split, ReadSplit] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def splits(self) -> tuple[Split, ...]:
        """The labeled splits there are."""
        return tuple(split for split in SPLITS if split in self.files)

    def examples(self, split: Split) -> Sequence[Any]:
        """The split's labeled examples, of the task type's own class, read once."""
        return self.read(split).examples

    def read(self, split: Split) -> ReadSplit:
        """The split's examples and what its file was like. Raises: TaskDataError, naming what is missing or broken."""
        if split not in self._read:
            bad = BadRecords(self.file(split), self.on_bad_record)
            try:
                examples = tuple(islice(self.reader.read(bad.path, bad), self.max_examples.get(split)))
            except TaskDataError:
                self._refuse_other_labels(bad.path)
                raise
            if not examples:
                if not bad.num_unlabeled:
                    self._refuse_other_labels(bad.path)
                one = bad.count == 1
                left_out = f"{bad.count:,} record{' was' if one else 's were'} left out"
                found = left_out if bad.count else "it has no record"
                if bad.num_unlabeled:
                    found = f"{counted(bad.num_unlabeled, 'row')} without a label; leave it out or name another column"
                raise TaskDataError(f"{bad.path} gives no example for task {self.id}: {found}")
            if split == "train" and self.train_fraction < 1.0:
                examples = take_share(self.type, examples, self.train_fraction)
            for remark, count in bad.remarks.items():
                logger.info(f"{bad.path}: {remark}: {count:,}")
            self._read[split] = ReadSplit(examples, bad.count, bad.num_repaired, bad.repair_note)
        return self._read[split]

    def _refuse_other_labels(self, path: str) -> None:
        """Raise TaskDataError where a file that could not be read has other labels throughout."""
        mismatch = None
        with suppress(TaskDataError):  # the file is broken otherwise, which the first error tells
            mismatch = self.reader.label_mismatch(path)
        if mismatch is not None:
            raise TaskDataError(mismatch) from None

    def file(self, split: Split) -> str:
        """The split's file. Raises: TaskDataError when the task has no such split."""
        if split not in self.files:
            raise TaskDataError(
                f"task {self.id} has no labeled {split} split, only {', '.join(self.splits)}; "
                f"give its file as task.files.{split}, or name another split"
            )
        return self.files[split]

    def with_same_examples(self, **changes: Any) -> Self:
        """The task with other fields that do not change its examples, such as the order of labels.

        A split that either of both reads is read for both.
        """
        changed = replace(self, **changes)
        object.__setattr__(changed, "_read", self._read)
        return changed

    def with_limits(self, max_examples: Mapping[Split, int]) -> Self:
        """The task with the first so many examples of some splits. Splits that were read whole stay read."""
        limited = replace(self, max_examples=max_examples)
        limited._read.update({split: read for split, read in self._read.items() if split not in max_examples})
        return limited

    def with_train_fraction(self, fraction: float) -> Self:
        """The task with a share of its training examples."""
        return self if fraction == self.train_fraction else replace(self, train_fraction=fraction)

    def at_absolute_paths(self) -> Self:
        """The task for a process with another working folder."""
        files = {split: absolute(path) for split, path in self.files.items()}
        return self.with_same_examples(files=files, reader=self.reader.at_absolute_paths())

    def without_labels(self, path: str) -> Self:
        """The task with a file of further texts as its only split, train; labels in it are not read.

        Raises: TaskDataError when there is no such file.
        """
        if not exists(path):
            raise TaskDataError(f"unlabeled: there is no file {path}; check the path")
        reader = self.reader.without_labels()
        return replace(self, id=f"{self.id}_unlabeled", files={"train": path}, reader=reader, max_examples={})

    def fingerprint(self, split: Split) -> str:
        """SHA-256 over the files of a split and everything that decides how it is read; reads no example."""
        return self.digests(split).taken

    def digests(self, split: Split) -> SplitDigests:
        """The split's fingerprint, and the digests by which other examples of the same file are known.

        Reads each file once, and no example.
        """
        reading = self._reading(split)
        taken, whole = (
            hashlib.sha256(json.dumps(reading | {"max_examples": limit}, sort_keys=True).encode()).hexdigest()
            for limit in (self.max_examples.get(split), None)
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
            **({"fraction": self.train_fraction} if split == "train" and self.train_fraction < 1.0 else {}),
        }

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_read": {}}


def take_share(task_type: AnyTaskType, examples: Sequence[Any], fraction: float) -> tuple[Any, ...]:
    """A share of each label's texts, one at least, in the file's order; a smaller share lies within a larger one.

    Digests of the texts choose, neither their order nor a seed; copies of a text stay together.
    """
    digests = [hashlib.sha256(task_type.split_text(one).encode(errors="replace")).digest() for one in examples]
    by_label: dict[str, set[bytes]] = defaultdict(set)
    for digest, example in dict(zip(reversed(digests), reversed(examples), strict=True)).items():
        label = getattr(example, "label", None) or getattr(example, "labels", None)  # a class, or all labels at once
        by_label[repr(label) if isinstance(label, str | tuple) else ""].add(digest)
    counts = {label: max(1, round(fraction * len(texts))) for label, texts in by_label.items()}
    kept = {digest for label, texts in by_label.items() for digest in sorted(texts)[: counts[label]]}
    return tuple(example for digest, example in zip(digests, examples, strict=True) if digest in kept)
