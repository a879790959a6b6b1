"""Tables with one or two columns of text: their examples, and the reader that all types of such tasks share."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Generic, Self, TypeGuard, TypeVar

from orchestrator.tasks.readers import Reader
from orchestrator.tasks.table_files import read_plain_rows, read_rows
from orchestrator.tasks.tabular_columns import read_columns
from orchestrator.tasks.text_files import BadRecords, plain_name


@dataclass(frozen=True, slots=True)
class TextExample:
    """A text, or a pair of texts, and the values of a person's own columns beside it."""

    id: str
    text: str
    text_pair: str | None = None
    _: KW_ONLY
    numbers: tuple[float | None, ...] = ()
    """One value per numerical column; None where it is missing."""
    categories: tuple[str | None, ...] = ()
    """One value per categorical column; None where it is missing."""


T = TypeVar("T", bound=TextExample)


@dataclass(frozen=True)
class TextTable(Reader[T], Generic[T]):
    """Reads one or two columns of text, one of labels, and a person's own columns beside them."""

    text_columns: tuple[str, ...]
    label_column: str
    _: KW_ONLY
    numerical_columns: tuple[str, ...] = ()
    categorical_columns: tuple[str, ...] = ()
    header: bool = True
    """Whether files have a header; without one, columns go by their number, from 0."""
    labeled: bool = True
    """Whether labels are read; if not, their column need not be there, and a file may be plain text."""

    kind: ClassVar[type[Any]]
    """Class of the examples."""

    def read(self, path: str, bad: BadRecords) -> Iterator[T]:
        """The file's examples in order."""
        texts = (*self.text_columns, *self.numerical_columns, *self.categorical_columns)
        columns = (*texts, self.label_column) if self.labeled else texts
        is_plain = not self.labeled and plain_name(path).endswith(".txt")
        rows = read_plain_rows(path, columns, bad) if is_plain else read_rows(path, columns, bad, self.header)
        for number, (place, values) in enumerate(rows):
            record = dict(zip(columns, values, strict=True))
            try:
                first, *second = read_texts(record, self.text_columns)
                numbers, categories = read_columns(record, self.numerical_columns, self.categorical_columns)
            except ValueError as error:
                bad.found(place, str(error))
                continue
            try:
                label = self.label_fields(record[self.label_column]) if self.labeled else {}
            except ValueError as error:
                bad.found(place, f"{self.label_column} {error}")
                continue
            pair = second[0] if second else None
            yield self.kind(str(number), first, pair, numbers=numbers, categories=categories, **label)

    def without_labels(self) -> Self:
        """A reader of the texts alone."""
        return replace(self, labeled=False)

    @abstractmethod
    def label_fields(self, value: object) -> Mapping[str, Any]:
        """Make an example's fields of its label. Raises: ValueError, saying what is wrong with the value."""


def present(label: object) -> object:
    """The label of a row. Raises: ValueError when it is missing."""
    if label is None or label == "":
        raise ValueError("is empty")
    return label


def are_texts(values: object) -> TypeGuard[list[str]]:
    """Whether a value is a list of texts."""
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def read_texts(record: Mapping[str, object], names: tuple[str, ...]) -> list[str]:
    """The texts of some columns. Raises: ValueError, naming the column that holds no text."""
    texts = [record[name] for name in names]
    if not are_texts(texts):
        wrong = next(name for name in names if not isinstance(record[name], str))
        raise ValueError(f"{wrong} holds no text")
    return texts
