"""Tables with one or two columns of text: their examples, and the reader that all types of such tasks share.

A person's own columns beside the text, numbers and categories, become a vector that a classifier reads. What it is made
with (means, spreads, categories) is learned from a split once and kept with the model.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Self, TypeGuard

import numpy as np
from numpy.typing import NDArray

from orchestrator.base.errors import TaskDataError
from orchestrator.specs.task import TaskSpec
from orchestrator.tasks.catalogue import KNOWN_TASKS, KnownTask
from orchestrator.tasks.cell_values import (
    has_decimal_commas,
    has_thousands_points,
    is_missing,
    is_unlabeled,
    label_text,
    read_label,
    read_number,
    unpack_cell,
)
from orchestrator.tasks.table_files import class_names, read_plain_rows, read_rows
from orchestrator.tasks.text_files import BadRecords, LabeledReader, plain_name

_MAX_CATEGORIES = 1000
"""More than these are text, and belong there."""


@dataclass(frozen=True, slots=True)
class TextExample:
    """A text, or a pair of texts, its label, and the values of a person's own columns beside it."""

    id: str
    text: str
    text_pair: str | None = None
    label: Any = None
    """Name of a class, a number, or names of labels in the order of the file; None where it is not known."""
    _: KW_ONLY
    numbers: tuple[float | None, ...] = ()
    """One value per numerical column; None where it is missing."""
    categories: tuple[str | None, ...] = ()
    """One value per categorical column; None where it is missing."""


@dataclass(frozen=True)
class LabelColumn:
    """All labels of a file, which decide how an ambiguous one is read (-1, decimal commas, numbers of classes)."""

    path: str
    name: str
    header: bool
    remarks: Counter[str]
    """Gets the number of labels that are read otherwise than they are written."""
    may_quote: bool = True

    @cached_property
    def values(self) -> Sequence[object]:
        read = read_rows(self.path, (self.name,), BadRecords(self.path, "skip"), self.header, may_quote=self.may_quote)
        return [unpack_cell(value) for _, (value,) in read]

    @cached_property
    def has_decimal_commas(self) -> bool:
        return has_decimal_commas(self.values)

    @cached_property
    def has_thousands_points(self) -> bool | None:
        return has_thousands_points(self.values)

    @cached_property
    def labels(self) -> frozenset[str]:
        """The different labels, in their one spelling, those in lists among them."""
        single = chain.from_iterable(value if isinstance(value, list) else [value] for value in self.values)
        labels = (read_label(value) for value in single if not isinstance(value, list | dict))
        return frozenset(label for label in labels if label is not None)

    @cached_property
    def num_flags(self) -> int:
        """Length of the column's lists where each has a 0 or 1 for every label; 0 of other columns."""
        lists = [value if isinstance(value, list) else [] for value in self.values if not is_missing(value)]
        lengths = {len(value) if all(flag in (0, 1) for flag in value) else 0 for value in lists}
        return max(lengths) if len(lengths) == 1 else 0

    @cached_property
    def class_names(self) -> Sequence[str]:
        """Names of the classes that numbers stand for, where the file itself has them."""
        return class_names(self.path, self.name)

    def name_of(self, label: str) -> str:
        """The class that a number stands for where the file itself says so; any other label as it stands."""
        if not label.isdecimal() or int(label) >= len(self.class_names):
            return label
        self.remarks["labels that are numbers, read as the names that the file has for them"] += 1
        return self.class_names[int(label)]


@dataclass(frozen=True)
class TextTable(LabeledReader[TextExample]):
    """Reads one or two columns of text, one of labels, and a person's own columns beside them.

    Without labels, a file may be plain text.
    """

    text_columns: tuple[str, ...]
    label_column: str
    _: KW_ONLY
    numerical_columns: tuple[str, ...] = ()
    categorical_columns: tuple[str, ...] = ()
    header: bool = True
    """Whether files have a header; without one, columns go by their number, from 0."""
    may_quote: bool = True
    """Whether a TSV file may have quoted cells; those of published tasks are read as their reference does, without."""

    @classmethod
    def of_spec(cls, spec: TaskSpec, labels: tuple[str, ...] | None, known: KnownTask | None = None) -> Self:
        return cls(**table_columns(spec))

    @property
    def label_names(self) -> tuple[str, ...]:
        return (self.label_column,)

    def read(self, path: str, bad: BadRecords) -> Iterator[TextExample]:
        """The file's examples in order, without the rows that have no label."""
        texts = (*self.text_columns, *self.numerical_columns, *self.categorical_columns)
        label_names = self.label_names if self.labeled else ()
        columns = (*texts, *label_names)
        if not self.labeled and plain_name(path).endswith(".txt"):
            rows = read_plain_rows(path, columns, bad)
        else:
            rows = read_rows(path, columns, bad, self.header, may_lack=label_names, may_quote=self.may_quote)
        column = LabelColumn(path, self.label_column, self.header, bad.remarks, self.may_quote)
        for number, (place, values) in enumerate(rows):
            record = dict(zip(columns, values, strict=True))
            said = ""
            try:
                first, *second = read_texts(record, self.text_columns, bad.remarks)
                numbers, categories = read_columns(record, self.numerical_columns, self.categorical_columns)
                said = f"{' or '.join(label_names)} "  # what is wrong from here on is wrong with a label
                label = self.label_of(record, column) if self.labeled else None
            except ValueError as error:
                bad.found(place, f"{said}{error}")
                continue
            if label is None and self.labeled:
                bad.unlabeled(next(filter(is_unlabeled, map(record.get, label_names)), record[label_names[0]]))
                continue
            pair = second[0] if second else None
            yield TextExample(str(number), first, pair, label, numbers=numbers, categories=categories)

    @abstractmethod
    def label_of(self, record: Mapping[str, object], column: LabelColumn) -> Any:
        """A row's label, None where it has none. Raises: ValueError, with the problem."""


def table_columns(spec: TaskSpec) -> dict[str, Any]:
    """The columns of a spec, by the names of the fields of `TextTable`."""
    return {
        "text_columns": spec.text_columns,
        "label_column": "label" if spec.label_column is None else spec.label_column,
        "numerical_columns": spec.numerical_columns,
        "categorical_columns": spec.categorical_columns,
        "may_quote": spec.id not in KNOWN_TASKS,
    }


def are_texts(values: object) -> TypeGuard[list[str]]:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def read_texts(record: Mapping[str, object], names: tuple[str, ...], remarks: Counter[str]) -> list[str]:
    """The texts of some columns; numbers among them count as text. Raises: ValueError, naming column and value.

    Args:
        remarks: gets the number of numbers.
    """
    texts = []
    for name in names:
        value = record[name]
        if isinstance(value, int | float) and not isinstance(value, bool) and not is_missing(value):
            remarks[f"numbers in {name}, read as text"] += 1
            value = label_text(value)
        if not isinstance(value, str):
            raise ValueError(f"{name} holds no text: {str(value)[:80]}")
        texts.append(value)
    return texts


@dataclass(frozen=True)
class NumericalColumn:
    """A column of numbers, and their mean and standard deviation."""

    name: str
    mean: float
    standard_deviation: float
    """1 where the numbers are all the same."""


@dataclass(frozen=True)
class CategoricalColumn:
    """A column of categories, and the known ones, sorted."""

    name: str
    categories: tuple[str, ...]


@dataclass(frozen=True)
class TabularColumns:
    """Rules by which columns become E numbers for the classifier.

    A number column gives two: how many standard deviations its value lies from the mean, and 1 where it is missing
    (the value then is the mean). A category column gives one for each category that is known, after one for a category
    that is missing or unknown; all are 0 but one, so that the layer that reads them holds a vector for each category.
    """

    numbers: tuple[NumericalColumn, ...] = ()
    categories: tuple[CategoricalColumn, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (*(column.name for column in self.numbers), *(column.name for column in self.categories))

    def read(self, record: Mapping[str, object]) -> tuple[tuple[float | None, ...], tuple[str | None, ...]]:
        return read_columns(record, [c.name for c in self.numbers], [c.name for c in self.categories])

    @property
    def width(self) -> int:
        """Length of the vector, E."""
        return 2 * len(self.numbers) + sum(1 + len(column.categories) for column in self.categories)

    @classmethod
    def learn(
        cls, numerical_columns: Sequence[str], categorical_columns: Sequence[str], examples: Sequence[TextExample]
    ) -> Self:
        """Columns fitted to a split's examples. Raises: TaskDataError for a column with too many categories."""
        numbers = []
        for place, name in enumerate(numerical_columns):
            values = np.array([value for e in examples if (value := e.numbers[place]) is not None] or [0.0])
            # Equal numbers can have a tiny standard deviation instead of none, by rounding.
            spread = float(values.std()) if np.ptp(values) > 0 else 1.0
            numbers.append(NumericalColumn(name, float(values.mean()), spread))
        categories = []
        for place, name in enumerate(categorical_columns):
            known = sorted({category for e in examples if (category := e.categories[place]) is not None})
            if len(known) > _MAX_CATEGORIES:
                raise TaskDataError(
                    f"task.categorical_columns: {name} has {len(known):,} different values, "
                    f"at most {_MAX_CATEGORIES:,} can be categories; name it among the text_columns or the "
                    "numerical_columns, or leave it out"
                )
            categories.append(CategoricalColumn(name, tuple(known)))
        return cls(tuple(numbers), tuple(categories))

    def encode(self, examples: Sequence[TextExample]) -> NDArray[np.float32]:
        """The columns' vector for each example, (N, E)."""
        encoded = np.zeros((len(examples), self.width), np.float32)
        start = 0
        for place, number in enumerate(self.numbers):
            values = [e.numbers[place] for e in examples]
            distances = [0.0 if v is None else (v - number.mean) / number.standard_deviation for v in values]
            encoded[:, start] = distances
            encoded[:, start + 1] = [value is None for value in values]
            start += 2
        for place, column in enumerate(self.categories):
            numbered = {read_label(category): index for index, category in enumerate(column.categories, start=1)}
            slots = [numbered.get(e.categories[place], 0) for e in examples]
            encoded[np.arange(len(examples)), start + np.array(slots, dtype=np.int64)] = 1.0
            start += 1 + len(column.categories)
        return encoded


NO_COLUMNS = TabularColumns()


def read_columns(
    values: Mapping[str, object], numerical_columns: Sequence[str], categorical_columns: Sequence[str]
) -> tuple[tuple[float | None, ...], tuple[str | None, ...]]:
    """A record's numbers and categories. Raises: ValueError, naming the column, for what is neither one nor missing."""
    name = ""
    try:
        numbers = tuple(read_number(values[name := column]) for column in numerical_columns)
        categories = tuple(read_label(values[name := column]) for column in categorical_columns)
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None
    return numbers, categories
