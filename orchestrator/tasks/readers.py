"""Common part of every task type's examples and readers."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import Generic, Protocol, Self, TypeVar

from orchestrator.tasks.text_files import BadRecords


class Example(Protocol):
    """One example of a task: frozen, readable, in the words of the data set. Its label may be left out."""

    @property
    def id(self) -> str:
        """Its name within its split."""


E_co = TypeVar("E_co", bound=Example, covariant=True)


@dataclass(frozen=True)
class Reader(ABC, Generic[E_co]):
    """Turns a file into examples. A subclass is a frozen dataclass of everything that decides how the file is read."""

    @property
    def shared_files(self) -> tuple[str, ...]:
        """Files that every split is read with beside its own."""
        return ()

    def at_absolute_paths(self) -> Self:
        """The same reader for a process with another working folder."""
        return self

    @abstractmethod
    def read(self, path: str, bad: BadRecords) -> Iterator[E_co]:
        """The file's examples in order. Raises: TaskDataError, or counts broken records in `bad`."""

    def label_mismatch(self, path: str) -> str | None:
        """Say that a file has labels and none of them is one that is accepted; None where some is, or any would be."""
        return None

    def without_labels(self) -> "Reader[E_co]":
        """A reader of the same layout that neither reads labels nor needs them there."""
        return self


@dataclass(frozen=True)
class LabeledReader(Reader[E_co]):
    """A reader that can be told to leave labels alone."""

    _: KW_ONLY
    labeled: bool = True
    """Whether labels are read; if not, they need not be there."""

    def without_labels(self) -> Self:
        return replace(self, labeled=False)
