"""A person's own columns beside the text, numbers and categories, as the vector that a classifier reads.

What the vector is made with (means, spreads, categories) is learned from a split once and kept with the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import TaskDataError
from orchestrator.tasks.cell_values import read_label, read_number

_MAX_CATEGORIES = 1000
"""More than these are text, and belong there."""


class TabularRow(Protocol):
    """An example with values of a person's own columns."""

    @property
    def numbers(self) -> Sequence[float | None]:
        """One value per numerical column; None where it is missing."""

    @property
    def categories(self) -> Sequence[str | None]:
        """One value per categorical column; None where it is missing."""


@dataclass(frozen=True)
class NumericalColumn:
    """A column of numbers, and what they are like where they are not missing."""

    name: str
    mean: float
    standard_deviation: float
    """1 where the numbers are all the same."""


@dataclass(frozen=True)
class CategoricalColumn:
    """A column of categories, and those that are known, sorted."""

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
        """The columns' names, numbers first."""
        return (*(column.name for column in self.numbers), *(column.name for column in self.categories))

    def read(self, record: Mapping[str, object]) -> tuple[tuple[float | None, ...], tuple[str | None, ...]]:
        """A record's numbers and categories. Raises: ValueError, as `read_columns` does."""
        return read_columns(record, [c.name for c in self.numbers], [c.name for c in self.categories])

    @property
    def width(self) -> int:
        """Length of the vector, E."""
        return 2 * len(self.numbers) + sum(1 + len(column.categories) for column in self.categories)

    @classmethod
    def learn(
        cls, numerical_columns: Sequence[str], categorical_columns: Sequence[str], examples: Sequence[TabularRow]
    ) -> Self:
        """Columns as a split's examples show them. Raises: TaskDataError for a category column of something else."""
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

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Make columns of the values of `dataclasses.asdict`, through JSON. Raises: TypeError, KeyError for others."""
        return cls(
            tuple(NumericalColumn(**column) for column in values["numbers"]),
            tuple(CategoricalColumn(column["name"], tuple(column["categories"])) for column in values["categories"]),
        )

    def encode(self, examples: Sequence[TabularRow]) -> NDArray[np.float32]:
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
"""Text alone."""


def read_columns(
    values: Mapping[str, object], numerical_columns: Sequence[str], categorical_columns: Sequence[str]
) -> tuple[tuple[float | None, ...], tuple[str | None, ...]]:
    """A record's numbers and categories. Raises: ValueError, naming the column, for what is neither one nor missing."""
    numbers, categories = [], []
    for name in numerical_columns:
        try:
            numbers.append(read_number(values[name]))
        except ValueError as error:
            raise ValueError(f"{name} {error}") from None
    for name in categorical_columns:
        if isinstance(values[name], list | dict):
            raise ValueError(f"{name} {str(values[name])[:80]} is not one category")
        categories.append(read_label(values[name]))
    return tuple(numbers), tuple(categories)
