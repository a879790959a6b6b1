"""A task: what is to be predicted, which score ranks, and its splits, read when first asked for."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import islice
from typing import Any, Literal, Protocol

from orchestrator.errors import TaskDataError
from orchestrator.results import Split
from orchestrator.specs.task import Head, Objective
from orchestrator.storage import digest_file, exists
from orchestrator.tasks.examples import Example
from orchestrator.tasks.tabular_columns import NO_COLUMNS, TabularColumns
from orchestrator.tasks.text_files import BadRecords

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
PREDICTED_BY: Mapping[Objective, Head] = {
    "cosine": "regression",
    "in_batch_negatives": "retrieval",
    "classification": "classification",
}
_READING_VERSION = 1
"""Raised when the same file would be read into other examples."""


class Reader(Protocol):
    """Turns a file into examples."""

    def read(self, path: str, bad: BadRecords) -> Iterator[Example]:
        """The file's examples in order. Raises: TaskDataError, or counts in `bad`."""


@dataclass(frozen=True)
class ReadSplit:
    """A split's examples in the file's order, and what was found on the way."""

    examples: Sequence[Example]
    num_bad_records: int
    num_repaired: int


@dataclass(frozen=True)
class Task:
    """A labeled task. Pickles without the examples it has read."""

    id: str
    head: Head
    labels: tuple[str, ...]
    """Class names (classification, multi_label) or BIO tags (ner), in the order of the model's outputs."""
    metric: str
    """The score that ranks; higher is better."""
    files: Mapping[Split, str]
    reader: Reader
    shared_files: tuple[str, ...] = ()
    """What every split is read with beside its own file: documents and queries (retrieval)."""
    max_examples: Mapping[Split, int] = field(default_factory=dict)
    on_bad_record: Literal["error", "skip"] = "error"
    unanswerable: bool = False
    """Whether a question may have no answer (qa)."""
    objective: Objective | None = None
    """What the vectors of a pair are judged by (embedding)."""
    columns: TabularColumns = NO_COLUMNS
    """What stands beside the text and how the model reads it."""
    _read: dict[Split, ReadSplit] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def splits(self) -> tuple[Split, ...]:
        """The labeled splits there are."""
        return tuple(split for split in SPLITS if split in self.files)

    @property
    def predicts(self) -> Head:
        """The head whose predictions and scores the task has: its own, or what an embedding's objective comes to."""
        return self.head if self.objective is None else PREDICTED_BY[self.objective]

    def examples(self, split: Split) -> Sequence[Example]:
        """A split's examples, read once. Raises: TaskDataError."""
        return self.read(split).examples

    def read(self, split: Split) -> ReadSplit:
        """A split's examples and counts, read once. Raises: TaskDataError."""
        if split not in self._read:
            bad = BadRecords(self.file(split), self.on_bad_record)
            examples = tuple(islice(self.reader.read(bad.path, bad), self.max_examples.get(split)))
            if not examples:
                raise TaskDataError(
                    f"{bad.path} gives no example for task {self.id}; {bad.count} records were left out"
                )
            self._read[split] = ReadSplit(examples, bad.count, bad.num_repaired)
        return self._read[split]

    def file(self, split: Split) -> str:
        """The split's file. Raises: TaskDataError when the task has no such split."""
        if split not in self.files:
            raise TaskDataError(
                f"task {self.id} has no labeled {split} split, only {', '.join(self.splits)}; "
                f"give its file as task.files.{split}"
            )
        return self.files[split]

    def without_labels(self, path: str) -> "Task":
        """The same task with a file of further texts as its only split, train; labels in it are not read.

        Raises: TaskDataError when there is no such file.
        """
        if not exists(path):
            raise TaskDataError(f"unlabeled: there is no file {path}; check the path")
        has_labels = "labeled" in {part.name for part in fields(self.reader)}  # type: ignore[arg-type]
        reader = replace(self.reader, labeled=False) if has_labels else self.reader  # type: ignore[type-var]
        return replace(self, id=f"{self.id}_unlabeled", files={"train": path}, reader=reader, max_examples={})

    def fingerprint(self, split: Split) -> str:
        """SHA-256 over the files of a split and everything that decides how it is read; reads no example."""
        values = {
            "version": _READING_VERSION,
            "file": digest_file(self.file(split)),
            "shared_files": [digest_file(path) for path in self.shared_files],
            "reader": [type(self.reader).__name__, self._reader_values()],
            "head": self.head,
            "labels": self.labels,
            "columns": asdict(self.columns),
            "max_examples": self.max_examples.get(split),
            "on_bad_record": self.on_bad_record,
        }
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def _reader_values(self) -> dict[str, Any]:
        """How the reader reads; the files that it is told of count by their contents, not by where they lie."""
        values: dict[str, Any] = asdict(self.reader)  # type: ignore[call-overload]
        return {name: value for name, value in values.items() if value not in self.shared_files}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_read": {}}
